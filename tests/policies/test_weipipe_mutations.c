/*
 * Programs of WeiPipe broken in one place: the verifier must refuse exactly those that the oracle
 * of weipipe.h finds illegal, and for a true reason.
 */
#include "policies/mutants.h"
#include "policies/weipipe.h"

static void make_foreign(const struct sp_layout *lay, struct sp_op *op, char *reason, size_t n)
{
    static const unsigned char parts[] = {SP_EMBED, SP_PRE, SP_ATTN, SP_POST, SP_BLOCK, SP_UPDATE};

    *reason = 0;
    switch (pick(6)) {
    case 0:
        op->mb = pick(2) ? lay->micro_batches + pick(3) : -1 - pick(3);
        snprintf(reason, n, "%d micro-batches", lay->micro_batches);
        break;
    case 1:
        op->chunk = pick(2) ? lay->stages + pick(3) : -1 - pick(3);
        break;
    case 2:
        op->mb = lay->stages > 1 ? (op->mb + 1) % lay->micro_batches : -1;
        break;
    case 3:
        op->slice = (unsigned short)(1 + pick(2));
        break;
    case 4:
        op->pass = op->part == SP_HEAD ? SP_B : SP_R; /* the head's backward is in its forward */
        break;
    default:
        op->part = parts[pick(6)];
    }
}

static void change(const struct sp_layout *lay, struct sp_op *op)
{
    if (lay->stages == 1 || pick(2))
        op->mb = another(op->mb, lay->micro_batches);
    else
        op->chunk = another(op->chunk, lay->stages);
}

/* Half of the time they are of one worker. */
static void choose(const struct sp_layout *lay, int *a, int *b)
{
    *a = pick(lay->micro_batches);
    *b = another(*a, lay->micro_batches);
    if (lay->micro_batches > lay->stages && pick(2))
        *b = (*a + lay->stages) % lay->micro_batches;
}

/* True if an op of a worker comes after one of a later turn, or of a later rank in its own turn. */
static bool out_of_turns(const struct oracle *h)
{
    for (int s = 0; s < h->p; s++) {
        int last = -1;

        for (int k = 0; k < h->plan->programs[s].n; k++) {
            const struct sp_op *op = &h->plan->programs[s].ops[k];
            int link = weipipe_link(h, s, op);
            int at = 3 * weipipe_turn(h, op->mb / h->p, link) + weipipe_rank(h, link);

            if (at < last)
                return true;
            last = at;
        }
    }
    return false;
}

TEST(mutants)
{
    static const int table[][2] = {{1, 3}, {2, 1}, {2, 2}, {3, 1}, {3, 2}, {4, 2}, {2, 5}, {5, 3}};
    int loose = 0;

    seed = 1515;
    for (size_t i = 0; i < 2 * sizeof table / sizeof *table; i++) {
        const int *t = table[i / 2];
        struct sp_plan whole;

        weipipe_plan(i % 2, t[0], t[1], &whole);
        for (int k = 0; k < 200 * KINDS; k++) {
            struct mutant mutant;
            struct oracle h;

            mutant_create(&whole, k % KINDS, &mutant);
            weipipe_create(&mutant.plan, i % 2, &h);
            loose += !mutant_judge(&mutant, &h) && out_of_turns(&h);
            oracle_destroy(&h);
            mutant_destroy(&mutant);
        }
        sp_plan_destroy(&whole);
    }
    report();
    print_message("%d legal ones do not keep the order of their turns\n", loose);
    for (int k = 0; k <= OVERLAP; k++)
        assert_int_equal(legal[k], 0);
    for (int k = 0; 1 << k < WRONG_PAIR; k++)
        assert_true(reasons[k] > 0);
    assert_true(legal[NEXT] > 0);
}
