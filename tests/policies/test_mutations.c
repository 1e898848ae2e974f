/*
 * Programs of every schedule, broken in one place: the verifier must refuse exactly those that the
 * oracle of layers.h finds illegal, and for a true reason.
 */
#include "policies/layers.h"
#include "policies/mutants.h"
#include "policies/registry.h"

enum { EACH = 60 }; /* mutants of a kind, schedule and layout */

static void make_foreign(const struct sp_layout *lay, struct sp_op *op, char *reason, size_t n)
{
    switch (pick(5)) {
    case 0:
        op->mb = lay->micro_batches + pick(3);
        snprintf(reason, n, "%d micro-batches", lay->micro_batches);
        break;
    case 1:
        op->mb = -1 - pick(3);
        snprintf(reason, n, "%d micro-batches", lay->micro_batches);
        break;
    case 2:
        op->chunk = pick(2) ? lay->chunks + pick(2) : -1;
        snprintf(reason, n, "%d chunk%s", lay->chunks, lay->chunks > 1 ? "s" : "");
        break;
    case 3:
        op->slice = (unsigned short)(lay->slices + pick(2));
        snprintf(reason, n, "%d slice%s", lay->slices, lay->slices > 1 ? "s" : "");
        break;
    default:
        op->part = SP_ATTN;
        snprintf(reason, n, "no op of the family ");
    }
}

/* A different value of one field that has more than one. */
static void change(const struct sp_layout *lay, struct sp_op *op)
{
    struct sp_op old = *op;

    while (!memcmp(&old, op, sizeof old)) {
        switch (pick(4)) {
        case 0:
            op->mb = another(op->mb, lay->micro_batches);
            break;
        case 1:
            op->chunk = another(op->chunk, lay->chunks);
            break;
        case 2:
            op->slice = (unsigned short)another(op->slice, lay->slices);
            break;
        default:
            op->pass = (unsigned char)another(op->pass, SP_PASSES);
        }
    }
}

static void choose(const struct sp_layout *lay, int *a, int *b)
{
    *a = pick(lay->micro_batches);
    *b = another(*a, lay->micro_batches);
}

/* Tries layouts, some of which each schedule takes. */
static int mutate_schedule(const char *name)
{
    static const int table[][4] = {{1, 1, 0, 1}, {2, 3, 0, 1},  {2, 4, 2, 1}, {3, 7, 0, 1},
                                   {4, 8, 0, 1}, {4, 8, 2, 1},  {4, 9, 3, 2}, {3, 3, 0, 3},
                                   {4, 8, 0, 4}, {6, 12, 0, 1}, {2, 6, 4, 1}};
    int layouts = 0;

    seed = 4711; /* the same mutants whatever came before */
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sp_layout lay = layout_of(table[i][0], table[i][1], table[i][2], table[i][3]);
        struct sp_plan whole;
        struct capture c;
        int ret;

        ret = CAPTURED(&c, sp_plan_create(name, &lay, &whole));
        if (ret)
            continue;
        for (int k = 0; k < KINDS * EACH && layers_cover(&whole); k++) {
            struct mutant mutant;
            struct oracle oracle;

            mutant_create(&whole, k % KINDS, &mutant);
            layers_create(&mutant.plan, &oracle);
            mutant_judge(&mutant, &oracle);
            oracle_destroy(&oracle);
            mutant_destroy(&mutant);
        }
        layouts += layers_cover(&whole);
        sp_plan_destroy(&whole);
    }
    return layouts;
}

TEST(mutants)
{
    const struct sp_schedule_def *def;

    for (int i = 0; (def = sp_schedule_at(i)); i++) {
        int layouts = mutate_schedule(def->name);

        print_message("%-14s %d mutants on %d layouts\n", def->name, KINDS * EACH * layouts,
                      layouts);
        if (layers_cover_family(def->family))
            assert_true(layouts > 0);
    }
    report();
    assert_true(legal[SWAP] > 0 && legal[MOVE] > 0);
    for (int k = 0; k < WRONGS; k++)
        assert_true(reasons[k] > 0);
}
