/*
 * Buffers and messages counted by classes of actions are those of a graph that is submitted whole. The FLOPs and the bytes
 * that the cost model prices, from closed forms, are those of the tasks and messages of the same graph.
 */
#include "codelets/task/codelet.h"
#include "graphs/count.h"
#include "graphs/create.h"
#include "plan/cost/op_times.h"
#include "plan/slices.h"
#include "policies/common.h"
#include "policies/families/ownership.h"
#include "sinks/count.h"
#include <math.h>

enum { DRAWS = 600 };

static int draw_below(uint64_t *state, int n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (uint64_t)n);
}

static const char *const schedules[] = {
    "naive",     "gpipe",         "1f1b",    "interleaved",   "helix:qkv=weights",
    "bfs",       "zb1p",          "zb2p",    "zbv",           "helix:qkv=published",
    "v-half",    "v-min",         "chimera", "hanayo",        "helix:ship=attention",
    "seq1f1b",   "helix",         "fsdp",    "helix:fold=1",  "slimpipe:exchange=off",
    "terapipe",  "slimpipe",      "weipipe", "pipedream-2bw", "weipipe-naive",
    "wzb1",      "wzb2",          "tawpipe", "pipedream",     "dualpipe",
    "dualpipev", "sppo:multiplex"};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

struct run {
    struct sp_params params;
    struct sp_shape shape;
    struct sp_graph_config cfg;
    struct sp_placement place;
};

/* A run of a plan, drawn; `even`: of a model that all members and stages have equal parts of: types, recomputation, groups. */
static void draw_run(uint64_t *seed, const struct sp_plan *plan, bool even, struct run *r)
{
    /* tensor, context; parts of odd models are not whole with the last ones */
    static const int groups[][2] = {{1, 1}, {1, 1}, {2, 1}, {1, 2}, {2, 2}, {1, 4}, {2, 4}, {4, 1}};
    const int *group = groups[draw_below(seed, even ? 8 : 5)];
    struct sp_model model =
        tiny(plan->layout.layers, draw_below(seed, 2) && plan->layout.stages == 1);
    int groups_of = sp_plan_groups(plan);
    int data = plan->family->facts.stashes || even ? 1 : 1 + draw_below(seed, 2);
    int tensor = groups_of & SP_GROUP_PARAMETERS ? group[0] : 1;
    int context = groups_of & SP_GROUP_TOKENS ? group[1] : 1;
    int every = 1, mlp_rows = 0, head_rows = 0;
    bool shared = plan->family->shared;
    int ulysses = context;

    model.kv_heads = 4 >> draw_below(seed, 3); /* fewer than members, too */
    mlp_rows = draw_below(seed, 3) ? 0 : 7;
    if (even) {
        model.mlp = model.vocab = 64;
        model.arch = draw_below(seed, 2) ? SP_ARCH_LLAMA : SP_ARCH_GPT2;
        model.qk_norm = model.arch == SP_ARCH_LLAMA && draw_below(seed, 2);
        every = 1 + draw_below(seed, 2);
        ulysses = shared ? context : context >> draw_below(seed, context == 4 ? 3 : context);
        head_rows = draw_below(seed, 3) ? 0 : 5;
    }
    assert_int_equal(sp_params_create(&model, &r->params), 0);
    r->cfg = (struct sp_graph_config){.params = &r->params,
                                      .plan = plan,
                                      .shape = &r->shape,
                                      .recompute = (enum sp_recompute)draw_below(seed, 4),
                                      .every = every};
    sp_shape_init(&r->shape, &model, 1 + draw_below(seed, 2), even ? 96 : 24,
                  plan->layout.micro_batches);
    sp_shape_cut(&r->shape, mlp_rows, head_rows);
    sp_shape_tensor(&r->shape, tensor, draw_below(seed, 2) && !shared);
    while (!sp_shape_divides_heads(&r->shape.held, ulysses))
        ulysses /= 2;
    if (shared) /* train refuses rings */
        context = ulysses;
    sp_shape_context(&r->shape, context, ulysses);
    if (shared)
        sp_shape_stripe(&r->shape);
    sp_shape_share(&r->shape, context * data,
                   draw_below(seed, plan->family->facts.by_layer ? 4 : 2));
    r->shape.dtype = draw_below(seed, 2) ? SP_BF16 : SP_F32;
    r->place =
        (struct sp_placement){.stages = plan->layout.stages, .pipelines = tensor * context * data};
    r->place.world.size = r->place.pipelines * r->place.stages;
}

