/*
 * Programs of WeiPipe broken in one place: the verifier must refuse exactly those that the oracle
 * of weipipe.h finds illegal, and for a true reason.
 */
#include "policies/mutants.h"
#include "policies/weipipe.h"
#include "policies/simulation/verify.h"
#include <errno.h>

enum { DROP, DOUBLE, FOREIGN, CHANGE, OVERLAP, SWAP, NEXT, MOVE, RENAME, KINDS };
static const char *const kind_name[KINDS] = {"drop", "double",       "foreign", "change", "overlap",
                                             "swap", "swap of next", "move",    "rename"};
static int rejected[KINDS], legal[KINDS], reasons[6], loose;

/* Makes an op that is not of the family, or of another worker; reason[n] is the verifier's
 * message. */
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

/* Swaps two micro-batches everywhere; half of the time they are of one worker. */
static void exchange(struct sp_plan *plan)
{
    const struct sp_layout *lay = &plan->layout;
    int a = pick(lay->micro_batches), b = another(a, lay->micro_batches);

    if (lay->micro_batches > lay->stages && pick(2))
        b = (a + lay->stages) % lay->micro_batches;
    for (int s = 0; s < lay->stages; s++) {
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
        op = prog->ops[k]; /* becomes a duplicate, or an op of another worker */
        if (lay->stages == 1 || pick(2))
            prog->ops[k].mb = another(op.mb, lay->micro_batches);
        else
            prog->ops[k].chunk = another(op.chunk, lay->stages);
        break;
    case OVERLAP:
        prog->ops[k].overlap = 1; /* no op of a ring does */
        snprintf(want, n, "order: stage %d: %s at position %d overlaps with ", s,
                 sp_op_print(&prog->ops[k], 0, text), k);
        break;
    case SWAP:
        swap(prog, another(k, prog->n), k);
        break;
    case NEXT:
        swap(prog, k, k + 1 < prog->n ? k + 1 : k - 1);
        break;
    case MOVE: /* one time in four to another worker */
        if (lay->stages > 1 && pick(4) == 0)
            insert(&plan->programs[(s + 1) % lay->stages], 0, take(prog, k));
        else
            insert(prog, j, take(prog, k));
        break;
    default:
        exchange(plan);
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

/* True if an op of a worker comes after one of a later turn, or of a later rank in its own turn. */
static bool out_of_turns(const struct weipipe *h)
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

/* One mutant of a plan, whose placement it shares. */
static void mutant(const struct sp_plan *whole, bool naive, int kind)
{
    const struct sp_layout *lay = &whole->layout;
    char want[128], why[512] = "";
    struct sp_plan plan = *whole;
    struct weipipe h;
    int wrong, ret;

    plan.deferred = NULL;
    plan.classes = (struct sp_op_classes){0};
    plan.order = NULL;
    plan.first_layer = NULL;
    plan.recompute = NULL;
    plan.programs = calloc((size_t)lay->stages, sizeof *plan.programs);
    assert_non_null(plan.programs);
    for (int s = 0; s < lay->stages; s++) {
        for (int k = 0; k < whole->programs[s].n; k++)
            sp_program_add_op(&plan.programs[s], whole->programs[s].ops[k]);
    }
    mutate(&plan, kind, want, sizeof want);
    assert_int_equal(sp_plan_index(&plan), 0);
    ret = sp_verify(&plan, why, sizeof why);
    weipipe_create(&plan, naive, &h);
    wrong = weipipe_judge(&h);
    loose += !ret && out_of_turns(&h);
    weipipe_destroy(&h);
    if (ret != (wrong || kind == OVERLAP ? -EINVAL : 0) || strncmp(why, want, strlen(want)) ||
        (ret && kind != OVERLAP && !holds(why, wrong)))
        fail_msg("%s %s p=%d m=%d: %d '%s', wanted '%s', the oracle finds %d", kind_name[kind],
                 weipipe_name(naive), lay->stages, lay->micro_batches, ret, why, want, wrong);
    if (ret)
        rejected[kind]++;
    else
        legal[kind]++;
    plan.map = NULL; /* the whole plan's */
    sp_plan_destroy(&plan);
}

static void mutants(void **state)
{
    static const char *const causes[] = {"foreign", "twice", "missing", "early", "stuck", "turn"};
    static const int table[][2] = {{1, 3}, {2, 1}, {2, 2}, {3, 1}, {3, 2}, {4, 2}, {2, 5}, {5, 3}};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof table / sizeof *table; i++) {
        const int *t = table[i / 2];
        struct sp_plan plan;

        weipipe_plan(i % 2, t[0], t[1], &plan);
        for (int k = 0; k < 200 * KINDS; k++)
            mutant(&plan, i % 2, k % KINDS);
        sp_plan_destroy(&plan);
    }
    for (int k = 0; k < KINDS; k++)
        print_message("%-12s %5d refused %5d legal\n", kind_name[k], rejected[k], legal[k]);
    for (int k = 0; k < 6; k++)
        print_message("refused as %-8s %5d\n", causes[k], reasons[k]);
    print_message("%d legal ones do not keep the order of their turns\n", loose);
    for (int k = 0; k < KINDS; k++)
        assert_true(rejected[k] > 0 && (k > OVERLAP || legal[k] == 0));
    assert_true(legal[NEXT] > 0);
    for (int k = 0; k < 6; k++)
        assert_true(reasons[k] > 0);
}

TEST_GROUP(weipipe_mutations)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutants),
    };

    seed = 1515;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
