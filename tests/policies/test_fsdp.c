/*
 * Fully sharded data parallelism: programs, times of gathering, step times and refusals, against an
 * oracle written only from the head of sharded_ops.c. Programs are also broken in one place: the
 * verifier must refuse exactly those that the oracle finds illegal.
 */
#include "policies/mutants.h"
#include "policies/families/sharded/shards.h"
#include "policies/plan_create.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/costs.h"
#include "policies/simulation/verify.h"
#include "policies/simulation/times.h"
#include <errno.h>
#include <math.h>

enum { MAX_P = 6, MAX_OPS = 400 };

/* Position of an op on a stage, -1: it is not there. */
static int find(const struct sp_plan *plan, int stage, enum sp_pass pass, int mb, int chunk)
{
    const struct sp_program *prog = &plan->programs[stage];

    for (int k = 0; k < prog->n; k++)
        if (prog->ops[k].pass == pass && prog->ops[k].mb == mb && prog->ops[k].chunk == chunk)
            return k;
    return -1;
}

/* Finds the ops that an op waits for: positions on its own stage, and one on the stage before; -1:
 * none. */
static void producers(const struct sp_plan *plan, int stage, int k, int own[2], int *other)
{
    const struct sp_layout *lay = &plan->layout;
    const struct sp_op *op = &plan->programs[stage].ops[k];
    int P = lay->stages, V = lay->chunks, before = (stage + P - 1) % P;
    int mb = op->mb / P * P + before, c = op->chunk;

    own[0] = own[1] = *other = -1;
    if (op->pass == SP_F) {
        if (c > 0)
            own[0] = find(plan, stage, SP_F, op->mb, c - 1);
        if (P > 1 && c > 1)
            *other = find(plan, before, SP_F, mb, c - 2);
    } else {
        own[0] = find(plan, stage, SP_F, op->mb, c);
        if (c < V - 1)
            own[1] = find(plan, stage, SP_B, op->mb, c + 1);
        if (P > 1 && c == V - 2)
            *other = find(plan, before, SP_F, mb, c);
        if (P > 1 && c < V - 2)
            *other = find(plan, before, SP_B, mb, c + 2);
    }
}

/* Plays the programs op by op; returns the makespan, negative if they do not come to their end. */
static double play(const struct sp_plan *plan, const struct sp_costs *c, double end[][MAX_OPS],
                   int *messages)
{
    const struct sp_layout *lay = &plan->layout;
    double share = (double)lay->stages / lay->chunks, makespan = 0;
    int pc[MAX_P] = {0}, left = sp_plan_ops(plan), moved = 1;

    *messages = 0;
    while (left > 0 && moved) {
        moved = 0;
        for (int s = 0; s < lay->stages; s++) {
            int k = pc[s], own[2], other, before = (s + lay->stages - 1) % lay->stages;
            const struct sp_op *op = &plan->programs[s].ops[k];
            double start = k > 0 ? end[s][k - 1] : 0;

            if (k == plan->programs[s].n)
                continue;
            producers(plan, s, k, own, &other);
            if (own[0] >= k || own[1] >= k)
                return -1;
            if (other >= 0 && other >= pc[before])
                continue;
            if (other >= 0) {
                start = fmax(start, end[before][other] + c->comm);
                ++*messages;
            }
            end[s][k] = start + share * (op->pass == SP_F ? c->f : c->b + c->w);
            makespan = fmax(makespan, end[s][k]);
            pc[s]++;
            left--;
            moved = 1;
        }
    }
    return left > 0 ? -1 : makespan;
}

static double end[MAX_P][MAX_OPS];

/* Programs and times. */
TEST(orders)
{
    int plans = 0;

    for (int p = 1; p <= MAX_P; p++)
        for (int rounds = 1; rounds <= 3; rounds++)
            for (int V = 1; V <= 9; V++) {
                struct sp_layout lay = layout_of(p, p * rounds, V, 1);
                struct sp_plan plan;

                assert_int_equal(sp_plan_create("fsdp", &lay, &plan), 0);
                for (int s = 0; s < p; s++) {
                    assert_int_equal(plan.programs[s].n, 2 * V * rounds);
                    for (int k = 0; k < 2 * V * rounds; k++) {
                        const struct sp_op *op = &plan.programs[s].ops[k];
                        int at = k % (2 * V);

                        assert_int_equal(op->mb, k / (2 * V) * p + s);
                        assert_int_equal(op->pass, at < V ? SP_F : SP_B);
                        assert_int_equal(op->chunk, at < V ? at : 2 * V - 1 - at);
                    }
                }
                for (int i = 0; i < 6; i++) {
                    struct sp_costs c = {.f = 1 + 0.25 * i, .b = 1, .w = 0.5 * i, .comm = 0.6 * i};
                    int messages;
                    struct sp_times t;
                    char why[256];
                    double want = play(&plan, &c, end, &messages);

                    assert_int_equal(sp_listsim(&plan, &c, SP_UNBOUNDED, &t, why, sizeof why), 0);
                    assert_true(fabs(t.makespan - want) < 1e-9 * want);
                    assert_int_equal(t.messages, messages);
                    if (c.comm <= 0 || V == 1 || p == 1)
                        assert_true(fabs(want - plan.def->makespan(&lay, c.f, c.b, c.w)) <
                                    1e-9 * want);
                    for (int s = 0; s < p; s++) {
                        assert_int_equal(t.peak_live[s], V);
                        for (int k = 0; k < plan.programs[s].n; k++)
                            assert_true(fabs(t.end[s][k] - end[s][k]) < 1e-9 * want);
                    }
                    sp_times_destroy(&t);
                }
                sp_plan_destroy(&plan);
                plans++;
            }
    print_message("%d plans\n", plans);
}

