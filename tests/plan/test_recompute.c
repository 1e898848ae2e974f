/*
 * Recomputation of layers, chosen together with evictions: it keeps to the limit, is never
 * predicted slower than any single mode for all layers that fits, with or without offloading, and
 * recomputes no more than the limit requires.
 */
#include "plan/memory.h"
#include "plan/offload/offload.h"
#include "plan/recompute.h"
#include "plan/slices.h"
#include "policies/common.h"
#include "policies/plan_create.h"
#include <math.h>
#include <stdlib.h>

static struct sp_model model;
static struct sp_machine machine;

static int load(void **state)
{
    (void)state;
    return sp_machine_load("h100-ib", &machine) || sp_model_load("gpt3-1.3b", &model);
}

static void make(const char *name, int stages, int mbs, int slices, struct sp_plan *plan,
                 struct sp_shape *sh)
{
    struct sp_layout lay = layout(stages, mbs);

    lay.layers = model.layers;
    lay.chunks = 0;
    lay.slices = slices;
    assert_int_equal(sp_plan_create(name, &lay, plan), 0);
    sp_shape_init(sh, &model, 1, 8192, mbs);
    sh->dtype = SP_BF16;
    if (slices > 1)
        assert_int_equal(sp_plan_cut(plan, sh, "flops", NULL), 0);
}

static int64_t fullest(const struct sp_plan *plan, const struct sp_shape *sh,
                       enum sp_recompute mode)
{
    struct sp_memory most;

    sp_memory_fullest(plan, sh, mode, 1, &most, NULL);
    return sp_memory_sum(&most);
}

/* The predicted milliseconds of the plan as it is; negative: it does not fit. */
static double step_ms(struct sp_plan *plan, const struct sp_shape *sh, enum sp_recompute mode,
                      enum sp_offload_mode offload, int64_t limit)
{
    const struct sp_op_terms terms = {
        .machine = &machine, .devices = 1, .recompute = mode, .every = 1};
    struct sp_predict_request request = {
        .plan = plan, .shape = sh, .terms = terms, .tier = sp_offload_tier(&machine, 1)};
    struct sp_offload_request want = sp_offload_request(&terms, sh, offload, limit);
    struct sp_offload o = {0};
    struct sp_offload_lack lack;
    struct sp_prediction p;
    double ms;

    if (!offload && fullest(plan, sh, mode) > limit)
        return -1;
    if (offload) {
        if (sp_offload_try(plan, sh, &want, &o, &lack))
            return -1;
        for (int s = 0; s < o.stages; s++)
            assert_true(sp_memory_sum(&o.memory[s]) <= limit);
        assert_int_equal(sp_offload_apply(&o, sh, plan), 0);
        sp_offload_destroy(&o);
    }
    assert_int_equal(sp_predict(&request, &p), 0);
    ms = p.step_ms;
    sp_prediction_destroy(&p);
    sp_evictions_destroy(plan->evictions, plan->layout.stages);
    plan->evictions = NULL;
    return ms;
}

static int mixed, left;

/* Chooses within a limit; returns the predicted milliseconds of a step, negative if nothing
 * fits. */
static double choose(struct sp_plan *plan, const struct sp_shape *sh, enum sp_offload_mode offload,
                     int64_t limit)
{
    const struct sp_recompute_wish wish = {.plan = plan,
                                           .shape = sh,
                                           .offload = offload,
                                           .limit = limit,
                                           .machine = &machine,
                                           .devices = 1};
    struct sp_recompute_chosen c;
    int again = 0, err = sp_recompute_choose(&wish, &c);
    double ms;

    assert_true(!plan->recompute && !plan->evictions);
    if (err) {
        assert_int_equal(err, -EINVAL);
        return -1;
    }
    for (int l = 0; c.layer && l < model.layers; l++) {
        assert_true(c.layer[l] == SP_RECOMPUTE_NONE || c.layer[l] == c.mode);
        again += c.layer[l] != SP_RECOMPUTE_NONE;
    }
    assert_true(again == c.layers && !c.layer == !again);
    mixed += again > 0 && again < model.layers;
    left += c.leaves;
    plan->recompute = c.layer;
    ms = step_ms(plan, sh, c.mode, c.leaves ? offload : SP_OFFLOAD_NONE, limit);
    assert_true(ms > 0 && fabs(ms - c.step_ms) < 1e-6 * ms); /* it fits, and takes the predicted
                                                              * time */
    free(plan->recompute);
    plan->recompute = NULL;
    return ms;
}

TEST(limits)
{
    static const struct {
        const char *name;
        int stages, mbs, slices;
    } plans[] = {{"1f1b", 4, 8, 1},
                 {"zb1p", 4, 8, 1},
                 {"interleaved", 4, 8, 1},
                 {"sppo", 2, 1, 8},
                 {"gpipe", 1, 2, 1}};

    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        struct sp_plan plan;
        struct sp_shape sh;
        int64_t none, full;
        double before[2] = {INFINITY, INFINITY};

        make(plans[i].name, plans[i].stages, plans[i].mbs, plans[i].slices, &plan, &sh);
        none = fullest(&plan, &sh, SP_RECOMPUTE_NONE);
        full = fullest(&plan, &sh, SP_RECOMPUTE_FULL);
        for (int k = 0; k <= 4; k++) {
            int64_t limit = full + (none - full) * k / 4;
            double all = INFINITY, ms[2];

            for (int offload = 0; offload < 2; offload++) {
                enum sp_offload_mode how = offload ? SP_OFFLOAD_ADAPTIVE : SP_OFFLOAD_NONE;

                for (int mode = 0; mode <= SP_RECOMPUTE_FULL; mode++) {
                    double one = step_ms(&plan, &sh, (enum sp_recompute)mode, how, limit);

                    all = one > 0 && one < all ? one : all;
                }
                ms[offload] = choose(&plan, &sh, how, limit);
                assert_true(ms[offload] > 0 && ms[offload] <= all * (1 + 1e-9));
                assert_true(ms[offload] <=
                            before[offload] * (1 + 1e-9)); /* more room takes no longer */
                before[offload] = ms[offload];
            }
            assert_true(ms[1] <= ms[0] * (1 + 1e-9));
        }
        assert_true(choose(&plan, &sh, SP_OFFLOAD_NONE, none) ==
                    step_ms(&plan, &sh, SP_RECOMPUTE_NONE, SP_OFFLOAD_NONE, none));
        assert_true(choose(&plan, &sh, SP_OFFLOAD_ADAPTIVE, 1 << 20) < 0);
        sp_plan_destroy(&plan);
    }
    printf("%d choices of some of the layers, %d with tensors that leave\n", mixed, left);
    assert_true(mixed > 10 && left > 3);
}

TEST_FIXTURE(load, NULL)
