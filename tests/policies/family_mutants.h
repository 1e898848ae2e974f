/*
 * Shared by the tests of HelixPipe's and WeiPipe's mutants: one op of a program is broken, an oracle
 * with the errors of helix.h and weipipe.h (the same bits) judges, and the verifier must agree.
 */
#ifndef SP_TESTS_FAMILY_MUTANTS_H
#define SP_TESTS_FAMILY_MUTANTS_H

#include "policies/mutants.h"
#include "policies/simulation/verify.h"
#include <errno.h>

enum { DROP, DOUBLE, FOREIGN, CHANGE, OVERLAP, SWAP, NEXT, MOVE, RENAME, KINDS };
static const char *const kind_name[KINDS] = {"drop", "double",       "foreign", "change", "overlap",
                                             "swap", "swap of next", "move",    "rename"};
static int rejected[KINDS], legal[KINDS], reasons[6];

/* Each family has its own: */

/* Makes an op that is not of the family, or of another stage; reason[n] is the verifier's message. */
static void make_foreign(const struct sp_layout *lay, struct sp_op *op, char *reason, size_t n);

/* Turns an op into a duplicate, or into an op of another stage. */
static void change(const struct sp_layout *lay, struct sp_op *op);

/* Chooses two micro-batches that change places. */
static void choose(const struct sp_layout *lay, int *a, int *b);

/* Swaps two micro-batches everywhere. */
static void exchange(struct sp_plan *plan, int a, int b)
{
    for (int s = 0; s < plan->layout.stages; s++) {
        for (int k = 0; k < plan->programs[s].n; k++) {
            struct sp_op *op = &plan->programs[s].ops[k];

            op->mb = op->mb == a ? b : op->mb == b ? a : op->mb;
        }
    }
}

/* Breaks the plan; want[n] becomes the expected message, "" if the oracle is to judge. */
static void mutate(struct sp_plan *plan, int kind, char *want, size_t n)
{
    const struct sp_layout *lay = &plan->layout;
    int s = pick(lay->stages), k, j;
    struct sp_program *prog = &plan->programs[s];
    char text[SP_OP_TEXT], reason[64];
    struct sp_op op;

    k = pick(prog->n);
    j = pick(prog->n);
    *want = 0;
    switch (kind) {
    case DROP:
        op = take(prog, k);
        snprintf(want, n, "order: stage %d: %s is missing", s, sp_op_print(&op, 0, text));
        break;
    case DOUBLE:
        op = prog->ops[k];
        j = k + 1 + pick(prog->n - k);
        insert(prog, j, op);
        snprintf(want, n, "order: stage %d: %s appears twice (positions %d and %d)", s,
                 sp_op_print(&op, 0, text), k, j);
        break;
    case FOREIGN:
        make_foreign(lay, &prog->ops[k], reason, sizeof reason);
        snprintf(want, n, "order: stage %d: %s does not exist (%s", s,
                 sp_op_print(&prog->ops[k], 0, text), reason);
        break;
    case CHANGE:
        change(lay, &prog->ops[k]);
        break;
    case OVERLAP:
        prog->ops[k].overlap = 1; /* no op of these families does */
        snprintf(want, n, "order: stage %d: %s at position %d overlaps with ", s,
                 sp_op_print(&prog->ops[k], 0, text), k);
        break;
    case SWAP:
        swap(prog, another(k, prog->n), k);
        break;
    case NEXT:
        swap(prog, k, k + 1 < prog->n ? k + 1 : k - 1);
        break;
    case MOVE: /* one time in four to another stage */
        if (lay->stages > 1 && pick(4) == 0)
            insert(&plan->programs[(s + 1) % lay->stages], 0, take(prog, k));
        else
            insert(prog, j, take(prog, k));
        break;
    default:
        choose(lay, &j, &k);
        exchange(plan, j, k);
    }
}

/* True if the verifier's reason is among the errors that the oracle found. */
static bool holds(const char *why, int wrong)
{
    static const char *const table[] = {" does not exist (",
                                        " appears twice (",
                                        " is missing",
                                        " comes before its ",
                                        "order: deadlock with unbounded channels: stage ",
                                        "order: deadlock with first-in-first-out channels: stage "};

    for (int i = 0; i < 6; i++) {
        if (strstr(why, table[i])) {
            reasons[i]++;
            return wrong & 1 << i;
        }
    }
    return false;
}

/* Checks the verdict on a mutant: `wrong` are the oracle's errors. */
static void check_mutant(const struct sp_plan *plan, int kind, const char *want, int wrong)
{
    const struct sp_layout *lay = &plan->layout;
    char why[512] = "";
    int ret = sp_verify(plan, why, sizeof why);

    if (ret != (wrong || kind == OVERLAP ? -EINVAL : 0) || strncmp(why, want, strlen(want)) ||
        (ret && kind != OVERLAP && !holds(why, wrong)))
        fail_msg("%s %s %s p=%d L=%d m=%d: %d '%s', wanted '%s', the oracle finds %d",
                 kind_name[kind], plan->def->name, plan->options, lay->stages, lay->layers,
                 lay->micro_batches, ret, why, want, wrong);
    if (ret)
        rejected[kind]++;
    else
        legal[kind]++;
}

/* Prints the counts: no mutant of the kinds up to OVERLAP is legal, and each error was found. */
static void report(void)
{
    static const char *const causes[] = {"foreign", "twice", "missing", "early", "stuck", "turn"};

    for (int k = 0; k < KINDS; k++)
        print_message("%-12s %5d refused %5d legal\n", kind_name[k], rejected[k], legal[k]);
    for (int k = 0; k < 6; k++)
        print_message("refused as %-8s %5d\n", causes[k], reasons[k]);
    for (int k = 0; k < KINDS; k++)
        assert_true(rejected[k] > 0 && (k > OVERLAP || legal[k] == 0));
    for (int k = 0; k < 6; k++)
        assert_true(reasons[k] > 0);
}

#endif
