#include "plan/recompute.h"
#include "plan/memory.h"
#include "policies/lowering/parking.h"
#include "policies/families/families.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* A choice of layers that recompute, being tried. */
struct trial {
    const struct sp_recompute_wish *wish;
    struct sp_recompute_chosen *best;
    enum sp_recompute mode;
    unsigned char *layer; /* [layers] */
    int again;            /* layers that recompute */
};

static int layers_of(const struct trial *t, int stage)
{
    const struct sp_plan *plan = t->wish->plan;
    int sum = 0, first, count;

    for (int c = 0; c < sp_chunks_of(plan); c++) {
        sp_chunk_layers(plan, t->wish->shape->model.layers, stage, c, &first, &count);
        sum += count;
    }
    return sum;
}

/* Makes k of the layers of a stage recompute, evenly spread. */
static void spread_stage(struct trial *t, int stage, int k)
{
    const struct sp_plan *plan = t->wish->plan;
    int layers = t->wish->shape->model.layers, n = layers_of(t, stage);

    for (int l = 0, i = 0; l < layers; l++) {
        bool held = false;

        for (int c = 0; c < sp_chunks_of(plan); c++) {
            int first, count;

            sp_chunk_layers(plan, layers, stage, c, &first, &count);
            held |= l >= first && l < first + count;
        }
        if (held && (i + 1) * k / n > i * k / n)
            t->layer[l] = (unsigned char)t->mode;
        i += held;
    }
}

/* Spreads the layers of all stages; a layer that two stages have recomputes if either wants it. */
static void spread(struct trial *t, const int *k)
{
    memset(t->layer, SP_RECOMPUTE_NONE, (size_t)t->wish->shape->model.layers);
    for (int s = 0; s < t->wish->plan->layout.stages; s++)
        spread_stage(t, s, k[s]);
    t->again = 0;
    for (int l = 0; l < t->wish->shape->model.layers; l++)
        t->again += t->layer[l] != SP_RECOMPUTE_NONE;
}

static int most_layers(const struct trial *t)
{
    int most = 0;

    for (int s = 0; s < t->wish->plan->layout.stages; s++)
        most = layers_of(t, s) > most ? layers_of(t, s) : most;
    return most;
}

/* ---- one choice ------------------------------------------------------------------------------ */

static struct sp_op_terms terms_of(const struct trial *t)
{
    return (struct sp_op_terms){.machine = t->wish->machine,
                                .devices = t->wish->devices,
                                .recompute = t->mode,
                                .every = 1,
                                .process = t->wish->process};
}

/* The evictions that a stage with `limit` bytes may choose from. */
static struct sp_offload_request request_of(const struct trial *t, int64_t limit)
{
    const struct sp_recompute_wish *w = t->wish;
    struct sp_op_terms terms = terms_of(t);
    struct sp_offload_request want = sp_offload_request(&terms, w->shape, w->offload, limit);

    want.keys = w->keys;
    want.peers = w->peers;
    return want;
}

/* Puts evictions of the other layers into the plan. 0, -ENOMEM or -EINVAL: that is not enough. */
static int let_leave(const struct trial *t)
{
    const struct sp_recompute_wish *w = t->wish;
    struct sp_offload_request want = request_of(t, w->limit);
    struct sp_offload offload = {0};
    struct sp_offload_lack lack;
    int err = sp_offload_try(w->plan, w->shape, &want, &offload, &lack);

    err = err ? err : sp_offload_apply(&offload, w->shape, w->plan);
    sp_offload_destroy(&offload);
    return err;
}

static int predict(struct trial *t, double *step_ms)
{
    const struct sp_recompute_wish *w = t->wish;
    struct sp_predict_request request = {.plan = w->plan,
                                         .shape = w->shape,
                                         .terms = terms_of(t),
                                         .worker = w->worker,
                                         .tier = sp_offload_tier(w->machine, w->devices)};
    struct sp_prediction p;
    int err = sp_predict(&request, &p);

    if (err)
        return err;
    *step_ms = p.step_ms;
    sp_prediction_destroy(&p);
    return 0;
}

/* True if a step is shorter than the best so far. */
static bool is_better(const struct trial *t, double step_ms)
{
    const struct sp_recompute_chosen *best = t->best;

    return !best->tried || step_ms < best->step_ms * (1 - 1e-9);
}