static void compare(const struct sp_plan *plan, int zero, const struct sp_count *classes,
                    const struct sp_count *whole, int draw)
{
    for (int s = 0; s < plan->layout.stages; s++)
        if (classes[s].fixed != whole[s].fixed || classes[s].scratch != whole[s].scratch ||
            classes[s].buffers != whole[s].buffers || classes[s].sent != whole[s].sent ||
            classes[s].stashed != whole[s].stashed ||
            classes[s].beside > whole[s].beside + (int64_t)whole[s].stashed)
            fail_msg("draw %d, %s, zero %d, %d stages, %d micro-batches: stage %d has buffers of "
                     "%lld bytes, "
                     "by classes %lld; sent %lld, %lld; stashed %lld, %lld",
                     draw, plan->def->name, zero, plan->layout.stages, plan->layout.micro_batches,
                     s, (long long)whole[s].buffers, (long long)classes[s].buffers,
                     (long long)whole[s].sent, (long long)classes[s].sent,
                     (long long)whole[s].stashed, (long long)classes[s].stashed);
}

/* A plan of a schedule and a run of it, drawn; false: it is refused. */
static bool draw_plan(uint64_t *seed, const char *schedule, bool even, struct sp_plan *plan,
                      struct run *run)
{
    int stages = draw_below(seed, 2) ? 2 : 4, m = 8 << draw_below(seed, 3), err;
    bool slices = strstr(schedule, "seq") || strstr(schedule, "pipe:") ||
                  strstr(schedule, "tera") || strstr(schedule, "slim") || strstr(schedule, "sppo");
    struct sp_layout lay = layout(stages, m);
    bool quiet = sp_error_quiet(true);

    lay.chunks = 0;
    lay.layers = draw_below(seed, 4) ? 8 : 11;
    lay.slices = slices ? 2 + draw_below(seed, 3) : 1;
    lay.vocabulary_parallel = !slices && draw_below(seed, 4) == 0;
    err = sp_plan_create(schedule, &lay, plan);
    if (!err) {
        draw_run(seed, plan, even, run);
        err = sp_plan_refuse(
            plan, &(struct sp_train_wish){.recompute = run->cfg.recompute,
                                          .recompute_text = "",
                                          .partition = "even",
                                          .clips = !plan->family->facts.stashes,
                                          .grouped = run->shape.tensor * run->shape.context > 1});
        if (!err && plan->family->shared)
            err = sp_plan_cut(plan, &run->shape, draw_below(seed, 2) ? "length" : "flops", NULL);
        if (err) {
            sp_params_destroy(&run->params);
            sp_plan_destroy(plan);
        }
    }
    sp_error_quiet(quiet);
    return !err;
}

static void drop_plan(struct sp_plan *plan, struct run *run)
{
    sp_params_destroy(&run->params);
    sp_plan_destroy(plan);
}

TEST(test_classes)
{
    const struct sp_count_steps steps = {.n = SP_COUNT_STEADY};
    uint64_t seed = 51;
    int counted = 0, walked = 0, by[SCHEDULES][2] = {0};

    for (int i = 0; i < DRAWS; i++) {
        struct sp_count classes[4], whole[4];
        struct sp_plan plan;
        struct run run;
        int err;

        if (!draw_plan(&seed, schedules[i % SCHEDULES], false, &plan, &run))
            continue;
        err = sp_count_by_classes(&run.cfg, &run.place, classes);
        assert_in_range(err, 0, 1);
        assert_int_equal(sp_count_whole(&run.cfg, &run.place, plan.layout.stages, &steps, whole),
                         0);
        if (!err)
            compare(&plan, run.shape.zero, classes, whole, i);
        by[i % SCHEDULES][err]++;
        counted += !err;
        walked += err;
        drop_plan(&plan, &run);
    }
    for (int i = 0; i < SCHEDULES; i++)
        print_message("[          ] %-24s %d by classes, %d whole\n", schedules[i], by[i][0],
                      by[i][1]);
    print_message("[          ] %d runs counted by classes, %d submitted whole\n", counted, walked);
    assert_true(counted > 2 * walked);
}

/* ---- operations and messages ------------------------------------------------------------------ */

enum { MOST_OPS = 4096 };

/* A step: FLOPs of its tasks, by stage and place of the op in the program; bytes that its tasks
 * sent and that its actions tell, by the kind of the action. */
static struct {
    double flops[4][MOST_OPS];
    int64_t sent[SP_ACTION_KINDS], told[SP_ACTION_KINDS];
} step;

/* Forwards that overlap with a backward: their waits for other members, and those before which a task of
 * the backward comes. */
static struct {
    const struct sp_plan *plan;
    int stage, op; /* of the task before */
    bool exchanged;
    int waits, hidden;
} turns;

static const struct sp_sink_ops *counts;

