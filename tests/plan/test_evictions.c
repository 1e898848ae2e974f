/*
 * Evictions as actions and as time. Every planned eviction is in the lowered program once and
 * fetched once, between the planned ops. The simulation is compared with an independent one that
 * knows no actions: it goes through the times of ops and transfers until nothing changes.
 */
#include "policies/common.h"
#include "plan/offload/offload.h"
#include "plan/simulation/simulate.h"
#include "plan/slices.h"
#include "policies/lowering/evictions.h"
#include "policies/lowering/lowering.h"
#include "policies/simulation/costs.h"
#include "policies/simulation/index.h"
#include <math.h>

static unsigned seed = 5;

static int draw(int below)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)(seed >> 8) % below;
}

/* A plan that evicts all tensors that may be evicted. */
struct offloaded {
    struct sp_plan plan;
    struct sp_shape shape;
    struct sp_offload offload;
};

static void set_up_again(const char *name, int p, int m, int slices, enum sp_offload_keys keys,
                         enum sp_recompute recompute, struct offloaded *o)
{
    struct sp_model model = {.name = "test",
                             .arch = SP_ARCH_GPT2,
                             .layers = 3 * p + 2,
                             .hidden = 24,
                             .heads = 4,
                             .kv_heads = 4,
                             .head_dim = 6,
                             .mlp = 96,
                             .vocab = 61,
                             .positions = 256};
    struct sp_offload_request want = {.mode = SP_OFFLOAD_FULL,
                                      .keys = keys,
                                      .recompute = recompute,
                                      .every = 1,
                                      .speed = {1e-9, 2e-9},
                                      .rates = {1e6, 1e6}};
    struct sp_layout lay = layout(p, m);

    lay.layers = model.layers;
    lay.chunks = 0;
    lay.slices = slices;
    *o = (struct offloaded){0};
    assert_int_equal(sp_plan_create(name, &lay, &o->plan), 0);
    sp_shape_init(&o->shape, &model, 1, 256, m);
    if (slices > 1)
        assert_int_equal(sp_plan_cut(&o->plan, &o->shape, "flops", NULL), 0);
    assert_int_equal(sp_offload_create(&o->plan, &o->shape, &want, &o->offload), 0);
    assert_int_equal(sp_offload_apply(&o->offload, &o->shape, &o->plan), 0);
}

static void set_up(const char *name, int p, int m, int slices, enum sp_offload_keys keys,
                   struct offloaded *o)
{
    set_up_again(name, p, m, slices, keys, SP_RECOMPUTE_NONE, o);
}

static void tear_down(struct offloaded *o)
{
    sp_offload_destroy(&o->offload);
    sp_plan_destroy(&o->plan);
}

/* ---- actions ---------------------------------------------------------------------------------- */

enum { MOST = 4096, STAGES = 4 };

/* By stage: the last RUN. By unit: the state of its tensor. */
struct seen {
    const struct sp_plan *plan;
    int run[STAGES], evicted[STAGES][MOST], fetched[STAGES][MOST], n;
    int64_t bytes[STAGES], streamed_in[STAGES], streamed_out[STAGES];
    int early[STAGES]; /* the lowest op that the next RUN must be, from the last FETCH */
};

static void see(void *arg, const struct sp_action *a)
{
    struct seen *seen = arg;
    const struct sp_eviction *e = a->eviction;
    int s = a->stage;

    if (a->kind == SP_ACTION_RUN) {
        assert_true(seen->early[s] < 0 || a->index == seen->early[s]);
        seen->run[s] = a->index;
        seen->early[s] = -1;
    } else if (e && e->unit < 0) { /* fetched before its op, or evicted after it */
        bool in = a->kind == SP_ACTION_FETCH;

        assert_true(a->tensor.kind == SP_TENSOR_KV && a->bytes > 0 && a->bytes == e->bytes);
        assert_true(a->index == (in ? e->returns.index : e->leaves.index));
        assert_true(in ? a->index > seen->run[s] : a->index == seen->run[s]);
        *(in ? &seen->streamed_in[s] : &seen->streamed_out[s]) += a->bytes;
        seen->early[s] = in ? a->index : -1;
    } else if (a->kind == SP_ACTION_EVICT) {
        assert_true(e->leaves.index == seen->run[s] && !seen->evicted[s][e->unit]++);
        assert_true(e->gone.index > e->leaves.index && e->bytes == a->bytes && a->bytes > 0);
        assert_true(a->tensor.mb == seen->plan->programs[s].ops[a->index].mb ||
                    seen->plan->programs[s].ops[a->index].overlap);
        seen->bytes[s] += a->bytes;
        seen->n++;
    } else if (a->kind == SP_ACTION_FETCH) {
        assert_true(seen->evicted[s][e->unit] == 1 && !seen->fetched[s][e->unit]++);
        assert_true(e->returns.index > seen->run[s] && e->returns.index >= e->gone.index);
        assert_true(e->used.index >= e->returns.index);
        seen->early[s] = e->returns.index;
        seen->n--;
    }
}

