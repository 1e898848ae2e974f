/*
 * Programs of a family, broken in one place. The verifier must refuse exactly those that the oracle
 * finds illegal, and for a true reason. For some kinds of mutants the reason is known beforehand.
 */
#ifndef SP_TESTS_MUTANTS_H
#define SP_TESTS_MUTANTS_H

#include "policies/oracle.h"
#include "policies/simulation/verify.h"

static uint32_t seed; /* of pick: each test sets its own */

static inline int pick(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (uint32_t)n);
}

/* Another value below n, or the only one. */
static inline int another(int value, int n)
{
    return n > 1 ? (value + 1 + pick(n - 1)) % n : value;
}

enum { DROP, DOUBLE, FOREIGN, CHANGE, OVERLAP, SWAP, NEXT, MOVE, RENAME, KINDS };
static int rejected[KINDS], legal[KINDS], reasons[WRONGS];

/* Each family has its own: */

/* Makes an op that is not of the family, or of another stage; reason[n] is how the verifier's
 * message goes on, or begins to. */
static void make_foreign(const struct sp_layout *lay, struct sp_op *op, char *reason, size_t n);

/* Turns an op into a duplicate, or into an op of another stage. */
static void change(const struct sp_layout *lay, struct sp_op *op);

/* Chooses two micro-batches that change places. */
static void choose(const struct sp_layout *lay, int *a, int *b);

static void insert(struct sp_program *prog, int at, struct sp_op op)
{
    sp_program_add_op(prog, op);
    memmove(prog->ops + at + 1, prog->ops + at, (size_t)(prog->n - at - 1) * sizeof op);
    prog->ops[at] = op;
}

static struct sp_op take(struct sp_program *prog, int at)
{
    struct sp_op op = prog->ops[at];

    memmove(prog->ops + at, prog->ops + at + 1, (size_t)(prog->n - at - 1) * sizeof op);
    prog->n--;
    return op;
}

static void swap(struct sp_program *prog, int j, int k)
{
    struct sp_op op = prog->ops[j];

    prog->ops[j] = prog->ops[k];
    prog->ops[k] = op;
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

struct mutant {
    struct sp_plan plan; /* shares the placement of the whole one */
    int kind;
    char want[128]; /* how the verifier's message begins, "" if the oracle is to judge */
};

/* Breaks the plan and sets the message expected. */
static void mutate(struct mutant *mutant)
{
    const struct sp_layout *lay = &mutant->plan.layout;
    int s = pick(lay->stages), sliced = lay->slices > 1, k, j;
    struct sp_program *prog = &mutant->plan.programs[s];
    char text[SP_OP_TEXT], reason[64];
    struct sp_op op;

    k = pick(prog->n);
    j = pick(prog->n);
    op = prog->ops[k];
    sp_op_print(&op, sliced, text);
    *mutant->want = 0;
#define WANT(...) snprintf(mutant->want, sizeof mutant->want, "order: stage %d: " __VA_ARGS__)
    switch (mutant->kind) {
    case DROP:
        take(prog, k);
        if (op.pass == SP_F || op.pass == SP_B) /* without its W, a backward is a full one */
            WANT("%s is missing", s, text);
        break;
    case DOUBLE:
        op.overlap = 0;
        j = k + 1 + pick(prog->n - k); /* somewhere behind itself */
        insert(prog, j, op);
        WANT("%s appears twice (positions %d and %d)", s, text, k, j);
        break;
    case FOREIGN:
        make_foreign(lay, &prog->ops[k], reason, sizeof reason);
        WANT("%s does not exist (%s", s, sp_op_print(&prog->ops[k], sliced, text), reason);
        break;
    case CHANGE:
        change(lay, &prog->ops[k]);
        break;
    case OVERLAP:
        prog->ops[k].overlap ^= 1;
        if (!mutant->plan.family->facts.pairs)
            WANT("%s at position %d overlaps with ", s, text, k);
        break;
    case SWAP:
        swap(prog, another(k, prog->n), k);
        break;
    case NEXT:
        swap(prog, k, k + 1 < prog->n ? k + 1 : k - 1);
        break;
    case MOVE: /* one time in four to another stage */
        take(prog, k);
        if (lay->stages > 1 && pick(4) == 0)
            insert(&mutant->plan.programs[(s + 1) % lay->stages], 0, op);
        else
            insert(prog, j < prog->n ? j : prog->n, op);
        break;
    default:
        choose(lay, &j, &k);
        exchange(&mutant->plan, j, k);
    }
#undef WANT
}

static void mutant_create(const struct sp_plan *whole, int kind, struct mutant *mutant)
{
    struct sp_plan *plan = &mutant->plan;

    mutant->kind = kind;
    *plan = *whole;
    plan->deferred = NULL;
    plan->classes = (struct sp_op_classes){0};
    plan->order = NULL;
    plan->first_layer = NULL;
    plan->recompute = NULL;
    plan->programs = calloc((size_t)plan->layout.stages, sizeof *plan->programs);
    assert_non_null(plan->programs);
    for (int s = 0; s < plan->layout.stages; s++) {
        for (int k = 0; k < whole->programs[s].n; k++)
            sp_program_add_op(&plan->programs[s], whole->programs[s].ops[k]);
    }
    mutate(mutant);
    assert_int_equal(sp_plan_index(plan), 0);
}

static void mutant_destroy(struct mutant *mutant)
{
    mutant->plan.map = NULL; /* the whole plan's */
    sp_plan_destroy(&mutant->plan);
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

static const char *const kind_name[KINDS] = {"drop", "double",       "foreign", "change", "overlap",
                                             "swap", "swap of next", "move",    "rename"};

/* Checks the verdict on a mutant, of which `oracle` is the oracle. Returns the oracle's errors. */
static int mutant_judge(const struct mutant *mutant, struct oracle *oracle)
{
    int wrong = oracle_judge(oracle), ret;
    char why[512] = "";

    ret = sp_verify(&mutant->plan, why, sizeof why);
    if (ret != (wrong ? -EINVAL : 0) || strncmp(why, mutant->want, strlen(mutant->want)) ||
        (ret && !holds(why, wrong)))
        fail_msg("%s %s: %d '%s', wanted '%s', the oracle finds %d", kind_name[mutant->kind],
                 describe(&mutant->plan), ret, why, mutant->want, wrong);
    (ret ? rejected : legal)[mutant->kind]++;
    return wrong;
}

/* Prints the counts. No double and no foreign op is legal; other kinds are now and then. */
static void report(void)
{
    static const char *const causes[WRONGS] = {"foreign", "twice", "missing", "early",
                                               "stuck",   "turn",  "pair",    "pairs stuck"};

    for (int k = 0; k < KINDS; k++)
        print_message("%-12s %6d refused %6d legal\n", kind_name[k], rejected[k], legal[k]);
    for (int k = 0; k < WRONGS; k++)
        print_message("refused as %-12s %6d\n", causes[k], reasons[k]);
    for (int k = 0; k < KINDS; k++)
        assert_true(rejected[k] > 0);
    assert_int_equal(legal[DOUBLE] + legal[FOREIGN], 0);
}

#endif
