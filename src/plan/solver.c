#include "plan/solver.h"
#include "kernels/kernels.h"
#include "plan/memory.h"
#include "plan/slices.h"
#include "policies/families/multiplexed/multiplex.h"
#include "sp_error.h"
#include "policies/plan_create.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/times.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of slices that are tried of a range. */
enum { TRIES = 24 };

/* The least of a slice where only more slices could fit into memory. */
enum { SMALL_TOKENS = 32 };

/* Tasks of a layer: pre, attention, post; and backward with the weight gradients of the products. */
enum { FORWARD_TASKS = 3, BACKWARD_TASKS = 5 };

/* ---- one layout --------------------------------------------------------------------------- */

struct trial {
    const struct sp_solver_request *want;
    struct sp_solution *out;
    struct sp_plan plan;
    struct sp_shape sh;
};

/* Bytes that a slice's activations take between stages, and between the devices of one. */
static double bytes_of(const struct trial *t, double tokens)
{
    return (double)sp_shape_elem(&t->sh) * tokens * t->sh.batch * t->sh.model.hidden;
}

/*
 * A stage on `sp` devices. Sequence parallelism as Megatron-LM has it gathers and scatters a layer's
 * activations twice each, (sp-1)/sp of them, in the forward and again in the backward.
 */
static void costs_of(const struct trial *t, struct sp_costs *costs, double *scale)
{
    const struct sp_cluster *c = &t->want->cluster;
    const struct sp_solution *s = t->out;
    struct sp_slice_costs flops = sp_slice_flops(&t->sh);
    double rate = c->flops * s->sp, layers = (double)t->sh.model.layers / s->pp;
    double f = layers * t->sh.batch * sp_slice_cost(&flops, 0, t->sh.seq) / rate;
    double head = 3 * sp_flops_linear(t->sh.rows, t->sh.model.hidden, t->sh.model.vocab) / rate;
    double gather =
        s->sp > 1 ? 4 * layers * (s->sp - 1.0) / s->sp * bytes_of(t, t->sh.seq) / c->link : 0;
    double again =
        t->want->recompute == SP_RECOMPUTE_FULL || t->want->recompute == SP_RECOMPUTE_NO_ATTENTION;
    double b;

    f += gather + s->n * layers * FORWARD_TASKS * c->task_s;
    b = 2 * f + again * f + s->n * layers * (BACKWARD_TASKS - 2 * FORWARD_TASKS) * c->task_s;
    for (int g = 0; g < s->pp; g++) {
        int first, count;

        sp_partition(t->sh.model.layers, s->pp, g, &first, &count);
        scale[g] = count / layers;
        scale[s->pp + g] = count / layers + (g == s->pp - 1 ? head / b : 0);
    }
    *costs = (struct sp_costs){.f = f, .b = b, .scale_f = scale, .scale_b = scale + s->pp};
    if (s->pp > 1)
        costs->comm = bytes_of(t, (double)t->sh.seq / s->n / s->sp) /
                      (s->pp * s->sp > c->per_node ? fmin(c->link, c->network) : c->link);
}

static int simulate(const struct trial *t)
{
    double *scale = calloc(2 * (size_t)t->out->pp, sizeof *scale);
    struct sp_costs costs;
    struct sp_times times;
    char why[128];
    int err;

    if (!scale)
        return -ENOMEM;
    costs_of(t, &costs, scale);
    err = sp_listsim(&t->plan, &costs, SP_PAIRED, &times, why, sizeof why);
    if (!err) {
        t->out->step_s = times.makespan;
        t->out->bubble = times.bubble_ratio;
        sp_times_destroy(&times);
    }
    free(scale);
    return err;
}

static int64_t fullest(const struct trial *t, const struct sp_offload *offload)
{
    int64_t most = 0;

    for (int s = 0; s < t->plan.layout.stages; s++) {
        struct sp_memory m =
            offload ? offload->memory[s]
                    : sp_memory_of_stage(&t->plan, &t->sh, t->want->recompute, t->want->every, s);

        most = sp_memory_sum(&m) > most ? sp_memory_sum(&m) : most;
    }
    return most;
}

/* The devices of a stage share what it holds. */
static int weigh(const struct trial *t)
{
    const struct sp_solver_request *want = t->want;
    struct sp_solution *s = t->out;
    double rate = want->cluster.flops * s->sp;
    struct sp_offload_request request = {
        .mode = want->offload,
        .limit = want->cluster.memory * s->sp,
        .recompute = want->recompute,
        .every = want->every,
        .rates = {want->cluster.tier.write * s->sp, want->cluster.tier.read * s->sp},
        .speed = {1 / rate, 2 / rate}};
    struct sp_offload offload = {0};
    struct sp_offload_lack lack;
    int err = 0;

    s->fits = true;
    if (want->offload == SP_OFFLOAD_NONE) {
        s->memory = fullest(t, NULL) / s->sp;
    } else {
        err = sp_offload_try(&t->plan, &t->sh, &request, &offload, &lack);
        if (err == -EINVAL) {
            s->memory = (sp_memory_sum(&lack.memory) + lack.least) / s->sp;
            s->fits = false;
            return 0;
        }
        s->memory = err ? 0 : fullest(t, &offload) / s->sp;
        for (int i = 0; !err && i < offload.stages; i++)
            s->stall_s = fmax(s->stall_s, offload.away[i].stall_s);
        s->step_s += s->stall_s;
        sp_offload_destroy(&offload);
    }
    s->fits = !want->cluster.memory || s->memory <= want->cluster.memory;
    return err;
}

