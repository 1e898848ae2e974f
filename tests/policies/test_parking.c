/* Activations that stages park on each other: BPipe's bound, and what is sent where. */
#include "policies/common.h"
#include "policies/families/activations.h"
#include "policies/lowering/lowering.h"
#include "policies/lowering/parking_choice.h"

static void make(const char *schedule, int stages, int m, struct sp_plan *plan, struct sp_shape *sh)
{
    struct sp_layout lay = layout(stages, m);
    struct sp_model model = tiny(2 * stages, false);

    lay.chunks = 0;
    lay.layers = 2 * stages;
    assert_int_equal(sp_plan_create(schedule, &lay, plan), 0);
    sp_shape_init(sh, &model, 1, 24, m);
}

static int64_t most(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    return sp_stash_peak(plan, sh, SP_RECOMPUTE_NONE, 1, stage);
}

/* BPipe, section 3: of p activations the first stage keeps ceil((p + 2) / 2). */
TEST(test_bpipe_bound)
{
    for (int p = 4; p <= 16; p += 2) {
        struct sp_plan plan;
        struct sp_shape sh;
        int64_t one, before;

        make("1f1b", p, 3 * p, &plan, &sh);
        one = sp_stash_of_op(&plan, &sh, SP_RECOMPUTE_NONE, 1, 0, &plan.programs[0].ops[0]);
        before = most(&plan, &sh, 0);
        assert_int_equal(before, p * one);
        assert_int_equal(sp_parking_create(&plan, &sh, SP_RECOMPUTE_NONE, 1), 0);
        assert_non_null(plan.parking);
        for (int s = 0; s < p; s++)
            assert_true(most(&plan, &sh, s) <= (p + 3) / 2 * one);
        print_message("%d stages: %.1f activations, %d before\n", p,
                      (double)most(&plan, &sh, 0) / (double)one, p);
        sp_plan_destroy(&plan);
    }
}

/* Counts parked activations while a step is lowered. */
struct tally {
    const struct sp_plan *plan;
    int parked[16], most[16], sent, received;
};

static void note(void *arg, const struct sp_action *a)
{
    struct tally *t = arg;

    if (a->tensor.kind != SP_TENSOR_STASH)
        return;
    if (a->kind == SP_ACTION_SEND) {
        t->sent++;
        assert_true(a->bytes > 0);
    } else if (a->kind == SP_ACTION_RECV && a->index < 0) {
        t->received++;
        t->parked[a->stage]++;
        if (t->parked[a->stage] > t->most[a->stage])
            t->most[a->stage] = t->parked[a->stage];
    } else if (a->kind == SP_ACTION_RECV) {
        t->received++;
        t->parked[a->peer]--;
        assert_int_equal(t->plan->programs[a->stage].ops[a->index].pass, SP_B);
        assert_int_equal(t->plan->programs[a->stage].ops[a->index].mb, a->tensor.mb);
    }
}

/* Every activation that leaves comes back before its backward; stages of the second half take them. */
TEST(test_parked_returns)
{
    static const char *const schedules[] = {"1f1b", "interleaved", "1f1b-v",
                                            "zb1p", "chimera",     "gpipe"};

    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        struct sp_plan plan;
        struct sp_shape sh;
        struct sp_lowering l;
        struct tally t = {.plan = &plan};

        make(schedules[i], 4, 8, &plan, &sh);
        assert_int_equal(sp_parking_create(&plan, &sh, SP_RECOMPUTE_NONE, 1), 0);
        assert_int_equal(sp_lowering_create(&plan, &sh, 4, &l), 0);
        assert_int_equal(sp_lower_step(&l, note, &t), 0);
        assert_int_equal(t.sent, t.received);
        assert_int_equal(t.sent % 2, 0);
        for (int s = 0; s < 4; s++)
            assert_int_equal(t.parked[s], 0);
        if (!strcmp(schedules[i], "1f1b")) {
            assert_true(t.sent > 0 && t.most[3] > 0);
            assert_int_equal(t.most[0], 0);
        }
        print_message("%s: %d parked, at most %d at a time on stage 3\n", schedules[i], t.sent / 2,
                      t.most[3]);
        sp_lowering_destroy(&l);
        sp_plan_destroy(&plan);
    }
}