/* Predicts the step, and keeps the choice if it is the best so far. */
static int weigh(struct trial *t, bool leaves)
{
    struct sp_recompute_chosen *best = t->best;
    double step_ms;
    int err = predict(t, &step_ms);

    if (err)
        return err;
    if (is_better(t, step_ms)) {
        best->step_ms = step_ms;
        best->mode = t->again ? t->mode : SP_RECOMPUTE_NONE;
        best->layers = t->again;
        best->leaves = leaves;
        memcpy(best->layer, t->layer, (size_t)t->wish->shape->model.layers);
    }
    best->tried++;
    return 0;
}

/* Numbers of recomputing layers of each stage: the most that proved too few, the fewest that proved
 * enough, and the next to try. */
struct need {
    int *few, *enough, *k; /* [stages] */
    struct sp_memory *memory;
};

/* A lower bound of the bytes of a stage with k recomputing layers. */
static int64_t least_of_stage(struct trial *t, int stage, int k)
{
    memset(t->layer, SP_RECOMPUTE_NONE, (size_t)t->wish->shape->model.layers);
    spread_stage(t, stage, k);
    return sp_memory_least(t->wish->plan, t->wish->shape, t->mode, 1, stage);
}

/* Bytes that recomputing the k-th layer saves; for k = 0, those of the first. */
static int64_t saving_of(struct trial *t, int stage, int k)
{
    int64_t saves =
        least_of_stage(t, stage, k > 0 ? k - 1 : 0) - least_of_stage(t, stage, k > 0 ? k : 1);

    return saves > 0 ? saves : 1;
}

/* Starts from the fewest layers that the lower bound allows. False: all layers of the stage would
 * not suffice in this mode. */
static bool start(struct trial *t, struct need *need, int stage)
{
    int n = layers_of(t, stage), *few = &need->few[stage], enough = n + 1;

    *few = -1;
    while (enough - *few > 1) {
        int k = *few < 0 ? 0 : (*few + enough) / 2;

        if (least_of_stage(t, stage, k) <= t->wish->limit)
            enough = k;
        else
            *few = k;
        if (t->mode == SP_RECOMPUTE_NONE)
            break;
    }
    need->k[stage] = enough;
    need->enough[stage] = n + 1;
    return enough <= n;
}

/* Chooses the next k[stage] to try, given that the stage holds `bytes` with the current one. False:
 * the search has ended; k[stage] is what the stage needs, or even all layers are too few. */
static bool go_on(struct trial *t, struct need *need, int stage, int64_t bytes)
{
    int *few = &need->few[stage], *enough = &need->enough[stage], *k = &need->k[stage];
    int64_t saves = saving_of(t, stage, *k), over = bytes - t->wish->limit, more;

    if (over > 0 && *enough <= *k) /* changes on other stages made it more */
        *enough = layers_of(t, stage) + 1;
    *(over > 0 ? few : enough) = *k;
    more = over > 0 ? (over + saves - 1) / saves : over / saves;
    if (over <= 0 && *k - *few > 1 && more == 0) /* one layer less would be too few */
        *few = *k - 1;
    if (*enough - *few <= 1) {
        *k = *enough;
        return false;
    }
    *k = more >= *enough - *k ? *enough - 1 : *k + (int)more;
    *k = *k > *few ? *k : *few + 1;
    return true;
}

/* Tries numbers of layers on all stages, until each has what it needs. 0; 1: some stage cannot; or
 * -errno. */
static int find(struct trial *t, struct need *need)
{
    const struct sp_recompute_wish *w = t->wish;
    bool goes_on = true;

    while (goes_on) {
        int err;

        goes_on = false;
        spread(t, need->k);
        err = sp_memory_of_plan(w->plan, w->shape, t->mode, 1, need->memory);
        if (err)
            return err;
        for (int s = 0; s < w->plan->layout.stages; s++) {
            goes_on |= go_on(t, need, s, sp_memory_sum(&need->memory[s]));
            if (need->enough[s] > layers_of(t, s) && need->few[s] >= layers_of(t, s))
                return 1;
            if (t->mode == SP_RECOMPUTE_NONE && need->k[s] > 0)
                return 1;
        }
    }
    return 0;
}

/* Finds the layers that every stage needs, where more of them hold less. Stops early if the step is
 * sure to be slower than the best. */
static int find_all(struct trial *t, struct need *need)
{
    int stages = t->wish->plan->layout.stages, err;
    double step_ms;

    for (int s = 0; s < stages; s++)
        if (!start(t, need, s))
            return 0;
    spread(t, need->k);
    if (t->best->tried) {
        err = predict(t, &step_ms);
        if (err || !is_better(t, step_ms))
            return err;
    }
    err = find(t, need);
    if (err)
        return err < 0 ? err : 0;
    spread(t, need->k);
    return weigh(t, false);
}

