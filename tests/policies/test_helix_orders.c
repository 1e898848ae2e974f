/*
 * HelixPipe's orders: the published ones op by op and message by message, the closed form if the
 * stages divide the layers, and the rules that every other order must obey.
 */
#include "policies/helix.h"
#include "policies/reference.h"

static struct sp_op make_op(int pass, int part, int mb, int j)
{
    return (struct sp_op){
        .pass = (unsigned char)pass, .part = (unsigned char)part, .mb = mb, .chunk = j};
}

static void assert_same_op(const struct sp_plan *plan, int s, int k, const struct sp_op *want)
{
    const struct sp_op *op = &plan->programs[s].ops[k];
    char text[SP_OP_TEXT], other[SP_OP_TEXT];

    if (op->pass != want->pass || op->part != want->part || op->mb != want->mb ||
        op->chunk != want->chunk || op->slice || op->overlap)
        fail_msg("%s: op %d of stage %d is %s, not %s", describe(plan), k, s,
                 sp_op_print(op, 0, text), sp_op_print(want, 0, other));
}

/* The message that an op sends, as the reference files write it: its tensors and where it goes,
 * -1: nowhere. */
static int message(const struct oracle *h, const struct sp_op *op, char *text, size_t n)
{
    int link = op->part == SP_ATTN ? 2 * op->chunk + 1 : 2 * op->chunk, mb = op->mb, l = link / 2;
    int next = op->pass == SP_F ? link + 1 : link - 1, dst;

    if (next < 0 || next > 2 * h->L)
        return -1;
    dst = helix_stage(h, mb, next);
    if (op->pass == SP_F && link % 2)
        snprintf(text, n, "r%d@%d o%d@%d", mb, l, mb, l);
    else if (op->pass == SP_F)
        snprintf(text, n, "x%d@%d w%d@%d b%d@%d r%d@%d", mb, l, mb, l, mb, l, mb, l);
    else if (link % 2)
        snprintf(text, n, "dx%d@%d dw%d@%d db%d@%d dr%d@%d", mb, l, mb, l, mb, l, mb, l);
    else
        snprintf(text, n, "dr%d@%d do%d@%d", mb, l - 1, mb, l - 1);
    return dst == helix_stage(h, mb, link) ? -1 : dst;
}

/* Compares the makespan with the file's: any block takes 1, attention 2, a backward twice as
 * long. */
static void compare_makespan(const struct sp_plan *plan, json_t *root)
{
    double *each = calloc((size_t)plan->family->ids(&plan->layout), sizeof *each);
    struct sp_costs c = {.by_op = each};

    assert_non_null(each);
    for (int s = 0; s < plan->layout.stages; s++) {
        for (int k = 0; k < plan->programs[s].n; k++) {
            const struct sp_op *op = &plan->programs[s].ops[k];

            each[plan->family->id(&plan->layout, s, op)] =
                (op->part == SP_ATTN ? 2 : 1) * (op->pass == SP_B ? 2 : 1);
        }
    }
    assert_true(makespan_of(plan, &c, SP_FIFO) == reference_number(json_object_get(root, "check"),
                                                                   "makespan_P1_A2_bP2_bA4_comm0",
                                                                   -1));
    free(each);
}

/* Messages and peaks of a plan are those of the file; returns how many messages. */
static int compare_messages(const struct sp_plan *plan, int fold, json_t *root)
{
    json_t *peaks = json_object_get(json_object_get(root, "check"), "peak_live_blocks");
    int messages = 0;
    struct sp_times t;
    struct oracle h;

    helix_create(plan, fold, &h);
    assert_int_equal(oracle_judge(&h), 0);
    for (int s = 0; s < h.p; s++) {
        json_t *sends = json_array_get(json_object_get(root, "comm"), (size_t)s);
        size_t n = 0;

        for (int k = 0; k < plan->programs[s].n; k++) {
            char text[96];
            int dst = message(&h, &plan->programs[s].ops[k], text, sizeof text);
            json_t *send = dst < 0 ? NULL : json_array_get(sends, n++);

            if (dst < 0)
                continue;
            assert_string_equal(json_string_value(json_array_get(send, 0)), "send");
            assert_int_equal(json_integer_value(json_array_get(send, 1)), dst);
            assert_string_equal(json_string_value(json_array_get(send, 2)), text);
            assert_int_equal(json_integer_value(json_array_get(send, 3)), k + 1);
        }
        assert_int_equal(json_array_size(sends), n);
        messages += (int)n;
    }
    play_plan(plan, &sp_costs_unit, SP_FIFO, &t);
    for (int s = 0; s < h.p; s++)
        assert_int_equal(json_integer_value(json_array_get(peaks, (size_t)s)), t.peak_live[s]);
    assert_int_equal(t.messages, messages);
    sp_times_destroy(&t);
    oracle_destroy(&h);
    return messages;
}