/* Two units fit at once. A unit is gathered while earlier ops run and must be there when its own op
 * begins; a unit that is still gathered is not gathered again. Returns the number of gathers. */
static int gathered(const struct sp_program *prog)
{
    int slots[2] = {prog->ops[0].chunk, -1}, now = 0, n = 1;

    for (int k = 0; k < prog->n; k++) {
        int next;

        if (slots[now] != prog->ops[k].chunk)
            now = !now;
        assert_int_equal(slots[now], prog->ops[k].chunk);
        next = sp_shards_prefetch(prog, k);
        if (next < 0)
            continue;
        assert_true(next > k);
        for (int i = k; i < next; i++)
            assert_int_equal(prog->ops[i].chunk, slots[now]);
        assert_int_not_equal(prog->ops[next].chunk, slots[0]);
        assert_int_not_equal(prog->ops[next].chunk, slots[1]);
        slots[!now] = prog->ops[next].chunk;
        n++;
    }
    return n;
}

TEST(gathers)
{
    seed = 11;
    for (int V = 1; V <= 9; V++)
        for (int rounds = 1; rounds <= 4; rounds++) {
            struct sp_layout lay = layout_of(2, 2 * rounds, V, 1);
            struct sp_plan plan;

            assert_int_equal(sp_plan_create("fsdp", &lay, &plan), 0);
            /* two units at each round's turning points are still gathered */
            assert_int_equal(gathered(&plan.programs[1]), V == 1 ? 1 : 2 + (2 * V - 4) * rounds);
            sp_plan_destroy(&plan);
        }
    for (int i = 0; i < 20000; i++) { /* any order at all */
        struct sp_program prog = {0};
        int units = 1 + pick(5), n = 1 + pick(30);

        for (int k = 0; k < n; k++)
            sp_program_add(&prog, SP_F, k, pick(units));
        gathered(&prog);
        sp_program_clear(&prog);
    }
}

/* By default a unit is a layer. */
TEST(units)
{
    struct sp_layout lay = layout_of(4, 8, 0, 1);
    struct sp_plan plan;

    assert_int_equal(sp_plan_create("fsdp", &lay, &plan), 0);
    assert_int_equal(plan.layout.chunks, 4);
    sp_plan_destroy(&plan);
    lay.layers = 7;
    assert_int_equal(sp_plan_create("fsdp", &lay, &plan), 0);
    assert_int_equal(plan.layout.chunks, 7);
    sp_plan_destroy(&plan);
    /* as many ops as micro-batches and units make, not workers times as many */
    lay = (struct sp_layout){
        .stages = 256, .micro_batches = 256, .slices = 1, .layers = 96, .options = ""};
    assert_int_equal(sp_plan_create("fsdp", &lay, &plan), 0);
    sp_plan_destroy(&plan);
}

TEST(refusals)
{
    struct sp_layout lay = layout_of(4, 8, 6, 1);

    assert_no_plan("fsdp", layout_of(4, 10, 4, 1), "use --micro-batches 8 or 12");
    assert_no_plan("fsdp", layout_of(4, 3, 4, 1), "use --micro-batches 4");
    lay.slices = 2;
    assert_no_plan("fsdp", lay, "use --slices 1");
    lay.slices = 1;
    lay.layers = 5;
    assert_no_plan("fsdp", lay, "6 chunks are more than the 5 layers of the model; use --chunks 5");
    assert_no_plan("fsdp", layout_of(2, 65536, 200, 1), "make one of them smaller");
}