static const struct {
    const char *name;
    int slices;
    enum sp_offload_keys keys;
} cases[] = {{"sppo", 8, SP_KEYS_LEAVE},         {"seq1f1b", 5, SP_KEYS_LEAVE},
             {"terapipe", 6, SP_KEYS_LEAVE},     {"sppo:multiplex", 9, SP_KEYS_LEAVE},
             {"sppo", 4, SP_KEYS_STAY},          {"seq1f1b", 3, SP_KEYS_STAY},
             {"terapipe", 4, SP_KEYS_STAY},      {"gpipe", 1, SP_KEYS_STAY},
             {"1f1b", 1, SP_KEYS_STAY},          {"zb1p", 1, SP_KEYS_STAY},
             {"zbv", 1, SP_KEYS_STAY},           {"interleaved", 1, SP_KEYS_STAY},
             {"dualpipe", 1, SP_KEYS_STAY},      {"hanayo", 1, SP_KEYS_STAY},
             {"chimera", 1, SP_KEYS_STAY},       {"sppo:multiplex", 4, SP_KEYS_STAY},
             {"dualpipev", 1, SP_KEYS_STAY},     {"helix", 1, SP_KEYS_STAY},
             {"helix:bounded", 4, SP_KEYS_STAY}, {"helix:ship=attention", 2, SP_KEYS_STAY}};

enum { CASES = sizeof cases / sizeof *cases };

TEST(actions)
{
    static struct seen seen;
    int moved = 0, streams = 0;

    for (int i = 0; i < CASES; i++)
        for (int p = 2; p <= STAGES; p += 2) {
            struct sp_lowering l;
            struct offloaded o;

            set_up(cases[i].name, p, 2 * p, cases[i].slices, cases[i].keys, &o);
            memset(&seen, 0, sizeof seen);
            seen.plan = &o.plan;
            for (int s = 0; s < p; s++)
                seen.run[s] = seen.early[s] = -1;
            assert_int_equal(sp_lowering_create(&o.plan, &o.shape, p, &l), 0);
            assert_int_equal(sp_lower_step(&l, see, &seen), 0);
            assert_int_equal(seen.n, 0);
            for (int s = 0; s < p; s++) {
                const struct sp_eviction_plan *a = &o.offload.evictions[s];

                assert_true(seen.bytes[s] == a->bytes);
                assert_true(seen.streamed_in[s] == a->streamed_in &&
                            seen.streamed_out[s] == a->streamed_out);
                streams += a->streamed_in > 0;
                moved += seen.bytes[s] > 0;
            }
            sp_lowering_destroy(&l);
            tear_down(&o);
        }
    assert_true(moved > 50 && streams > 5);
    printf("%d stages evict something\n", moved);
}

/* Parts of layers keep the tensors of their ops, each once, even one that two of them share. Sizes
 * are whole pages. */
TEST(parts)
{
    static const char *const names[] = {"helix", "helix:qkv=activations", "helix:ship=attention",
                                        "helix:bounded"};

    for (int i = 0; i < 2 * 4 * 4; i++) {
        enum sp_recompute mode = i % 2 ? SP_RECOMPUTE_FULL : SP_RECOMPUTE_NO_ATTENTION;
        int p = 1 + i / 8, leaves = 0;
        struct offloaded o;

        set_up_again(names[i / 2 % 4], p, 2 * p, 1, SP_KEYS_STAY, mode, &o);
        for (int s = 0; s < p; s++) {
            const struct sp_eviction_plan *a = &o.offload.evictions[s];
            const struct sp_program *prog = &o.plan.programs[s];
            int64_t kept = 0, units = 0;

            for (int k = 0; k < prog->n; k++)
                if (prog->ops[k].pass == SP_F)
                    kept += sp_stash_of_op(&o.plan, &o.shape, mode, 1, s, &prog->ops[k]);
            for (int u = 0; u < a->n_units; u++) {
                for (int t = 0; t < SP_UNIT_TENSORS; t++)
                    units += a->units[u].bytes[t];
                units += a->units[u].stays;
                leaves += a->units[u].out != 0;
                assert_true(!a->units[u].out || a->units[u].back > a->units[u].gone);
            }
            assert_true(units == kept && kept > 0);
        }
        assert_true(leaves > 0);
        tear_down(&o);
    }
}

