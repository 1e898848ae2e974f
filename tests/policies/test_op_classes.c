/* Classes of ops: every query gives the same answer for all ops of a class, and there are far fewer
 * classes than ops. */
#include "policies/common.h"
#include "policies/families/activations.h"
#include "policies/families/work.h"
#include "policies/order_book.h"
#include "policies/registry.h"

enum { LAYERS = 16, STAGES = 4, MICRO_BATCHES = 16 };

static struct sp_shape shape_of(const struct sp_model *model)
{
    struct sp_shape sh;

    sp_shape_init(&sh, model, 2, 48, MICRO_BATCHES);
    return sh;
}

static bool is_same_work(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                         const struct sp_op *a, const struct sp_op *b)
{
    struct sp_op_work x[SP_MOST_WORK], y[SP_MOST_WORK];
    int n;

    memset(x, 0, sizeof x);
    memset(y, 0, sizeof y);
    n = sp_op_work(plan, sh, stage, a, x);
    return n == sp_op_work(plan, sh, stage, b, y) && !memcmp(x, y, (size_t)n * sizeof *x);
}

static int check_stage(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    const struct sp_op_classes *c = &plan->classes;
    const struct sp_op *ops = plan->programs[stage].ops;

    for (int i = 0; i < plan->programs[stage].n; i++) {
        int class = sp_op_classes_of(c, stage)[i];
        const struct sp_op *example = &ops[c->example[class]];

        assert_true(class >= c->first[stage] && class < c->first[stage + 1]);
        assert_true(example->pass == ops[i].pass && example->part == ops[i].part &&
                    example->chunk == ops[i].chunk && example->slice == ops[i].slice);
        if (!is_same_work(plan, sh, stage, &ops[i], example))
            fail_msg("%s: op %d of stage %d computes another thing than its class", plan->def->name,
                     i, stage);
        for (int mode = SP_RECOMPUTE_NONE; mode <= SP_RECOMPUTE_FULL; mode++) {
            enum sp_recompute m = (enum sp_recompute)mode;

            if (sp_stash_of_op(plan, sh, m, 1, stage, &ops[i]) !=
                    sp_stash_of_op(plan, sh, m, 1, stage, example) ||
                sp_stash_freed_by_op(plan, sh, m, 1, stage, &ops[i]) !=
                    sp_stash_freed_by_op(plan, sh, m, 1, stage, example))
                fail_msg("%s: op %d of stage %d keeps another thing than its class",
                         plan->def->name, i, stage);
        }
    }
    return c->first[stage + 1] - c->first[stage];
}

/* Every schedule, whole sequences and slices, and with the vocabulary cut over all stages. */
TEST(same_of_a_class)
{
    struct sp_model model = tiny(LAYERS, false);
    struct sp_shape sh = shape_of(&model);
    const struct sp_schedule_def *def;
    int plans = 0;

    for (int i = 0; (def = sp_schedule_at(i)); i++)
        for (int way = 0; way < 4; way++) {
            struct sp_layout lay = layout_of(STAGES, MICRO_BATCHES, 0, way & 1 ? 4 : 1);
            struct sp_plan plan;
            int classes = 0;
            bool quiet = sp_error_quiet(true);
            int err;

            lay.layers = LAYERS;
            lay.vocabulary_parallel = way >> 1;
            err = sp_plan_create(def->name, &lay, &plan);
            sp_error_quiet(quiet);
            if (err)
                continue;
            for (int s = 0; s < STAGES; s++)
                classes += check_stage(&plan, &sh, s);
            if (!plan.family->facts.shares_attention) /* whose slots differ from one to the next */
                assert_true(classes <= sp_plan_ops(&plan) / 3);
            sp_plan_destroy(&plan);
            plans++;
        }
    assert_true(plans > 40);
}

/* An order book returns a stored order, and only for the same schedule and sizes. */
TEST(order_book)
{
    static const char *const schedules[] = {"v-half", "hanayo", "zb2p", "1f1b-v"};
    struct sp_order_book *book = sp_order_book_create();

    assert_non_null(book);
    for (int round = 0; round < 2; round++)
        for (int m = 8; m <= 12; m += 4)
            for (size_t k = 0; k < sizeof schedules / sizeof *schedules; k++) {
                struct sp_layout lay = layout_of(STAGES, m, 0, 1);
                struct sp_plan found, made;

                assert_int_equal(sp_plan_create_by(book, schedules[k], &lay, &found), 0);
                make_plan_of(schedules[k], lay, &made);
                assert_true(sp_order_book_takes(&made));
                assert_int_equal(sp_plan_digest(&found), sp_plan_digest(&made));
                sp_plan_destroy(&found);
                sp_plan_destroy(&made);
            }
    sp_order_book_destroy(book);
}