TEST(published)
{
    static const char *const names[] = {"helixpipe_p2_m2_L2_fold1", "helixpipe_p2_m4_L2_fold2",
                                        "helixpipe_p4_m4_L4_fold1", "helixpipe_p4_m8_L4_fold2"};

    for (int i = 0; i < 4; i++) {
        json_t *root = reference_load(names[i]);
        struct sp_layout lay = reference_layout(root);
        int fold = reference_integer(root, "num_fold", 0);
        struct sp_plan plan;

        make_plan_of(fold == 1 ? "helix:fold=1" : "helix", lay, &plan); /* by default, too */
        reference_compare(&plan, root);
        sp_plan_destroy(&plan);
        make_plan_of(helix_name(fold, false), lay, &plan);
        reference_compare(&plan, root);
        compare_makespan(&plan, root);
        print_message("%s: %d ops, %d messages\n", names[i], sp_plan_ops(&plan),
                      compare_messages(&plan, fold, root));
        sp_plan_destroy(&plan);
        json_decref(root);
    }
}

/* The forwards of stage r for V loops of p > 1 layers, by its closed form: `reps`
 * loops of f p micro-batches, the d-th f of which share a slot. */
static void closed_form(int p, int V, int reps, int f, int r, struct sp_program *out)
{
#define A(rep, d, l) sp_program_add_op(out, make_op(SP_F, SP_ATTN, ((rep)*p + (d)) * f + k, l))
#define P(rep, d, j) sp_program_add_op(out, make_op(SP_F, SP_BLOCK, ((rep)*p + (d)) * f + k, j))
    for (int k = 0; r == 0 && k < f; k++)
        P(0, 0, 0);
    for (int rep = 0; rep < reps; rep++) {
        for (int n = 0; n < r * f; n++) { /* warm-up */
            int d = r - 1 - n / f, k = n % f;

            A(rep, d, r - 1 - d);
            if (d == 0)
                P(rep, d, r);
        }
        for (int q = 0; q < V; q++) {
            for (int n = 0; q > 0 && n < (p - 1) * f; n++) {
                int d = p - 2 - n / f, k = n % f;

                A(rep, d, (q - 1) * p + r + p - 1 - d);
                if (d == 0)
                    P(rep, d, q * p + r);
            }
            for (int n = 0; n < (p - 1) * f; n++) {
                int d = 1 + n / f, k = n % f;

                if (r == 0 && q == 0 && rep > 0)
                    P(rep - 1, d, V * p);
                P(rep, d, q * p + r);
                if (d == p - 1)
                    A(rep, d, q * p + r);
            }
        }
        for (int n = 0; n < (p - 1 - r) * f; n++) { /* cool-down */
            int d = p - 2 - n / f, k = n % f;

            A(rep, d, (V - 1) * p + r + p - 1 - d);
            if (r == 0 && d == 0)
                P(rep, 0, V * p);
            if (r == 0 && d == 0 && rep + 1 < reps)
                P(rep + 1, 0, 0);
        }
    }
    for (int n = 0; r == 0 && n < (p - 1) * f; n++) {
        int k = n % f;

        P(reps - 1, 1 + n / f, V * p);
    }
#undef A
#undef P
}

static void follows_closed_form(const struct sp_plan *plan, int fold)
{
    int p = plan->layout.stages, reps = plan->layout.micro_batches / (p * fold);

    for (int s = 0; s < p; s++) {
        struct sp_program want = {0};

        closed_form(p, plan->layout.layers / p, reps, fold, s, &want);
        assert_int_equal(plan->programs[s].n, 2 * want.n);
        for (int k = 0; k < want.n; k++)
            assert_same_op(plan, s, k, &want.ops[k]);
        sp_program_clear(&want);
    }
}

/* The oracle checks placement and completeness. The backward reverses the forward, except for the
 * last `fold` ops of stage 0 in the published order. */
static void obeys_the_rules(const struct sp_plan *plan, int fold, bool reverse)
{
    struct oracle h;

    helix_create(plan, fold, &h);
    assert_int_equal(oracle_judge(&h), 0);
    for (int s = 0; s < h.p; s++) {
        int n = plan->programs[s].n, up = h.p > 1 && s == 0 && !reverse ? fold : 0;

        for (int k = 0; k < n / 2; k++) {
            struct sp_op op = plan->programs[s].ops[k];

            assert_int_equal(op.pass, SP_F);
            op.pass = SP_B;
            if (n - 1 - k < n - up)
                assert_same_op(plan, s, n - 1 - k, &op);
        }
        for (int i = 0; i < up; i++) {
            struct sp_op op = make_op(SP_B, SP_BLOCK, i, 0);

            assert_same_op(plan, s, n - up + i, &op);
        }
    }
    oracle_destroy(&h);
}

TEST(every_order)
{
    int plans = 0, even = 0, ops = 0;

    for (int p = 1; p <= 6; p++) {
        for (int L = p; L <= 13; L++) {
            for (int i = 0; i < 3 * 3 * 2; i++) { /* folds, loops, tails */
                int fold = i % 3 + 1, m = p * fold * (i / 3 % 3 + 1), reverse = i / 9;
                struct sp_plan plan;

                helix_plan(helix_name(fold, reverse), p, L, m, &plan);
                obeys_the_rules(&plan, fold, reverse);
                if (p > 1 && L % p == 0) {
                    follows_closed_form(&plan, fold);
                    even++;
                }
                plans++;
                ops += sp_plan_ops(&plan);
                sp_plan_destroy(&plan);
            }
        }
    }
    print_message("%d plans, %d ops; %d of them follow the closed form\n", plans, ops, even);
}

