/*
 * Lowered programs, of all schedules over sizes, in one process a stage and in fewer: every message that is
 * sent is received once, after it was sent; ops run in the order of the program; nothing is used before it is
 * there or after it was freed, and nothing is left; members meet in collectives in one order.
 */
#include "policies/common.h"
#include "policies/lowering/lowering.h"
#include "policies/lowering/traffic.h"
#include "policies/registry.h"

/* A tensor on a stage. */
struct alive {
    struct sp_tensor_id id;
    int stage;
};

struct walk {
    const struct sp_plan *plan;
    const char *what;
    int *pc; /* [stages] next op of the program */
    int sent, received;
    int64_t last; /* number of the latest message sent */
    struct alive *alive;
    int n, cap;
    int64_t *bytes;   /* [stages] sent */
    int *collectives; /* [stages] gathers and scatters of all */
};

static void told(const struct walk *w, const struct sp_action *a, const char *wrong)
{
    char text[SP_TENSOR_TEXT];

    sp_tensor_print(w->plan, &a->tensor, text);
    fail_msg("%s: stage %d: %s %s %s", w->what, a->stage, sp_action_name(a->kind), text, wrong);
}

static int find(const struct walk *w, int stage, const struct sp_tensor_id *id)
{
    for (int i = w->n - 1; i >= 0; i--)
        if (w->alive[i].stage == stage && sp_tensor_is_same(&w->alive[i].id, id))
            return i;
    return -1;
}

static void receive(struct walk *w, const struct sp_action *a)
{
    w->received++;
    if (a->number < 0 || a->number > w->last)
        told(w, a, "is received before it was sent");
    if (a->home)
        return;
    if (w->n == w->cap) {
        w->cap = w->cap ? 2 * w->cap : 64;
        w->alive = realloc(w->alive, (size_t)w->cap * sizeof *w->alive);
        assert_non_null(w->alive);
    }
    w->alive[w->n++] = (struct alive){a->tensor, a->stage};
}

static void act(void *arg, const struct sp_action *a)
{
    struct walk *w = arg;
    int at;

    assert_in_range(a->stage, 0, w->plan->layout.stages - 1);
    switch (a->kind) {
    case SP_ACTION_RUN:
        if (a->index < 0 || a->op_part > 0)
            break;
        assert_int_equal(a->index, w->pc[a->stage]);
        w->pc[a->stage] += w->plan->programs[a->stage].ops[a->index].overlap ? 2 : 1;
        break;
    case SP_ACTION_SEND:
        assert_int_not_equal(a->peer, a->stage);
        assert_true(a->number > w->last);
        w->sent++;
        w->last = a->number;
        w->bytes[a->stage] += a->bytes;
        break;
    case SP_ACTION_RECV:
        receive(w, a);
        break;
    case SP_ACTION_FREE:
        at = find(w, a->stage, &a->tensor);
        if (at >= 0)
            w->alive[at] = w->alive[--w->n];
        break;
    default:
        if (a->kind == SP_ACTION_REDUCE && a->stage != a->member[0])
            assert_true(a->number + a->members - 1 == w->last);
        else
            assert_true(a->number > w->last);
        w->last = a->number + a->members - 1;
        w->bytes[a->stage] += a->bytes;
        w->collectives[a->stage] += a->kind != SP_ACTION_REDUCE;
    }
}

static void check_plan(const struct sp_plan *plan, const char *what, const struct sp_shape *shape,
                       int processes)
{
    size_t p = (size_t)plan->layout.stages;
    bool shared = plan->layout.vocabulary_parallel; /* the first stage alone gathers */
    struct walk w = {.plan = plan, .what = what, .last = -1};
    struct sp_lowering l;

    w.pc = calloc(p, sizeof *w.pc);
    w.bytes = calloc(p, sizeof *w.bytes);
    w.collectives = calloc(p, sizeof *w.collectives);
    assert_int_equal(sp_lowering_create(plan, shape, processes, &l), 0);
    for (int step = 0; step < 2; step++) { /* a step leaves nothing to the next */
        memset(w.pc, 0, p * sizeof *w.pc);
        w.last = -1;
        assert_int_equal(sp_lower_step(&l, act, &w), 0);
        for (int s = 0; s < (int)p; s++) {
            assert_int_equal(w.pc[s], plan->programs[s].n);
            assert_int_equal(w.collectives[s], shared && s > 0 ? 0 : w.collectives[0]);
        }
        if (w.sent != w.received)
            fail_msg("%s: %d messages sent, %d received", what, w.sent, w.received);
        for (int i = 0; i < w.n; i++) {
            char text[SP_TENSOR_TEXT];

            sp_tensor_print(plan, &w.alive[i].id, text);
            fail_msg("%s: %s is left on stage %d", what, text, w.alive[i].stage);
        }
    }
    sp_lowering_destroy(&l);
    free(w.pc);
    free(w.bytes);
    free(w.collectives);
    free(w.alive);
}

/* 1: done; 0: the schedule does not do this layout. */
static int check_layout(const char *schedule, int p, int m, int chunks, int slices, int layers,
                        bool vocabulary)
{
    struct sp_layout lay = {.stages = p,
                            .micro_batches = m,
                            .chunks = chunks,
                            .slices = slices,
                            .layers = layers,
                            .options = "",
                            .vocabulary_parallel = vocabulary};
    struct sp_plan plan;
    struct capture said;
    char what[96];
    int err;

    err = CAPTURED(&said, sp_plan_create(schedule, &lay, &plan));
    if (err)
        return 0;
    snprintf(what, sizeof what, "%s p=%d m=%d v=%d n=%d L=%d", schedule, p, m, chunks, slices,
             layers);
    for (int tied = 0; tied < 2; tied++) {
        struct sp_model model = tiny(layers, tied);
        struct sp_shape shape;

        sp_shape_init(&shape, &model, 2, 24, m);
        for (int processes = 1; processes <= p; processes++)
            check_plan(&plan, what, &shape, processes);
    }
    check_plan(&plan, what, NULL, p);
    sp_plan_destroy(&plan);
    return 1;
}

