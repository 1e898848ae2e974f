/*
 * Compares the simulation of a step with an independent one, which knows no actions and no queues,
 * only the dependencies of ops, and goes through time unit by unit.
 */
#include "policies/common.h"
#include "plan/predict.h"
#include "policies/simulation/costs.h"
#include "policies/simulation/index.h"
#include "policies/simulation/listsim.h"
#include <math.h>

static void simulate(const struct sp_plan *plan, const struct sp_costs *costs, struct sp_times *t)
{
    struct sp_prediction p;

    assert_int_equal(sp_predict_costs(plan, costs, &p), 0);
    *t = p.times;
    p.times = (struct sp_times){0};
    sp_prediction_destroy(&p);
}

/* ---- the other simulation --------------------------------------------------------------------- */

enum { MOST = 4096, STAGES = 8, NEVER = 1 << 30 };

struct letter {
    int from, to, left, read; /* ops: their places in the programs of the two */
    bool beside, sent;
    int ready, arrives;
};

struct brute {
    const struct sp_plan *plan;
    const struct sp_costs *costs;
    struct letter letter[MOST];
    int n, next[STAGES], end[STAGES], out[STAGES], in[STAGES];
};

/* Writes one letter for each op that waits for an op of another stage; a stage gets an op's result
 * once. */
static void write_letters(struct brute *b)
{
    const struct sp_plan *plan = b->plan;
    struct sp_index ix;
    int bad;

    assert_int_equal(sp_index_create(plan, &ix, &bad, &bad), 0);
    for (int s = 0; s < plan->layout.stages; s++)
        for (int k = 0; k < plan->programs[s].n; k++) {
            struct sp_dep deps[SP_MAX_DEPS];
            int n = plan->family->deps(&plan->layout, s, &plan->programs[s].ops[k], deps);

            for (int i = 0; i < n; i++) {
                assert_true(b->n < MOST);
                if (deps[i].stage != s)
                    b->letter[b->n++] = (struct letter){.from = deps[i].stage,
                                                        .to = s,
                                                        .left = sp_index_place(&ix, plan, &deps[i]),
                                                        .read = k,
                                                        .beside = deps[i].beside,
                                                        .ready = NEVER,
                                                        .arrives = NEVER};
            }
        }
    sp_index_destroy(&ix);
}

static bool may_begin(const struct brute *b, int stage, int now)
{
    const struct sp_program *prog = &b->plan->programs[stage];
    int k = b->next[stage];

    if (k == prog->n || b->end[stage] > now)
        return false;
    for (int i = 0; i < b->n; i++) {
        const struct letter *l = &b->letter[i];

        if (l->to == stage && (l->read == k || (prog->ops[k].overlap && l->read == k + 1)) &&
            l->arrives > now)
            return false;
    }
    return true;
}

static void begin(struct brute *b, int stage, int now)
{
    const struct sp_op *op = &b->plan->programs[stage].ops[b->next[stage]];
    int ops = op->overlap ? 2 : 1;

    b->end[stage] = now;
    for (int k = 0; k < ops; k++)
        b->end[stage] += (int)sp_op_cost(b->plan, b->costs, stage, op + k);
    for (int i = 0; i < b->n; i++) {
        struct letter *l = &b->letter[i];

        if (l->from == stage && l->left >= b->next[stage] && l->left < b->next[stage] + ops)
            l->ready = l->beside ? now : b->end[stage];
    }
    b->next[stage] += ops;
}

/* True if another letter is to use one of this letter's ports first. */
static bool is_behind(const struct brute *b, const struct letter *l)
{
    for (int i = 0; i < b->n; i++) {
        const struct letter *o = &b->letter[i];

        if (!o->sent && o != l && (o->from == l->from || o->to == l->to) &&
            (o->ready < l->ready || (o->ready == l->ready && o->from < l->from)))
            return true;
    }
    return false;
}

static bool post(struct brute *b, int now)
{
    int slices = b->plan->layout.slices;
    bool sent = false;

    for (int i = 0; i < b->n; i++) {
        struct letter *l = &b->letter[i];

        if (l->sent || l->ready > now || b->out[l->from] > now || b->in[l->to] > now ||
            (b->costs->wire > 0 && is_behind(b, l)))
            continue;
        l->sent = sent = true;
        l->arrives = now + (int)b->costs->wire / slices;
        b->out[l->from] = b->in[l->to] = l->arrives;
        l->arrives += (int)b->costs->comm;
    }
    return sent;
}

static int play(struct brute *b)
{
    int end = 0, left = sp_plan_ops(b->plan);

    for (int now = 0; left > 0; now++) {
        assert_true(now < 1 << 20);
        for (bool again = true; again;) {
            again = post(b, now);
            for (int s = 0; s < b->plan->layout.stages; s++) {
                int before = b->next[s];

                if (!may_begin(b, s, now))
                    continue;
                begin(b, s, now);
                left -= b->next[s] - before;
                end = b->end[s] > end ? b->end[s] : end;
                again = true;
            }
        }
    }
    return end;
}

/* ---- cases ------------------------------------------------------------------------------------ */

static int draw(unsigned *seed, int below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (int)(*seed >> 8) % below;
}

static struct sp_costs draw_costs(const struct sp_plan *plan, unsigned *seed)
{
    int scale = plan->layout.slices * plan->layout.chunks * 2;
    struct sp_costs costs = {.f = scale * (1 + draw(seed, 4)),
                             .b = scale * (1 + draw(seed, 5)),
                             .w = scale * draw(seed, 3),
                             .comm = draw(seed, 4),
                             .wire = plan->layout.slices * draw(seed, 5)};