/* Other orders than that of the baseline: all forwards first, and unit by unit. */
TEST(other_orders)
{
    for (int p = 1; p <= 4; p++)
        for (int rounds = 1; rounds <= 3; rounds++)
            for (int V = 1; V <= 6; V++)
                for (int by_unit = 0; by_unit < 2; by_unit++) {
                    struct sp_layout lay = layout_of(p, p * rounds, V, 1);
                    struct sp_plan plan;
                    char why[512] = "";
                    int messages;

                    assert_int_equal(sp_plan_create("fsdp", &lay, &plan), 0);
                    for (int s = 0; s < p; s++) {
                        struct sp_program *prog = &plan.programs[s];

                        prog->n = 0;
                        for (int k = 0; k < V * rounds; k++)
                            sp_program_add(prog, SP_F, (by_unit ? k % rounds : k / V) * p + s,
                                           by_unit ? k / rounds : k % V);
                        for (int k = 0; k < V * rounds; k++)
                            sp_program_add(prog, SP_B, (by_unit ? k % rounds : k / V) * p + s,
                                           V - 1 - (by_unit ? k / rounds : k % V));
                        gathered(prog);
                    }
                    assert_true(play(&plan, &sp_costs_unit, end, &messages) > 0);
                    if (sp_verify(&plan, why, sizeof why))
                        fail_msg("p=%d rounds=%d V=%d: %s", p, rounds, V, why);
                    sp_plan_destroy(&plan);
                }
}

enum { DROP, DOUBLE, FOREIGN, SWAP, NEXT, MOVE, RENAME, KINDS };

/* Breaks the plan; want[n] becomes the expected message, "" if the oracle is to judge. */
static void mutate(struct sp_plan *plan, int kind, char *want, size_t n)
{
    const struct sp_layout *lay = &plan->layout;
    int s = pick(lay->stages);
    struct sp_program *prog = &plan->programs[s];
    int k = pick(prog->n), j = pick(prog->n);
    char text[SP_OP_TEXT];
    struct sp_op op = prog->ops[k];

    *want = 0;
    switch (kind) {
    case DROP:
        take(prog, k);
        snprintf(want, n, "order: stage %d: %s is missing", s, sp_op_print(&op, 0, text));
        break;
    case DOUBLE:
        insert(prog, k + 1, op);
        snprintf(want, n, "order: stage %d: %s appears twice (positions %d and %d)", s,
                 sp_op_print(&op, 0, text), k, k + 1);
        break;
    case FOREIGN:
        switch (pick(5)) {
        case 0:
            prog->ops[k].mb = lay->micro_batches + pick(3);
            break;
        case 1:
            prog->ops[k].chunk = pick(2) ? lay->chunks + pick(3) : -1;
            break;
        case 2:
            prog->ops[k].mb = lay->stages > 1 ? another(s, lay->stages) : -1;
            break;
        case 3:
            prog->ops[k].pass = pick(2) ? SP_W : SP_R;
            break;
        default:
            prog->ops[k].part = SP_HEAD;
        }
        snprintf(want, n, "order: stage %d: %s does not exist (", s,
                 sp_op_print(&prog->ops[k], 0, text));
        break;
    case SWAP:
        swap(prog, k, j);
        break;
    case NEXT:
        swap(prog, k, (k + 1) % prog->n);
        break;
    case MOVE:
        take(prog, k);
        insert(prog, j < prog->n ? j : prog->n, op);
        break;
    default: { /* swaps two micro-batches of a worker */
        int rounds = lay->micro_batches / lay->stages;
        int a = pick(rounds) * lay->stages + s,
            b = another(a / lay->stages, rounds) * lay->stages + s;

        for (int i = 0; i < prog->n; i++)
            prog->ops[i].mb = prog->ops[i].mb == a ? b : prog->ops[i].mb == b ? a : prog->ops[i].mb;
    }
    }
}

TEST(mutations)
{
    int rejected[KINDS] = {0}, legal[KINDS] = {0};

    seed = 7;
    for (int i = 0; i < 21000; i++) {
        struct sp_layout lay = layout_of(1 + pick(5), 0, 1 + pick(5), 1);
        char want[128], why[512] = "";
        int kind = i % KINDS, ret, messages;
        struct sp_plan plan;
        bool fine;

        lay.micro_batches = lay.stages * (1 + pick(3));
        assert_int_equal(sp_plan_create("fsdp", &lay, &plan), 0);
        mutate(&plan, kind, want, sizeof want);
        ret = sp_verify(&plan, why, sizeof why);
        fine = !*want && play(&plan, &sp_costs_unit, end, &messages) >= 0;
        if ((ret == 0) != fine || (ret && ret != -EINVAL) || strncmp(why, want, strlen(want)))
            fail_msg("mutant %d of kind %d, p=%d m=%d V=%d: %d '%s', the oracle says %s%s", i, kind,
                     lay.stages, lay.micro_batches, lay.chunks, ret, why,
                     fine ? "legal" : "illegal ", want);
        rejected[kind] += ret != 0;
        legal[kind] += ret == 0;
        sp_plan_destroy(&plan);
    }
    for (int k = 0; k < KINDS; k++)
        print_message("kind %d: %d refused, %d legal\n", k, rejected[k], legal[k]);
    assert_true(rejected[SWAP] > 100 && legal[SWAP] > 10 && rejected[RENAME] > 10 &&
                legal[RENAME] > 100);
}
