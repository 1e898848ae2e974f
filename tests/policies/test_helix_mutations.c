/*
 * Programs of HelixPipe broken in one place: the verifier must refuse exactly those that the oracle
 * of helix.h finds illegal, and for a true reason.
 */
#include "policies/helix.h"
#include "policies/mutants.h"

static void make_foreign(const struct sp_layout *lay, struct sp_op *op, char *reason, size_t n)
{
    static const unsigned char parts[] = {SP_EMBED, SP_PRE, SP_POST, SP_HEAD, SP_UPDATE, SP_CHUNK};

    snprintf(reason, n, "no op of the family attention-parallel there");
    switch (pick(6)) {
    case 0:
        op->mb = pick(2) ? lay->micro_batches + pick(3) : -1 - pick(3);
        snprintf(reason, n, "%d micro-batches", lay->micro_batches);
        break;
    case 1:
        op->chunk = pick(2) ? lay->layers + 1 + pick(3) : -1 - pick(3);
        break;
    case 2:
        op->chunk = lay->layers; /* there is a block, but no attention of it */
        op->part = SP_ATTN;
        break;
    case 3:
        op->slice = (unsigned short)(1 + pick(2));
        snprintf(reason, n, "1 slice");
        break;
    case 4:
        op->pass = pick(2) ? SP_W : SP_R;
        break;
    default:
        op->part = parts[pick(5 + (op->chunk < 1))]; /* chunk 0 is one that the layout has */
    }
}

static void change(const struct sp_layout *lay, struct sp_op *op)
{
    if (lay->micro_batches > 1 && pick(2))
        op->mb = another(op->mb, lay->micro_batches);
    else
        op->chunk = another(op->chunk, lay->layers + 1);
}

static void choose(const struct sp_layout *lay, int *a, int *b)
{
    *a = pick(lay->micro_batches);
    *b = another(*a, lay->micro_batches);
}

TEST(mutants)
{
    static const int table[][5] = {{1, 2, 1, 2, 0}, {2, 3, 1, 2, 0}, {2, 2, 2, 1, 0},
                                   {3, 3, 2, 1, 1}, {3, 5, 1, 1, 0}, {4, 4, 2, 1, 0},
                                   {2, 4, 3, 2, 0}, {4, 6, 1, 2, 1}};
    int other_stream = 0;

    seed = 4711;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const int *t = table[i];
        struct sp_plan whole;

        helix_plan(helix_name(t[2], t[4]), t[0], t[1], t[0] * t[2] * t[3], &whole);
        for (int k = 0; k < 300 * KINDS; k++) {
            struct mutant mutant;
            struct oracle h;
            int wrong;

            mutant_create(&whole, k % KINDS, &mutant);
            helix_create(&mutant.plan, t[2], &h);
            wrong = mutant_judge(&mutant, &h);
            h.streams = 1;
            other_stream += !wrong && oracle_order(&h);
            oracle_destroy(&h);
            mutant_destroy(&mutant);
        }
        sp_plan_destroy(&whole);
    }
    report();
    print_message("%d legal ones would not be if all messages of two stages took turns\n",
                  other_stream);
    for (int k = 0; k < KINDS; k++)
        assert_true((legal[k] > 0) == (k > OVERLAP));
    for (int k = 0; 1 << k < WRONG_PAIR; k++)
        assert_true(reasons[k] > 0);
    assert_true(other_stream > 0);
}
