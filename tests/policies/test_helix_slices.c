/*
 * HelixPipe over slices of sequences. Every micro-batch's slices go through attention of a layer in
 * order, on one stage, and back in reverse. With one micro-batch a slot the bubble is (p - 3 + 2/n)
 * blocks for p > 3 and (1/n) for p = 2, instead of p - 1. Messages shorter than the other slices of
 * a slot delay no more than those of the two-fold schedule.
 */
#include "policies/helix.h"

static struct sp_layout sliced(int p, int L, int m, int slices)
{
    struct sp_layout lay = helix_layout(p, L, m);

    lay.slices = slices;
    return lay;
}

static double takes(const char *schedule, struct sp_layout lay, const struct sp_part_costs *c,
                    double comm)
{
    struct sp_costs costs = {.comm = comm, .parts = *c};
    struct sp_plan plan;
    double makespan;

    make_plan_of(schedule, lay, &plan);
    makespan = makespan_of(&plan, &costs, SP_FIFO);
    sp_plan_destroy(&plan);
    return makespan;
}

/* ---- orders ---------------------------------------------------------------------------------- */

struct seen {
    int stage, next; /* of attention: where, and which slice comes next */
};

/* Attention of a micro-batch's layer: one stage has all slices, one after the other, and back. */
static void assert_turns(const struct sp_plan *plan)
{
    const struct sp_layout *lay = &plan->layout;
    struct seen *seen = calloc(2 * (size_t)lay->micro_batches * (size_t)lay->layers, sizeof *seen);
    int attentions = 0;

    assert_non_null(seen);
    for (int s = 0; s < lay->stages; s++)
        for (int k = 0; k < plan->programs[s].n; k++) {
            const struct sp_op *op = &plan->programs[s].ops[k];
            bool forward = op->pass == SP_F;
            struct seen *of = &seen[(forward * lay->micro_batches + op->mb) * lay->layers];

            if (op->part != SP_ATTN)
                continue;
            of += op->chunk;
            assert_true(of->next == 0 || of->stage == s);
            of->stage = s;
            assert_int_equal(op->slice, forward ? of->next : lay->slices - 1 - of->next);
            of->next++;
            attentions++;
        }
    assert_int_equal(attentions, 2 * lay->micro_batches * lay->layers * lay->slices);
    assert_int_equal(sp_plan_ops(plan),
                     2 * lay->micro_batches * (2 * lay->layers + 1) * lay->slices);
    free(seen);
}

TEST(orders)
{
    static const char *const schedules[] = {"helix",
                                            "helix:fold=2",
                                            "helix:fold=3,tail=published",
                                            "helix:bounded",
                                            "helix:bounded,fold=2",
                                            "helix:ship=attention",
                                            "helix:fold=auto",
                                            "helix:ship=attention,bounded"};
    int plans = 0;

    for (int p = 1; p <= 6; p++)
        for (int i = 0; i < 8 * 3 * 4; i++) {
            int L = p + i % 3, m = p * (i / 3 % 4 + 1) - i % 2, n = 2 + i % 3;
            struct sp_plan plan;

            if (m < 1)
                continue;
            /* legal, complete, without deadlock */
            make_plan_of(schedules[i / 12], sliced(p, L, m, n), &plan);
            assert_turns(&plan);
            sp_plan_destroy(&plan);
            plans++;
        }
    print_message("%d plans\n", plans);
}

/* ---- times ----------------------------------------------------------------------------------- */

TEST(bubbles)
{
    static const struct sp_part_costs c = {.pre = 2, .attn = 6, .post = 2, .backward = 2};
    double block = 3 * (c.pre + c.post), layer = block + 3 * c.attn;

    for (int p = 2; p <= 8; p++)
        for (int n = 1; n <= 8; n++) {
            double work = 2 * p * layer * 2, filled = p == 2 ? 1.0 / n : p - 3 + 2.0 / n;
            double got = takes("helix:fold=1", sliced(p, 2 * p, 2 * p, n), &c, 0) - work;

            if (p == 3 && n > 2) /* attention of three stages does not fill it all */
                assert_true(got > filled * block &&
                            got < takes("helix:fold=1", sliced(p, 2 * p, 2 * p, n - 1), &c, 0) -
                                      work);
            else if (fabs(got - filled * block) > 1e-6)
                fail_msg("p=%d, %d slices: a bubble of %g, not %g", p, n, got, filled * block);
        }
}

/* With two slices, a message of one is hidden while the other computes, as in the two-fold
 * schedule, whose bubble is twice as long. */
TEST(messages)
{
    static const struct sp_part_costs c = {.pre = 1, .attn = 3, .post = 2, .backward = 2};
    int faster = 0, cases = 0;

    for (int p = 2; p <= 8; p++)
        for (int i = 0; i < 8; i++) {
            double comm = 0.25 * (i % 4 + 1); /* a part of a slice takes 1.5 at least */
            int L = p * (1 + i / 4), m = 2 * p;
            double plain = takes("helix:fold=1", sliced(p, L, m, 1), &c, comm);
            double fold = takes("helix:fold=2", sliced(p, L, m, 1), &c, comm);
            double slices = takes("helix", sliced(p, L, m, 2), &c, comm);

            if (slices >= plain || slices > fold)
                fail_msg("p=%d L=%d comm %g: %g in slices, %g whole, %g two-fold", p, L, comm,
                         slices, plain, fold);
            faster += slices < fold;
            cases++;
        }
    print_message("%d cases, slices faster than two-fold in %d\n", cases, faster);
}