static void assert_same_order(const char *a, const char *b, int p, int L, int m)
{
    struct sp_plan plan, other;

    helix_plan(a, p, L, m, &plan);
    helix_plan(b, p, L, m, &other);
    assert_same_programs(&plan, &other);
    sp_plan_destroy(&other);
    sp_plan_destroy(&plan);
}

/* The choice of what to ship does not change the order, and "helix" means fold 2. */
TEST(options)
{
    static const char *const names[] = {"helix:fold=2,qkv=weights", "helix:qkv=activations",
                                        "helix:qkv=auto", "helix:tail=reverse,fold=2"};

    for (int i = 0; i < 4; i++)
        assert_same_order("helix", names[i], 3, 7, 12);
}

/* The default tail is the reverse one, except with one layer a stage: then it is that of the
 * published orders. */
TEST(default_tail)
{
    for (int p = 1; p <= 4; p++) {
        for (int L = p; L <= 9; L++) {
            assert_same_order("helix", helix_name(2, L > p), p, L, 4 * p);
            assert_same_order("helix:fold=3", helix_name(3, L > p), p, L, 3 * p);
        }
    }
}

/* With ship=attention all but the MLPs counts as attention: checks the work of its stages, and that
 * the bubble is of MLPs alone. */
TEST(attention_shipped)
{
    static const double again[] = {0, 1};
    double longest = 0;

    for (int p = 1; p <= 6; p++)
        for (int L = p; L <= 18; L += p)
            for (int i = 0; i < 3 * 2 * 2; i++) {
                int fold = i % 3 + 1, m = p * fold * (i / 3 % 2 + 1);
                struct sp_costs c = {
                    .parts = {
                        .pre = 1, .attn = 3, .post = 2, .backward = 2, .again = again[i / 6]}};
                char name[48];
                struct sp_plan plan;
                double is, bound, work = (double)m * L / p * (6 * 3 + again[i / 6] * (3 - 2.0 / 9));
                double bubble = fold * (p - 1) * 16.0 / 9 * (3 + again[i / 6]);

                snprintf(name, sizeof name, "helix:fold=%d,ship=attention,tail=reverse", fold);
                helix_plan(name, p, L, m, &plan);
                bound = plan.def->makespan_of_parts(&plan.layout, &c.parts);
                assert_true(fabs(bound - work - bubble) < 1e-9 * bound);
                is = makespan_of(&plan, &c, SP_FIFO);
                if (is > bound * (1 + 1e-9) || is < work * (1 - 1e-9))
                    fail_msg("%s takes %g, at most %g", describe(&plan), is, bound);
                longest = fmax(longest, (is - work) / (bubble + (p == 1)));
                sp_plan_destroy(&plan);
            }
    print_message("bubbles of up to %.2f of the formula\n", longest);
    assert_true(longest > 0.99);
}

/* fold=auto is as good as the best of the folds, up to the terms that its formula leaves out. */
TEST(chosen_fold)
{
    static const double comm[] = {0, 0.25, 0.5, 1, 2, 4, 7};
    double worst = 1;
    int ones = 0, more = 0;

    for (int p = 2; p <= 8; p += 2)
        for (int L = 2 * p; L <= 4 * p; L += 2 * p)
            for (int m = p; m <= 4 * p; m += p)
                for (size_t i = 0; i < sizeof comm / sizeof *comm; i++) {
                    struct sp_costs c = sp_costs_unit;
                    struct sp_layout lay = helix_layout(p, L, m);
                    double makespan[5], least = HUGE_VAL;

                    c.comm = comm[i];
                    lay.costs = &c;
                    for (int fold = 0; fold <= 4; fold++) { /* 0: auto */
                        char name[32];
                        struct sp_plan plan;

                        snprintf(name, sizeof name, fold ? "helix:fold=%d" : "helix:fold=auto",
                                 fold);
                        make_plan_of(name, lay, &plan);
                        makespan[fold] = makespan_of(&plan, &c, SP_UNBOUNDED);
                        if (fold && p * fold <= m)
                            least = fmin(least, makespan[fold]);
                        sp_plan_destroy(&plan);
                    }
                    worst = fmax(worst, makespan[0] / least);
                    ones += makespan[0] == makespan[1];
                    more += makespan[0] < makespan[1];
                    if (makespan[0] > 1.03 * least)
                        fail_msg("p=%d L=%d m=%d comm=%g: fold=auto takes %g, the best %g", p, L, m,
                                 comm[i], makespan[0], least);
                }
    print_message("at most %.3f of the best fold; 1 in %d cases, more in %d\n", worst, ones, more);
    assert_true(ones > 10 && more > 10);
}