/* Other tasks are priced by the bytes that they move. */
static bool has_products(const struct sp_task *task)
{
    static const char *const names[] = {
        "pre_fwd",  "pre_bwd",  "pre_wgrad",   "qkv_fwd",   "qkv_bwd",    "qkv_wgrad",
        "attn_fwd", "attn_bwd", "post_fwd",    "post_bwd",  "post_wgrad", "post_again",
        "out_fwd",  "out_bwd",  "out_wgrad",   "mlp_fwd",   "mlp_bwd",    "mlp_wgrad",
        "head",     "logits",   "logit_stats", "vocabulary"};
    bool found = false;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        found |= !strcmp(task->codelet->name, names[i]);
    return found;
}

static void note_flops(const struct sp_task_context *ctx, struct sp_task *task, double flops)
{
    if (ctx->op_index >= 0 && has_products(task))
        step.flops[ctx->stage][ctx->op_index] += flops;
    counts->insert(ctx, task, flops);
}

static void note_turns(const struct sp_task_context *ctx, struct sp_task *task, double flops)
{
    const struct sp_program *prog = &turns.plan->programs[ctx->stage];
    int k = ctx->op_index;
    bool same = turns.stage == ctx->stage && turns.op == k;

    if (k >= 0 && prog->ops[k].overlap && ctx->exchanged && !(same && turns.exchanged)) {
        turns.waits++;
        turns.hidden += turns.stage == ctx->stage && turns.op == k + 1;
    }
    turns.stage = ctx->stage;
    turns.op = k;
    turns.exchanged = ctx->exchanged;
    counts->insert(ctx, task, flops);
}

/* Messages of an op are those that EXCHANGE tells. */
static void note_action(void *arg, const struct sp_action *a)
{
    struct sp_graph *g = arg;
    const uint64_t *sent = &g->stages[0].bytes_sent[g->turn];
    uint64_t before = *sent;

    sp_step_act(g, a);
    step.sent[a->kind == SP_ACTION_RUN ? SP_ACTION_EXCHANGE : a->kind] += (int64_t)(*sent - before);
    if (a->stage == g->stages[0].index && a->kind != SP_ACTION_RECV)
        step.told[a->kind] += a->bytes;
}

static void walk_step(const struct run *run,
                      void (*note)(const struct sp_task_context *, struct sp_task *, double))
{
    memset(&step, 0, sizeof step);
    turns.plan = run->cfg.plan;
    turns.stage = -1;
    for (int r = 0; r < run->place.stages; r++) {
        const struct sp_placement place = sp_count_place(&run->place, run->place.stages, r);
        const struct sp_update hp[64] = {{.factor = 1}};
        struct sp_graph_config cfg = run->cfg;
        struct sp_sink_ops ops;
        struct sp_sink sink;
        struct sp_graph g;

        sp_count_begin(&sink);
        counts = sink.ops;
        ops = *counts;
        ops.insert = note;
        sink.ops = &ops;
        cfg.sink = &sink;
        assert_int_equal(sp_graph_create(&cfg, &place, &g), 0);
        g.ahead = run->cfg.plan->family->facts.stashes ? hp : NULL;
        g.lowering.recompute = cfg.recompute;
        g.lowering.every = cfg.every;
        sp_step_prepare(&g, NULL, 0);
        assert_int_equal(sp_lower_step(&g.lowering, note_action, &g), 0);
        sp_step_conclude(&g);
        sp_graph_destroy(&g);
    }
}

/* A machine on which an operation takes a second, and all else nothing. */
static void make_counter(struct sp_machine *m)
{
    const struct sp_curve one = {.n = 1, .at = {{1, 1}}}, fast = {.n = 1, .at = {{1, INFINITY}}};

    *m = (struct sp_machine){.devices_per_node = 1,
                             .node = {.bandwidth = INFINITY, .shared_by = 1},
                             .network = {.bandwidth = INFINITY, .shared_by = 1}};
    for (int t = 0; t < SP_DTYPES; t++)
        m->rates.matmul[t] = one;
    for (int t = 0; t < SP_ELEMENTS; t++) {
        m->rates.attention[t][0] = m->rates.attention[t][1] = one;
        m->rates.memory[t] = fast;
    }
}

static double price_of(const struct sp_plan *plan, const double *ms, int stage, int k)
{
    return ms[plan->family->id(&plan->layout, stage, &plan->programs[stage].ops[k])] / 1e3;
}

/* The least that an op on the slice of `op` is priced beyond its FLOPs. */
static double least_wait(const struct sp_plan *plan, const double *ms, const struct sp_op *op)
{
    const struct sp_layout *lay = &plan->layout;
    double least = INFINITY;

    for (int s = 0; s < lay->stages; s++)
        for (int k = 0; k < plan->programs[s].n; k++) {
            const struct sp_op *o = &plan->programs[s].ops[k];

            if (o->pass == op->pass && o->mb == op->mb && o->chunk == op->chunk &&
                plan->family->shared->slice(lay, o) == plan->family->shared->slice(lay, op))
                least = fmin(least, price_of(plan, ms, s, k) - step.flops[s][k]);
        }
    return least;
}

