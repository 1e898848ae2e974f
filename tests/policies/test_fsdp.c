/*
 * Fully sharded data parallelism: programs, times of gathering, step times and refusals, against an
 * oracle written only from the head of sharded_ops.c. Programs are also broken in one place: the
 * verifier must refuse exactly those that the oracle finds illegal.
 */
#include "policies/families/sharded/shards.h"
#include "policies/mutants.h"

enum { MAX_P = 6 };

/* ---- the oracle ------------------------------------------------------------------------------- */

static int number(const struct oracle *o, int pass, int mb, int chunk)
{
    return ((pass == SP_B) * o->m + mb) * o->v + chunk;
}

static int fsdp_id(const struct oracle *o, int stage, const struct sp_op *op)
{
    if (op->part != SP_CHUNK || (op->pass != SP_F && op->pass != SP_B) || op->slice || op->mb < 0 ||
        op->mb >= o->m || op->mb % o->p != stage || op->chunk < 0 || op->chunk >= o->v)
        return -1;
    return number(o, op->pass, op->mb, op->chunk);
}

/* Ops of its own micro-batch, and an earlier one of the stage before. */
static int fsdp_waits(const struct oracle *o, int stage, const struct sp_op *op,
                      struct oracle_wait out[ORACLE_WAITS])
{
    int before = (stage + o->p - 1) % o->p, mb = op->mb / o->p * o->p + before, c = op->chunk;
    int last = o->v - 1, n = 0;

#define WAIT(at, pass, mb, chunk)                                                                  \
    (out[n++] = (struct oracle_wait){at, o->place[number(o, pass, mb, chunk)]})
    if (op->pass == SP_F) {
        if (c > 0)
            WAIT(stage, SP_F, op->mb, c - 1);
        if (o->p > 1 && c > 1)
            WAIT(before, SP_F, mb, c - 2);
        return n;
    }
    WAIT(stage, SP_F, op->mb, c);
    if (c < last)
        WAIT(stage, SP_B, op->mb, c + 1);
    if (o->p > 1 && c == last - 1)
        WAIT(before, SP_F, mb, c);
    if (o->p > 1 && c < last - 1)
        WAIT(before, SP_B, mb, c + 2);
#undef WAIT
    return n;
}

static double fsdp_cost(const struct oracle *o, const struct sp_costs *c, int stage,
                        const struct sp_op *op)
{
    (void)stage;
    return (double)o->p / o->v * (op->pass == SP_F ? c->f : c->b + c->w);
}

/* A gather is not a message that could arrive out of turn. */
static int fsdp_channel(const struct oracle *o, const struct sp_op *op)
{
    (void)o;
    (void)op;
    return -1;
}

static int fsdp_live(const struct oracle *o, int stage, const struct sp_op *op)
{
    (void)o;
    (void)stage;
    return op->pass == SP_F ? 1 : -1;
}

static void fsdp_create(const struct sp_plan *plan, struct oracle *o)
{
    static const struct oracle_family family = {.id = fsdp_id,
                                                .waits = fsdp_waits,
                                                .cost = fsdp_cost,
                                                .channel = fsdp_channel,
                                                .live = fsdp_live};
    int ids = 2 * plan->layout.micro_batches * plan->layout.chunks;

    *o = (struct oracle){.family = &family, .ids = ids, .required = ids};
    oracle_create(plan, o);
}

/* ---- orders ------------------------------------------------------------------------------------ */

/* Programs and times. */
TEST(orders)
{
    int plans = 0;

    for (int p = 1; p <= MAX_P; p++)
        for (int rounds = 1; rounds <= 3; rounds++)
            for (int V = 1; V <= 9; V++) {
                struct sp_plan plan;
                struct oracle o;

                make_plan_of("fsdp", layout_of(p, p * rounds, V, 1), &plan);
                fsdp_create(&plan, &o);
                assert_int_equal(oracle_judge(&o), 0);
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

                    oracle_compare(&o, &c, SP_UNBOUNDED, 1e-9);
                    if (c.comm <= 0 || V == 1 || p == 1)
                        assert_true(oracle_near(o.makespan, formula_of(&plan, &c), 1e-9));
                    for (int s = 0; s < p; s++)
                        assert_int_equal(o.peak[s], V);
                }
                oracle_done(&plan, &o);
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
            struct sp_plan plan;

            make_plan_of("fsdp", layout_of(2, 2 * rounds, V, 1), &plan);
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

    make_plan_of("fsdp", lay, &plan);
    assert_int_equal(plan.layout.chunks, 4);
    sp_plan_destroy(&plan);
    lay.layers = 7;
    make_plan_of("fsdp", lay, &plan);
    assert_int_equal(plan.layout.chunks, 7);
    sp_plan_destroy(&plan);
    /* as many ops as micro-batches and units make, not workers times as many */
    lay = (struct sp_layout){
        .stages = 256, .micro_batches = 256, .slices = 1, .layers = 96, .options = ""};
    make_plan_of("fsdp", lay, &plan);
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
                    struct sp_plan plan;
                    struct oracle o;
                    char why[512] = "";

                    make_plan_of("fsdp", layout_of(p, p * rounds, V, 1), &plan);
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
                    fsdp_create(&plan, &o);
                    assert_int_equal(oracle_judge(&o), 0);
                    oracle_destroy(&o);
                    if (sp_verify(&plan, why, sizeof why))
                        fail_msg("p=%d rounds=%d V=%d: %s", p, rounds, V, why);
                    sp_plan_destroy(&plan);
                }
}

/* ---- mutants ----------------------------------------------------------------------------------- */

static void make_foreign(const struct sp_layout *lay, struct sp_op *op, char *reason, size_t n)
{
    snprintf(reason, n, "%s", "");
    switch (pick(5)) {
    case 0:
        op->mb = lay->micro_batches + pick(3);
        break;
    case 1:
        op->chunk = pick(2) ? lay->chunks + pick(3) : -1;
        break;
    case 2:
        op->mb = lay->stages > 1 ? (op->mb + 1) % lay->micro_batches : -1;
        break;
    case 3:
        op->pass = pick(2) ? SP_W : SP_R;
        break;
    default:
        op->part = SP_HEAD;
    }
}

static void change(const struct sp_layout *lay, struct sp_op *op)
{
    if (pick(2))
        op->mb = another(op->mb, lay->micro_batches);
    else
        op->chunk = another(op->chunk, lay->chunks);
}

/* Two micro-batches of a worker. */
static void choose(const struct sp_layout *lay, int *a, int *b)
{
    int rounds = lay->micro_batches / lay->stages;

    *a = pick(lay->micro_batches);
    *b = another(*a / lay->stages, rounds) * lay->stages + *a % lay->stages;
}

TEST(mutations)
{
    seed = 7;
    for (int i = 0; i < 3000 * KINDS; i++) {
        struct sp_layout lay = layout_of(1 + pick(5), 0, 1 + pick(5), 1);
        struct mutant mutant;
        struct sp_plan whole;
        struct oracle o;

        lay.micro_batches = lay.stages * (1 + pick(3));
        make_plan_of("fsdp", lay, &whole);
        mutant_create(&whole, i % KINDS, &mutant);
        fsdp_create(&mutant.plan, &o);
        mutant_judge(&mutant, &o);
        oracle_destroy(&o);
        mutant_destroy(&mutant);
        sp_plan_destroy(&whole);
    }
    report();
    assert_true(rejected[SWAP] > 100 && legal[SWAP] > 10 && rejected[RENAME] > 10 &&
                legal[RENAME] > 100);
}