    costs.parts = (struct sp_part_costs){
        .pre = 1 + draw(seed, 3), .attn = draw(seed, 5), .post = 1 + draw(seed, 3), .backward = 2};
    return costs;
}

TEST(every_schedule)
{
    static const struct {
        const char *name;
        int slices, chunks;
    } cases[] = {
        {"naive", 1, 0},     {"gpipe", 1, 0},    {"1f1b", 1, 0},   {"interleaved", 1, 2},
        {"bfs", 1, 2},       {"zb1p", 1, 0},     {"zb2p", 1, 0},   {"zbv", 1, 0},
        {"v-half", 1, 0},    {"v-min", 1, 0},    {"1f1b-v", 1, 0}, {"dualpipe", 1, 0},
        {"dualpipev", 1, 0}, {"chimera", 1, 0},  {"hanayo", 1, 2}, {"adapipe", 1, 0},
        {"seq1f1b", 4, 0},   {"terapipe", 4, 0}, {"helix", 1, 0},  {"helix:fold=1", 1, 0},
        {"sppo", 4, 0},
    };
    static struct brute brute;
    unsigned seed = 7;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int p = 2; p <= 4; p += 2)
            for (int k = 0; k < 6; k++) {
                struct sp_layout lay = {.stages = p,
                                        .micro_batches = 2 * p,
                                        .chunks = cases[i].chunks,
                                        .slices = cases[i].slices,
                                        .layers = 2 * p,
                                        .options = ""};
                struct sp_plan plan;
                struct sp_costs costs;
                struct sp_times t;
                int want;

                assert_int_equal(sp_plan_create(cases[i].name, &lay, &plan), 0);
                costs = draw_costs(&plan, &seed);
                memset(&brute, 0, sizeof brute);
                brute.plan = &plan;
                brute.costs = &costs;
                write_letters(&brute);
                want = play(&brute);
                simulate(&plan, &costs, &t);
                if (fabs(t.makespan - want) > 1e-6)
                    fail_msg("%s p=%d f=%g b=%g w=%g comm=%g wire=%g: %g, apart %d", cases[i].name,
                             p, costs.f, costs.b, costs.w, costs.comm, costs.wire, t.makespan,
                             want);
                sp_times_destroy(&t);
                sp_plan_destroy(&plan);
            }
}

/* HelixPipe with messages that occupy the wire for their whole time: the makespan is that of
 * another simulation. */
TEST(helix_on_a_wire)
{
    struct sp_layout lay = {
        .stages = 8, .micro_batches = 16, .slices = 1, .layers = 32, .options = ""};
    struct sp_costs costs;
    struct sp_plan plan;
    struct sp_times t;

    assert_int_equal(sp_plan_create("helix", &lay, &plan), 0);
    assert_int_equal(sp_costs_parse("pre=1,attn=3,post=2,wire=3", &plan, &costs), 0);
    simulate(&plan, &costs, &t);
    assert_true(t.makespan == 1371);
    sp_times_destroy(&t);
    sp_plan_destroy(&plan);
}

/* If weights travel in no time, the remaining waits are those of a run. */
TEST(weights_that_take_no_time)
{
    static const char *const names[] = {"weipipe-naive", "weipipe", "wzb1", "wzb2"};

    for (int i = 0; i < 4; i++)
        for (int p = 2; p <= 6; p += 2)
            for (int rounds = 1; rounds <= 3; rounds++) {
                struct sp_costs costs = {.f = 2, .b = 3, .w = 1};
                struct sp_plan plan;
                struct sp_times t, run;
                char why[128];

                make_plan(names[i], p, p * rounds, &plan);
                simulate(&plan, &costs, &t);
                assert_int_equal(sp_listsim(&plan, &costs, SP_RUN, &run, why, sizeof why), 0);
                if (fabs(t.makespan - run.makespan) > 1e-9)
                    fail_msg("%s p=%d rounds=%d: %g, not %g", names[i], p, rounds, t.makespan,
                             run.makespan);
                sp_times_destroy(&t);
                sp_times_destroy(&run);
                sp_plan_destroy(&plan);
            }
}

/* The makespan of so many data-parallel pipelines whose equal stages are neighbours, as in the
 * ranks of a run. */
static double side_by_side(const struct sp_plan *plan, const struct sp_machine *machine,
                           const struct sp_model *model, int pipelines)
{
    struct sp_shape shape;
    struct sp_predict_request request = {
        .plan = plan, .shape = &shape, .terms = {.machine = machine, .devices = 1, .every = 1}};
    struct sp_prediction p;
    double makespan;

    sp_shape_init(&shape, model, 1, 1024, plan->layout.micro_batches);
    sp_shape_share(&shape, pipelines, false);
    assert_int_equal(sp_predict(&request, &p), 0);
    makespan = p.times.makespan;
    sp_prediction_destroy(&p);
    return makespan;
}

TEST(pipelines_fill_nodes)
{
    struct sp_machine machine;
    struct sp_model model;
    struct sp_layout lay = layout(4, 8);
    struct sp_plan plan;
    double alone, inside, apart;

    assert_int_equal(sp_machine_load("a800-nvlink-eth", &machine), 0);
    assert_int_equal(sp_model_load("gpt2-124m", &model), 0);
    assert_int_equal(machine.devices_per_node, 8);
    lay.layers = model.layers;
    assert_int_equal(sp_plan_create("1f1b", &lay, &plan), 0);
    alone = side_by_side(&plan, &machine, &model, 1);
    inside = side_by_side(&plan, &machine, &model, 2);
    apart = side_by_side(&plan, &machine, &model, 4);
    assert_true(fabs(inside - alone) < 1e-2 * alone);
    assert_true(apart > 1.1 * inside); /* the third stage is in another node */
    sp_plan_destroy(&plan);
}