/* ---- times ------------------------------------------------------------------------------------ */

/* Bytes a unit of time, each way. */
struct tier {
    double write, read;
    int stages;
};

static struct sp_route tier_route(const void *arg, const struct sp_step_message *m)
{
    const struct tier *t = arg;
    bool out = m->kind == SP_ACTION_EVICT;

    if (!sp_step_message_is_move(m))
        return (struct sp_route){.out = -1, .in = -1};
    return (struct sp_route){.out = 2 * m->from + out,
                             .in = 2 * m->from + out,
                             .busy = (double)m->bytes / (out ? t->write : t->read)};
}

struct apart {
    const struct sp_plan *plan;
    const struct sp_costs *costs;
    const struct tier *tier;
    struct sp_index ix;
    double start[STAGES][MOST], end[STAGES][MOST], written[STAGES][MOST], fetched[STAGES][MOST];
};

static double length_of(const struct apart *x, int s, int k)
{
    const struct sp_op *op = &x->plan->programs[s].ops[k];
    double sum = sp_op_cost(x->plan, x->costs, s, op);

    return op->overlap ? sum + sp_op_cost(x->plan, x->costs, s, op + 1) : sum;
}

static double moment(const struct apart *x, int s, struct sp_moment m)
{
    return x->start[s][m.index] + (double)m.part * length_of(x, s, m.index);
}

/* One after the other. */
static void pass(const int *order, const double *ready, const double *busy, double *done, int n)
{
    double free_at = 0;

    for (int i = 0; i < n; i++)
        free_at = done[order[i]] = fmax(free_at, ready[order[i]]) + busy[order[i]];
}

static void move(struct apart *x, int s)
{
    static double ready[MOST], busy[MOST];
    static int order[MOST];
    const struct sp_evictions *e = &x->plan->evictions[s];
    const struct sp_program *prog = &x->plan->programs[s];

    for (int i = 0; i < e->n; i++) {
        order[i] = i;
        ready[i] = moment(x, s, e->leaving[i].leaves);
        busy[i] = (double)e->leaving[i].bytes / x->tier->write;
    }
    pass(order, ready, busy, x->written[s], e->n);
    for (int i = 0; i < e->n; i++) {
        const struct sp_eviction *one = &e->leaving[i];
        int op = one->returns.index;

        ready[i] = op < one->used.index ? moment(x, s, one->returns)
                                        : x->end[s][op - 1 - (op > 1 && prog->ops[op - 2].overlap)];
        ready[i] = fmax(ready[i], x->written[s][i]);
        busy[i] = (double)one->bytes / x->tier->read;
    }
    pass(e->returning, ready, busy, x->fetched[s], e->n);
}

/* Computes the times of a unit of ops again; true if they changed. */
static bool run(struct apart *x, int s, int k, double free_at)
{
    const struct sp_program *prog = &x->plan->programs[s];
    const struct sp_evictions *e = &x->plan->evictions[s];
    int ops = prog->ops[k].overlap ? 2 : 1;
    double start = free_at, length = length_of(x, s, k);

    for (int i = k; i < k + ops; i++) {
        struct sp_dep deps[SP_MAX_DEPS];
        int n = x->plan->family->deps(&x->plan->layout, s, &prog->ops[i], deps);

        for (int d = 0; d < n; d++) {
            int place = sp_index_place(&x->ix, x->plan, &deps[d]);

            if (deps[d].stage != s)
                start = fmax(start, deps[d].beside ? x->start[deps[d].stage][place]
                                                   : x->end[deps[d].stage][place]);
        }
    }
    for (int i = 0; i < e->n; i++) {
        if (e->leaving[i].gone.index == k)
            start = fmax(start, x->written[s][i] - (double)e->leaving[i].gone.part * length);
        if (e->leaving[i].used.index == k)
            start = fmax(start, x->fetched[s][i] - (double)e->leaving[i].used.part * length);
    }
    if (start == x->start[s][k] && start + length == x->end[s][k])
        return false;
    for (int i = k; i < k + ops; i++) {
        x->start[s][i] = start;
        x->end[s][i] = start + length;
    }
    return true;
}