static int try_layout(const struct sp_solver_request *want, struct sp_solution *s)
{
    struct sp_layout lay = {.stages = s->pp,
                            .micro_batches = want->micro_batches,
                            .chunks = 1,
                            .slices = s->n,
                            .layers = want->model->layers,
                            .options = ""};
    struct trial t = {.want = want, .out = s};
    int err = sp_plan_create(want->schedule, &lay, &t.plan);

    if (err)
        return err;
    sp_shape_init(&t.sh, want->model, want->batch, want->seq, want->micro_batches, 0, 0);
    t.sh.dtype = want->dtype;
    err = s->n > 1 ? sp_plan_cut(&t.plan, &t.sh, want->cut) : 0;
    err = err ? err : sp_memory_apart(&t.plan, &t.sh);
    err = err ? err : simulate(&t);
    err = err ? err : weigh(&t);
    sp_plan_destroy(&t.plan);
    return err == -ENOMEM
               ? sp_error(ENOMEM, "no memory to try %d stages and %d slices", s->pp, s->n)
               : err;
}

/* ---- all of them ---------------------------------------------------------------------------- */

/* Times that are within a thousandth are equal: less is more than any model knows. */
static double grade(const struct sp_solution *s)
{
    return floor(1e3 * log(s->step_s));
}

static bool better(const struct sp_solution *a, const struct sp_solution *b)
{
    if (a->fits != b->fits)
        return a->fits;
    if (!a->fits)
        return a->memory < b->memory;
    if (grade(a) != grade(b))
        return a->step_s < b->step_s;
    return a->n < b->n;
}

static int insert(struct sp_solution *best, int n, int most, const struct sp_solution *s)
{
    int at = n < most ? n : most;

    while (at > 0 && better(s, &best[at - 1]))
        at--;
    if (at == most)
        return n;
    n = n < most ? n + 1 : most;
    memmove(&best[at + 1], &best[at], (size_t)(n - at - 1) * sizeof *best);
    best[at] = *s;
    return n;
}

/* Whether slices are shared out, which bounds them on both sides. */
static bool is_shared(const struct sp_solver_request *want)
{
    const char *options = strchr(want->schedule, ':');
    struct sp_layout lay = {.options = options ? options + 1 : ""};

    return sp_is_multiplexed(&lay);
}

/*
 * Slices that are tried with so many stages and devices each: least .. most. `small`: as small as a few
 * tokens, which only memory can ask for.
 */
static void range_of(const struct sp_solver_request *want, int sp, int pp, bool small, int *least,
                     int *most)
{
    bool shared = is_shared(want);
    int room = shared ? SP_MAX_SLICES - (pp - 1) * (pp - 1) : SP_MAX_SLICES; /* for parts */
    double tokens = (double)want->seq / sp;

    *least = (int)ceil(tokens / SP_TOKENS_MOST);
    *most = (int)floor(tokens / SP_TOKENS_LEAST);
    *most = *most > pp ? *most : pp;
    if (small) {
        *least = *most + 1;
        *most = (int)floor(tokens / SMALL_TOKENS);
    } else {
        *most = *most > *least ? *most : *least;
    }
    *most = *most < want->seq ? *most : want->seq;
    *most = *most < room ? *most : room;
    if (!small)
        *least = *least < *most ? *least : *most;
    if (shared) { /* policies/families/multiplexed/multiplexed.c has it so */
        *least = *least > pp - 1 ? *least : pp - 1;
        *least = *least > 2 ? *least : 2;
    }
    if (want->slices)
        *least = *most = want->slices;
}

/* Whether slices can be shared out at all, as policies/families/multiplexed/multiplexed.c and plan/slices.c have it. */
static bool can_be(const struct sp_solver_request *want, int pp, int n)
{
    return !is_shared(want) || (n >= 2 && n >= pp - 1 && n + (pp - 1) * (pp - 1) <= SP_MAX_SLICES &&
                                want->seq / n >= SP_TOKENS_OF_PART * pp);
}

/* The i-th number of those tried: all, or as many in equal ratios. */
static int slices_at(int least, int most, int i)
{
    if (most - least < TRIES)
        return least + i;
    return (int)lround(least * pow((double)most / least, (double)i / (TRIES - 1)));
}

/* Tries the slices of a layout of stages; how many are in best[most] then. */
static int try_slices(const struct sp_solver_request *want, int sp, int pp, bool small,
                      struct sp_solution *best, int n, int most)
{
    int low, high, last = 0;

    range_of(want, sp, pp, small, &low, &high);
    for (int i = 0; i < TRIES && slices_at(low, high, i) <= high; i++) {
        struct sp_solution s = {.sp = sp, .pp = pp, .n = slices_at(low, high, i)};
        int err;

        if (s.n == last || !can_be(want, pp, s.n))
            continue;
        last = s.n;
        err = try_layout(want, &s);
        if (err)
            return err;
        n = insert(best, n, most, &s);
    }
    return n;
}

/* Stages of `sp` devices each; 0: it cannot be. */
static int stages_of(const struct sp_solver_request *want, int sp)
{
    int pp = want->cluster.nodes * want->cluster.per_node / sp;

    return want->cluster.per_node % sp || pp > want->model->layers ||
                   (want->stages && pp != want->stages)
               ? 0
               : pp;
}

int sp_solver_layouts(const struct sp_solver_request *want)
{
    int n = 0;

    for (int sp = 1; sp <= want->cluster.per_node; sp++)
        n += stages_of(want, sp) > 0;
    return n;
}

int sp_solve(const struct sp_solver_request *want, struct sp_solution *best, int most)
{
    int n = 0;

    for (int small = 0; small < 2; small++) {
        if (small && (n == 0 || best[0].fits || want->slices))
            break;
        for (int sp = 1; n >= 0 && sp <= want->cluster.per_node; sp++) {
            int pp = stages_of(want, sp);

            if (pp)
                n = try_slices(want, sp, pp, small, best, n, most);
        }
    }
    return n;
}