TEST(all_schedules)
{
    static const char *const more[] = {
        "sppo:multiplex",      "helix:qkv=weights",    "helix:qkv=activations",
        "helix:qkv=published", "helix:ship=attention", "helix:bounded,qkv=weights",
        "wzb2:owner=each",     "weipipe:flow=line",    "fsdp:order=breadth"};
    static const char *const lines[] = {"weipipe:flow=line", "wzb1:flow=line", "wzb2",
                                        "wzb2:owner=each", "tawpipe"};
    int layouts = 0;

    for (int k = 0; sp_schedule_at(k); k++)
        for (int p = 1; p <= 6; p++)
            for (int m = p; m <= 4 * p; m += p)
                for (int n = 1; n <= 6; n += 5)
                    if ((k + p + m / p + n) % test_every(2) == 0)
                        for (int shared = 0; shared < 2; shared++)
                            layouts += check_layout(sp_schedule_at(k)->name, p, m, 0, n,
                                                    2 * p + (p > 2), shared);
    for (size_t k = 0; k < sizeof more / sizeof *more; k++)
        for (int p = 2; p <= 6; p++)
            for (int m = 2 * p; m <= 6 * p; m += 4 * p)
                layouts +=
                    check_layout(more[k], p, m, 0, strstr(more[k], "sppo") ? 6 : 1, 2 * p, false);
    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++)
        for (int p = 1; p <= 6; p++) {
            int v = 1 + ((int)k + p) % 3;

            layouts += check_layout(lines[k], p, 2 * p + 1, v, 1, v * p + 1, false);
        }
    printf("%d layouts\n", layouts);
    assert_true(layouts > 400 / test_every(2));
}

/* Bytes of the closed forms: 1F1B's 2bsh numbers a micro-batch and link, in f32. */
TEST(bytes_are_those_of_the_paper)
{
    struct sp_layout lay = layout(4, 8);
    struct sp_model model = tiny(8, false);
    struct sp_plan plan;
    struct sp_shape shape;

    lay.layers = 8;
    assert_int_equal(sp_plan_create("1f1b", &lay, &plan), 0);
    sp_shape_init(&shape, &model, 2, 24, 8);
    {
        int64_t bytes[4] = {0};
        int pc[4] = {0}, collectives[4] = {0};
        struct walk w = {.plan = &plan,
                         .what = "1f1b",
                         .last = -1,
                         .pc = pc,
                         .bytes = bytes,
                         .collectives = collectives};
        struct sp_lowering l;
        int64_t x = 8 * 4 * 2 * 24 * 24;

        assert_int_equal(sp_lowering_create(&plan, &shape, 4, &l), 0);
        assert_int_equal(sp_lower_step(&l, act, &w), 0);
        assert_int_equal(bytes[0], x);
        assert_int_equal(bytes[1], 2 * x);
        assert_int_equal(bytes[2], 2 * x);
        assert_int_equal(bytes[3], x);
        sp_lowering_destroy(&l);
        free(w.alive);
    }
    sp_plan_destroy(&plan);
}

/* ---- lowerings that are wrong -------------------------------------------------------------- */

static void (*right)(struct sp_lowering *l, int i);
static int silent = -1; /* the stage whose ops neither send nor receive ... */
static int from_mb;     /* ... from this micro-batch on, in backwards */

static void lower_wrongly(struct sp_lowering *l, int i)
{
    const struct sp_op *op = sp_lowering_op(l, i);

    if (l->order[i].stage == silent && (op->pass == SP_B || from_mb == 0) && op->mb >= from_mb)
        sp_lower_run(l, silent, l->order[i].index);
    else
        right(l, i);
}

/* Refused with the stage, the tensor and what is wrong with it. */
TEST(wrong_families_are_refused)
{
    struct sp_layout lay = layout(2, 3);
    struct sp_family family;
    struct sp_lowerer lowers;
    struct sp_plan plan;
    char why[256] = "";

    assert_int_equal(sp_plan_create("1f1b", &lay, &plan), 0);
    family = *plan.family;
    lowers = *family.lowers;
    right = lowers.lower;
    lowers.lower = lower_wrongly;
    family.lowers = &lowers;
    plan.family = &family;
    silent = 0;
    assert_int_equal(sp_plan_check_traffic(&plan, why, sizeof why), -EINVAL);
    assert_string_equal(why, "order: stage 1: x0.0 of stage 0 is received before it is sent");
    silent = 1;
    assert_int_equal(sp_plan_check_traffic(&plan, why, sizeof why), -EINVAL);
    assert_string_equal(why, "order: stage 0: dx0.1 of stage 1 is received before it is sent");
    silent = 0;
    from_mb = 2;
    assert_int_equal(sp_plan_check_traffic(&plan, why, sizeof why), -EINVAL);
    assert_string_equal(why, "order: stage 0: dx2.1 of stage 1 is sent and never received");
    silent = -1;
    assert_int_equal(sp_plan_check_traffic(&plan, why, sizeof why), 0);
    sp_plan_destroy(&plan);
}