static double solve(struct apart *x)
{
    double end = 0;
    bool again = true;

    for (int rounds = 0; again; rounds++) {
        assert_true(rounds < 10000);
        again = false;
        for (int s = 0; s < x->plan->layout.stages; s++) {
            double free_at = 0;

            for (int k = 0; k < x->plan->programs[s].n;
                 k += x->plan->programs[s].ops[k].overlap ? 2 : 1) {
                again |= run(x, s, k, free_at);
                free_at = x->end[s][k];
                end = fmax(end, free_at);
            }
            move(x, s);
        }
    }
    return end;
}

/* Simulates the step of a plan whose evictions pass the tier. */
static void simulate(const struct offloaded *o, const struct sp_costs *costs,
                     const struct tier *tier, struct sp_times *t, struct sp_message_times *when)
{
    const struct sp_network network = {.ports = 2 * STAGES, .route = tier_route, .arg = tier};
    struct sp_step_messages messages;
    const struct sp_simulated_step step = {
        .plan = &o->plan, .costs = costs, .messages = &messages, .network = &network};

    assert_int_equal(sp_step_messages_create(&o->plan, &o->shape, &messages), 0);
    assert_int_equal(sp_simulate(&step, t, when), 0);
    sp_step_messages_destroy(&messages);
}

TEST(times)
{
    static struct apart x;
    double longest = 0;

    for (int i = 0; i < 3 * CASES; i++) {
        struct sp_costs costs = {
            .f = 16 + draw(9),
            .b = 16 + draw(19),
            .w = 8 + draw(9),
            .parts = {.pre = 1, .attn = 1 + draw(4), .post = 1 + draw(2), .backward = 2}};
        struct sp_message_times when;
        int p = 1 + draw(3), bad;
        struct sp_times t;
        struct tier tier;
        struct offloaded o;
        double want;

        if (!strcmp(cases[i % CASES].name,
                    "sppo:multiplex")) /* an assisting op reads layer by layer what the owner
                                    * computes */
            continue;
        p = strncmp(cases[i % CASES].name, "dualpipe", 8) &&
                    strcmp(cases[i % CASES].name, "chimera")
                ? p
                : 2;
        set_up(cases[i % CASES].name, p, 2 * p, cases[i % CASES].slices, SP_KEYS_STAY, &o);
        tier = (struct tier){200 + draw(2000), 200 + draw(2000), p};
        tier.write *= draw(3) ? 10 : 1;
        tier.read *= draw(3) ? 10 : 1;
        memset(&x, 0, sizeof x);
        x.plan = &o.plan;
        x.costs = &costs;
        x.tier = &tier;
        assert_int_equal(sp_index_create(&o.plan, &x.ix, &bad, &bad), 0);
        want = solve(&x);
        sp_index_destroy(&x.ix);
        simulate(&o, &costs, &tier, &t, &when);
        if (fabs(t.makespan - want) > 1e-6 * want)
            fail_msg("%s p=%d: %.6f, apart %.6f", cases[i % CASES].name, p, t.makespan, want);
        for (int s = 0; s < p; s++) {
            assert_true(when.stalled[s] >= 0 && when.stalled[s] <= t.makespan - t.busy[s] + 1e-6);
            longest = fmax(longest, when.stalled[s] / t.makespan);
        }
        sp_message_times_destroy(&when);
        sp_times_destroy(&t);
        tear_down(&o);
    }
    assert_true(longest > 0.5); /* some tiers are slow */
}

/* If the tier is too slow for the evictions, the stage waits for the rest of its transfers. */
TEST(stalls)
{
    struct sp_costs costs = {.f = 1, .b = 1, .w = 1};
    struct tier tier = {.stages = 1};
    struct offloaded o;

    set_up("sppo", 1, 1, 4, SP_KEYS_STAY, &o);
    for (int k = 0; k < 2; k++) {
        struct sp_message_times when;
        struct sp_times t;

        tier.write = tier.read = (double)o.offload.evictions[0].bytes / (k ? 1e-6 : 4);
        simulate(&o, &costs, &tier, &t, &when);
        if (k)
            assert_true(when.stalled[0] < 1e-5);
        else /* 4 out and 4 back, beside 3 of work that they overlap with at most */
            assert_true(when.stalled[0] > 8 - t.busy[0] && when.stalled[0] < 8);
        assert_true(fabs(t.makespan - t.busy[0] - when.stalled[0]) < 1e-9);
        sp_message_times_destroy(&when);
        sp_times_destroy(&t);
    }
    tear_down(&o);
}