/* The most that the price of an op is off, in parts of it; the op is told in `op`. If stages share
 * the attention of a slice, they wait for the one that takes longest: only that is exact. */
static double compare_flops(const struct sp_plan *plan, const double *ms, char *op, size_t n)
{
    double most = 0;

    for (int s = 0; s < plan->layout.stages; s++)
        for (int k = 0; k < plan->programs[s].n; k++) {
            const struct sp_op *o = &plan->programs[s].ops[k];
            double priced = price_of(plan, ms, s, k);
            double off = fabs(priced - step.flops[s][k]) / fmax(1, priced);

            if (off > 1e-12 && priced > step.flops[s][k] && plan->family->shared &&
                plan->family->shared->keeps_attention(&plan->layout, o))
                off = least_wait(plan, ms, o) / fmax(1, priced);

            if (off > most)
                snprintf(op, n,
                         "stage %d, op %d (pass %d, mb %d, chunk %d, slice %d): %.0f, not %.0f", s,
                         k, o->pass, o->mb, o->chunk, o->slice, priced, step.flops[s][k]);
            most = fmax(most, off);
        }
    return most;
}

/* The FLOPs and messages that the cost model has of an op are those of its tasks. */
TEST(test_costs)
{
    static struct sp_machine machine;
    uint64_t seed = 78;
    int n[SCHEDULES] = {0};

    make_counter(&machine);
    for (int i = 0; i < DRAWS; i++) {
        struct sp_op_terms terms = {.machine = &machine, .devices = 1};
        struct sp_plan plan;
        struct run run;
        char op[256] = "";
        double *ms;

        if (!draw_plan(&seed, schedules[i % SCHEDULES], true, &plan, &run))
            continue;
        terms.recompute = run.cfg.recompute;
        terms.every = run.cfg.every;
        ms = sp_op_times(&plan, &run.shape, &terms);
        assert_non_null(ms);
        walk_step(&run, note_flops);
        if (compare_flops(&plan, ms, op, sizeof op) > 1e-12)
            fail_msg("draw %d, %s, %d stages, recompute %d, every %d, tensor %d, context %d of %d: "
                     "the FLOPs "
                     "priced for %s",
                     i, plan.def->name, plan.layout.stages, run.cfg.recompute, run.cfg.every,
                     run.shape.tensor, run.shape.context, run.shape.ulysses, op);
        for (int k = 0; k < SP_ACTION_KINDS; k++)
            if (step.sent[k] != step.told[k])
                fail_msg("draw %d, %s, %d stages, tensor %d, context %d, zero %d, recompute %d "
                         "every %d: the messages of %s have "
                         "%lld bytes, its actions say %lld",
                         i, plan.def->name, plan.layout.stages, run.shape.tensor, run.shape.context,
                         run.shape.zero, run.cfg.recompute, run.cfg.every,
                         sp_action_name((enum sp_action_kind)k), (long long)step.sent[k],
                         (long long)step.told[k]);
        n[i % SCHEDULES]++;
        free(ms);
        drop_plan(&plan, &run);
    }
    for (int i = 0; i < SCHEDULES; i++) {
        print_message(
            "[          ] %-24s %d runs: FLOPs of every op and bytes of messages as priced\n",
            schedules[i], n[i]);
        assert_true(n[i] > 0);
    }
}

/* In groups, a forward that overlaps with a backward waits for the tensors of other members behind the
 * backward's tasks, and the other way round as long as both have tasks. */
TEST(test_turns)
{
    static const char *const paired[] = {"dualpipe", "dualpipev"};
    uint64_t seed = 36;
    int groups = 0;

    for (int i = 0; i < 40; i++) {
        struct sp_plan plan;
        struct run run;
        double least;

        if (!draw_plan(&seed, paired[i % 2], true, &plan, &run))
            continue;
        turns.waits = turns.hidden = 0;
        walk_step(&run, note_turns);
        if (run.shape.tensor * run.shape.context > 1) {
            assert_true(turns.waits > 0);
            /* at its end, a forward of more layers or exchanges has nothing to hide behind */
            least =
                plan.layout.layers % sp_globals(&plan.layout) || run.shape.mlp_rows < run.shape.rows
                    ? 0.6 * turns.waits
                    : turns.waits;
            if (turns.hidden < least)
                fail_msg("draw %d, %s, tensor %d, context %d, rows %d, recompute %d every %d: %d "
                         "of %d waits of forwards have a "
                         "task of a "
                         "backward before them",
                         i, plan.def->name, run.shape.tensor, run.shape.context, run.shape.mlp_rows,
                         run.cfg.recompute, run.cfg.every, turns.hidden, turns.waits);
            groups++;
        } else {
            assert_int_equal(turns.waits, 0);
        }
        drop_plan(&plan, &run);
    }
    assert_in_range(groups, 5, 40);
}
