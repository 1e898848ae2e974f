/*
 * Programs of every schedule, broken in one place. Dropped, doubled and foreign ops are refused
 * with the op, stage and place. For other mutants the oracle decides whether they are legal; the
 * verifier must refuse exactly the illegal ones, and for a true reason.
 */
#include "policies/mutants.h"
#include "policies/oracle.h"
#include "policies/registry.h"
#include "policies/plan_create.h"
#include "policies/simulation/verify.h"

enum { DROP, DOUBLE, FOREIGN, SWAP, MOVE, CHANGE, OVERLAP, KINDS };
static const char *const kind_name[KINDS] = {"drop", "double", "foreign", "swap",
                                             "move", "change", "overlap"};
enum { EACH = 60 }; /* mutants of a kind, schedule and layout */

static struct oracle oracle;
static int refused[KINDS], legal[KINDS], reasons[8];

/* Makes an op that is not of the family; reason[n] is the verifier's message. */
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

/* Breaks the plan; want[n] becomes the expected message, "" if the oracle is to judge. */
static void mutate(struct sp_plan *plan, int kind, char *want, size_t n)
{
    const struct sp_layout *lay = &plan->layout;
    int s = pick(lay->stages), sliced = lay->slices > 1, k, j;
    struct sp_program *prog = &plan->programs[s];
    char text[SP_OP_TEXT], reason[64];
    struct sp_op op;

    k = pick(prog->n);
    j = pick(prog->n);
    *want = 0;
    switch (kind) {
    case DROP:
        op = take(prog, k);
        if (op.pass == SP_F || op.pass == SP_B) /* without its W, a backward is a full one */
            snprintf(want, n, "order: stage %d: %s is missing", s, sp_op_print(&op, sliced, text));
        break;
    case DOUBLE:
        op = prog->ops[k];
        op.overlap = 0;
        j = k + 1 + pick(prog->n - k); /* somewhere behind itself */
        insert(prog, j, op);
        snprintf(want, n, "order: stage %d: %s appears twice (positions %d and %d)", s,
                 sp_op_print(&op, sliced, text), k, j);
        break;
    case FOREIGN:
        make_foreign(lay, &prog->ops[k], reason, sizeof reason);
        snprintf(want, n, "order: stage %d: %s does not exist (%s", s,
                 sp_op_print(&prog->ops[k], sliced, text), reason);
        break;
    case SWAP:
        swap(prog, j, k);
        break;
    case MOVE:
        op = take(prog, k);
        insert(prog, j, op);
        break;
    case CHANGE:
        change(lay, &prog->ops[k]);
        break;
    default:
        prog->ops[k].overlap ^= 1;
    }
}

/* True if the verifier's reason is among the errors that the oracle found. */
static bool holds(const char *why, int wrong)
{
    static const struct {
        int bit;
        const char *text;
    } table[] = {
        {WRONG_FOREIGN, " does not exist ("},
        {WRONG_TWICE, " appears twice ("},
        {WRONG_MISSING, " is missing"},
        {WRONG_EARLY, " comes before its "},
        {WRONG_EARLY, " comes after its "},
        {WRONG_PAIR, " overlaps with "},
        {WRONG_STUCK, "order: deadlock with unbounded channels: stage "},
        {WRONG_TURN, "order: deadlock with first-in-first-out channels: stage "},
        {WRONG_PAIRSTUCK, "order: deadlock of overlapped pairs: stage "},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strstr(why, table[i].text)) {
            reasons[__builtin_ctz((unsigned)table[i].bit)]++;
            return wrong & table[i].bit;
        }
    }
    return false;
}

/* One mutant of a plan, whose placement it shares. */
static void mutant(const struct sp_plan *whole, int kind)
{
    const struct sp_layout *lay = &whole->layout;
    char want[128], why[512] = "";
    struct sp_plan plan = mutant_create(whole);
    int wrong, ret;

    mutate(&plan, kind, want, sizeof want);
    assert_int_equal(sp_plan_index(&plan), 0);
    ret = sp_verify(&plan, why, sizeof why);
    oracle_create(&plan, &oracle);
    wrong = oracle_judge(&oracle);
    oracle_destroy(&oracle);
    if (ret != (wrong ? -EINVAL : 0) || (*want && strncmp(why, want, strlen(want))) ||
        (ret && !holds(why, wrong)))
        fail_msg("%s %s p=%d m=%d v=%d n=%d: %d '%s', wanted '%s', the oracle finds %d",
                 kind_name[kind], plan.def->name, lay->stages, lay->micro_batches, lay->chunks,
                 lay->slices, ret, why, want, wrong);
    if (ret)
        refused[kind]++;
    else
        legal[kind]++;
    mutant_destroy(&plan);
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
        struct sp_plan plan;
        struct capture c;
        int ret;

        ret = CAPTURED(&c, sp_plan_create(name, &lay, &plan));
        if (ret)
            continue;
        if (oracle_covers(&plan)) {
            for (int k = 0; k < KINDS * EACH; k++)
                mutant(&plan, k % KINDS);
            layouts++;
        }
        sp_plan_destroy(&plan);
    }
    return layouts;
}

TEST(mutants)
{
    static const char *const causes[] = {"foreign", "twice", "missing", "early",
                                         "pair",    "stuck", "turn",    "pairs stuck"};
    const struct sp_schedule_def *def;

    for (int i = 0; (def = sp_schedule_at(i)); i++) {
        int layouts = mutate_schedule(def->name);

        print_message("%-14s %d mutants on %d layouts\n", def->name, KINDS * EACH * layouts,
                      layouts);
        if (oracle_covers_family(def->family))
            assert_true(layouts > 0);
    }
    for (int k = 0; k < KINDS; k++)
        print_message("%-8s %6d refused %6d legal\n", kind_name[k], refused[k], legal[k]);
    for (int k = 0; k < 8; k++)
        print_message("refused as %-12s %6d\n", causes[k], reasons[k]);
    assert_int_equal(legal[DOUBLE] + legal[FOREIGN], 0);
    assert_true(legal[SWAP] > 0 && legal[MOVE] > 0 && refused[SWAP] > 0 && refused[MOVE] > 0);
}