static int find_need(struct trial *t)
{
    size_t stages = (size_t)t->wish->plan->layout.stages;
    struct need need = {.few = calloc(3 * stages, sizeof *need.few),
                        .memory = calloc(stages, sizeof *need.memory)};
    int err = -ENOMEM;

    if (need.few && need.memory) {
        need.enough = need.few + stages;
        need.k = need.enough + stages;
        err = find_all(t, &need);
    }
    free(need.few);
    free(need.memory);
    return err;
}

/* Makes k layers of the stage with most of them recompute, and as large a part of every other
 * stage's; the rest may be evicted. */
static int leave(struct trial *t, int k, int most)
{
    int stages = t->wish->plan->layout.stages, err;
    int *each = calloc((size_t)stages, sizeof *each);

    if (!each)
        return -ENOMEM;
    for (int s = 0; s < stages; s++)
        each[s] = k * layers_of(t, s) / most;
    spread(t, each);
    free(each);
    err = let_leave(t);
    err = err ? err : weigh(t, true);
    sp_offload_undo(t->wish->plan);
    return err == -EINVAL ? 0 : err;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static bool refused(const struct trial *t)
{
    const struct sp_train_wish wish = {
        .recompute = t->mode, .recompute_text = sp_recompute_name(t->mode), .partition = "even"};
    bool quiet = sp_error_quiet(true), refuses = sp_plan_refuse(t->wish->plan, &wish);

    sp_error_quiet(quiet);
    return refuses;
}

/* Bytes of the fullest stage with all its layers in the mode, and everything evicted that may
 * leave. */
static int64_t least_of(const struct trial *t)
{
    const struct sp_recompute_wish *w = t->wish;
    struct sp_offload_request want = request_of(t, 1);
    struct sp_offload offload = {0};
    struct sp_offload_lack lack;
    struct sp_memory most;

    if (!w->offload) {
        return sp_memory_fullest(w->plan, w->shape, t->mode, 1, &most, NULL) ? INT64_MAX
                                                                             : sp_memory_sum(&most);
    }
    sp_offload_try(w->plan, w->shape, &want, &offload, &lack); /* one byte never fits */
    sp_offload_destroy(&offload);
    return sp_memory_sum(&lack.memory) + lack.least;
}

/* Takes the mode that needs least, if nothing fits. Tensors to park were chosen for layers that keep
 * all. */
static void take_least(struct trial *t)
{
    struct sp_parking *parking = t->wish->plan->parking;
    int64_t least = INT64_MAX;

    t->wish->plan->recompute = NULL;
    for (int mode = SP_RECOMPUTE_NONE; mode <= SP_RECOMPUTE_FULL; mode++) {
        int64_t bytes;

        t->mode = (enum sp_recompute)mode;
        if (parking)
            parking->recompute = t->mode;
        bytes = refused(t) ? INT64_MAX : least_of(t);
        if (bytes < least) {
            least = bytes;
            t->best->mode = t->mode;
        }
    }
}

static int try_mode(struct trial *t)
{
    enum { STEPS = 16 }; /* for stages of very many layers */
    int most = most_layers(t), step = (most + STEPS - 1) / STEPS, first, err;

    if (refused(t))
        return 0;
    memset(t->layer, SP_RECOMPUTE_NONE, (size_t)t->wish->shape->model.layers);
    err = find_need(t);
    first = t->mode == SP_RECOMPUTE_NONE ? 0 : step;
    for (int k = first; !err && t->wish->offload && k <= most; k += step) {
        err = leave(t, k, most);
        if (t->mode == SP_RECOMPUTE_NONE)
            break;
    }
    return err;
}

int sp_recompute_choose(const struct sp_recompute_wish *wish, struct sp_recompute_chosen *chosen)
{
    size_t layers = (size_t)wish->shape->model.layers;
    struct trial t = {.wish = wish, .best = chosen, .layer = calloc(layers, 1)};
    int err = 0;

    *chosen = (struct sp_recompute_chosen){.layer = calloc(layers, 1)};
    if (!t.layer || !chosen->layer)
        err = -ENOMEM;
    wish->plan->recompute = t.layer;
    for (int mode = SP_RECOMPUTE_NONE; !err && mode <= SP_RECOMPUTE_FULL; mode++) {
        t.mode = (enum sp_recompute)mode;
        err = try_mode(&t);
    }
    if (!err && !chosen->tried) {
        take_least(&t);
        err = -EINVAL;
    }
    wish->plan->recompute = NULL;
    free(t.layer);
    if (err || !chosen->layers) {
        free(chosen->layer);
        chosen->layer = NULL;
    }
    return err;
}
