/*
 * Programs of HelixPipe broken in one place: the verifier must refuse exactly those that the oracle
 * of helix.h finds illegal, and for a true reason.
 */
#include "policies/mutants.h"
#include "policies/helix.h"
#include "policies/simulation/verify.h"

enum { DROP, DOUBLE, FOREIGN, OVERLAP, SWAP, NEXT, MOVE, CHANGE, RENAME, KINDS };
static const char *const kind_name[KINDS] = {"drop",         "double", "foreign", "overlap", "swap",
                                             "swap of next", "move",   "change",  "rename"};
static int rejected[KINDS], legal[KINDS], reasons[6], other_stream;

/* Makes an op that is not of the family, or of another stage; reason[n] is the verifier's
 * message. */
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
    case OVERLAP:
        prog->ops[k].overlap = 1; /* the last forward and the first backward are of one op */
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
        if (pick(4) == 0)
            insert(&plan->programs[(s + 1) % lay->stages], 0, take(prog, k));
        else
            insert(prog, j, take(prog, k));
        break;
    case CHANGE:
        op = prog->ops[k]; /* becomes a duplicate, or an op of another stage */
        if (lay->micro_batches > 1 && pick(2))
            prog->ops[k].mb = another(op.mb, lay->micro_batches);
        else
            prog->ops[k].chunk = another(op.chunk, lay->layers + 1);
        break;
    default:
        j = pick(lay->micro_batches);
        exchange(plan, j, another(j, lay->micro_batches));
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

/* One mutant of a plan, whose placement it shares. */
static void mutant(const struct sp_plan *whole, int fold, int kind)
{
    const struct sp_layout *lay = &whole->layout;
    char want[128], why[512] = "";
    struct sp_plan plan = *whole;
    struct helix h;
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
    helix_create(&plan, fold, &h);
    wrong = helix_judge(&h);
    h.streams = 1;
    other_stream += !ret && helix_order(&h);
    helix_destroy(&h);
    if (ret != (wrong || kind == OVERLAP ? -EINVAL : 0) || strncmp(why, want, strlen(want)) ||
        (ret && kind != OVERLAP && !holds(why, wrong)))
        fail_msg("%s p=%d L=%d m=%d %s: %d '%s', wanted '%s', the oracle finds %d", kind_name[kind],
                 lay->stages, lay->layers, lay->micro_batches, plan.options, ret, why, want, wrong);
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
    static const int table[][5] = {{1, 2, 1, 2, 0}, {2, 3, 1, 2, 0}, {2, 2, 2, 1, 0},
                                   {3, 3, 2, 1, 1}, {3, 5, 1, 1, 0}, {4, 4, 2, 1, 0},
                                   {2, 4, 3, 2, 0}, {4, 6, 1, 2, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const int *t = table[i];
        struct sp_plan plan;

        helix_plan(helix_name(t[2], t[4]), t[0], t[1], t[0] * t[2] * t[3], &plan);
        for (int k = 0; k < 300 * KINDS; k++)
            mutant(&plan, t[2], k % KINDS);
        sp_plan_destroy(&plan);
    }
    for (int k = 0; k < KINDS; k++)
        print_message("%-12s %5d refused %5d legal\n", kind_name[k], rejected[k], legal[k]);
    for (int k = 0; k < 6; k++)
        print_message("refused as %-8s %5d\n", causes[k], reasons[k]);
    print_message("%d legal ones would not be if all messages of two stages took turns\n",
                  other_stream);
    for (int k = 0; k < KINDS; k++)
        assert_true(rejected[k] > 0 && (k <= OVERLAP || k == CHANGE) == (legal[k] == 0));
    for (int k = 0; k < 6; k++)
        assert_true(reasons[k] > 0);
    assert_true(other_stream > 0);
}

TEST_GROUP(helix_mutations)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutants),
    };

    seed = 4711;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
