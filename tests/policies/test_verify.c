/* The verifier: what is right passes, what was broken is caught, with the op, stage and place. */
#include "common.h"
#include "policies/registry.h"

static uint32_t seed = 12345;

static int pick(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (uint32_t)n);
}

static void all_schedules_pass(void **state)
{
    const struct sp_schedule_def *def;
    int cases = 0;

    (void)state;
    for (int i = 0; (def = sp_schedule_at(i)); i++) {
        for (int p = 1; p <= 9; p++) {
            for (int m = 1; m <= 20; m++) {
                struct sp_plan plan;
                char why[256] = "";

                make_plan(def->name, p, m, &plan);
                if (sp_verify(&plan, why, sizeof why))
                    fail_msg("%s p=%d m=%d: %s", def->name, p, m, why);
                sp_plan_destroy(&plan);
                cases++;
            }
        }
    }
    print_message("%d plans verified\n", cases);
}

/* A random plan, as ground for mutations. */
static void some_plan(struct sp_plan *plan)
{
    static const char *const names[] = {"naive", "gpipe", "gpipe:backward=fifo", "1f1b"};

    make_plan(names[pick(4)], 1 + pick(6), 2 + pick(9), plan);
}

static void expect(const struct sp_plan *plan, const char *want)
{
    char why[512] = "";

    assert_int_equal(sp_plan_index((struct sp_plan *)plan), 0);
    assert_int_equal(sp_verify(plan, why, sizeof why), -EINVAL);
    assert_string_equal(why, want);
}

static void missing_ops(void **state)
{
    (void)state;
    for (int i = 0; i < 400; i++) {
        struct sp_plan plan;
        struct sp_program *prog;
        char want[128], text[SP_OP_TEXT];
        int s, k;

        some_plan(&plan);
        s = pick(plan.layout.stages);
        prog = &plan.programs[s];
        k = pick(prog->n);
        snprintf(want, sizeof want, "order: stage %d: %s is missing", s,
                 sp_op_print(&prog->ops[k], 0, text));
        memmove(prog->ops + k, prog->ops + k + 1, (size_t)(prog->n - k - 1) * sizeof *prog->ops);
        prog->n--;
        expect(&plan, want);
        sp_plan_destroy(&plan);
    }
}

static void doubled_ops(void **state)
{
    (void)state;
    for (int i = 0; i < 400; i++) {
        struct sp_plan plan;
        struct sp_program *prog;
        char want[128], text[SP_OP_TEXT];
        int s, k, at;

        some_plan(&plan);
        s = pick(plan.layout.stages);
        prog = &plan.programs[s];
        k = pick(prog->n);
        at = k + 1 + pick(prog->n - k); /* somewhere behind itself */
        sp_program_add_op(prog, prog->ops[k]);
        memmove(prog->ops + at + 1, prog->ops + at, (size_t)(prog->n - at - 1) * sizeof *prog->ops);
        prog->ops[at] = prog->ops[k];
        snprintf(want, sizeof want, "order: stage %d: %s appears twice (positions %d and %d)", s,
                 sp_op_print(&prog->ops[k], 0, text), k, at);
        expect(&plan, want);
        sp_plan_destroy(&plan);
    }
}

static void foreign_ops(void **state)
{
    (void)state;
    for (int i = 0; i < 400; i++) {
        struct sp_plan plan;
        struct sp_program *prog;
        struct sp_op *op;
        char want[128], text[SP_OP_TEXT], reason[64];
        int s, m;

        some_plan(&plan);
        m = plan.layout.micro_batches;
        s = pick(plan.layout.stages);
        prog = &plan.programs[s];
        op = &prog->ops[pick(prog->n)];
        snprintf(reason, sizeof reason, "%d micro-batches", m);
        switch (pick(5)) {
        case 0:
            op->mb = m + pick(3);
            break;
        case 1:
            op->mb = -1 - pick(3);
            break;
        case 2:
            op->chunk = 1;
            snprintf(reason, sizeof reason, "1 chunk");
            break;
        case 3:
            op->slice = 1;
            snprintf(reason, sizeof reason, "1 slice");
            break;
        default:
            op->part = SP_ATTN;
            snprintf(reason, sizeof reason, "no op of the family layerwise there");
        }
        snprintf(want, sizeof want, "order: stage %d: %s does not exist (%s)", s,
                 sp_op_print(op, 0, text), reason);
        expect(&plan, want);
        sp_plan_destroy(&plan);
    }
}

static int find(const struct sp_program *prog, int pass, int mb)
{
    int k = 0;

    while (k < prog->n && (prog->ops[k].pass != pass || prog->ops[k].mb != mb))
        k++;
    return k;
}

/* Whether the programs run to their end with unbounded channels: rounds over all stages. */
static bool runs(const struct sp_plan *plan)
{
    int p = plan->layout.stages, pc[16] = {0};

    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < p; s++) {
            const struct sp_program *prog = &plan->programs[s];
            const struct sp_op *op = &prog->ops[pc[s]];
            bool ready = pc[s] < prog->n;

            if (ready && op->pass == SP_F && s > 0)
                ready = find(&plan->programs[s - 1], SP_F, op->mb) < pc[s - 1];
            if (ready && op->pass == SP_B)
                ready = find(prog, SP_F, op->mb) < pc[s] &&
                        (s == p - 1 || find(&plan->programs[s + 1], SP_B, op->mb) < pc[s + 1]);
            pc[s] += ready;
            moved |= ready;
        }
    }
    for (int s = 0; s < p; s++) {
        if (pc[s] < plan->programs[s].n)
            return false;
    }
    return true;
}

/* Whether two neighbours have the ops of a pass in the same order. */
static bool same_order(const struct sp_program *a, const struct sp_program *b, int pass)
{
    int i = 0, j = 0;

    for (;; i++, j++) {
        while (i < a->n && a->ops[i].pass != pass)
            i++;
        while (j < b->n && b->ops[j].pass != pass)
            j++;
        if (i == a->n)
            return true;
        if (a->ops[i].mb != b->ops[j].mb)
            return false;
    }
}

static void swapped_ops(void **state)
{
    int early = 0, stuck = 0, out_of_turn = 0, legal = 0;

    (void)state;
    for (int i = 0; i < 3000; i++) {
        struct sp_plan plan;
        struct sp_program *prog;
        struct sp_op op;
        char why[512] = "", want[128], text[SP_OP_TEXT], other[SP_OP_TEXT];
        int s, j, k, first = -1, ret;
        bool agree = true;

        some_plan(&plan);
        s = pick(plan.layout.stages);
        prog = &plan.programs[s];
        j = pick(prog->n);
        k = (j + 1 + pick(prog->n - 1)) % prog->n;
        op = prog->ops[j];
        prog->ops[j] = prog->ops[k];
        prog->ops[k] = op;
        for (int b = 0; b < prog->n && first < 0; b++) {
            if (prog->ops[b].pass == SP_B && find(prog, SP_F, prog->ops[b].mb) > b)
                first = b;
        }
        for (int t = 0; t + 1 < plan.layout.stages; t++)
            agree = agree && same_order(&plan.programs[t], &plan.programs[t + 1], SP_F) &&
                    same_order(&plan.programs[t], &plan.programs[t + 1], SP_B);
        ret = sp_verify(&plan, why, sizeof why);
        if (first >= 0) {
            op = prog->ops[first];
            sp_op_print(&op, 0, text);
            op.pass = SP_F;
            snprintf(want, sizeof want, "order: stage %d: %s at position %d comes before its %s", s,
                     text, first, sp_op_print(&op, 0, other));
            assert_int_equal(ret, -EINVAL);
            assert_string_equal(why, want);
            early++;
        } else if (!runs(&plan)) {
            assert_int_equal(ret, -EINVAL);
            assert_non_null(strstr(why, "order: deadlock with unbounded channels: stage "));
            stuck++;
        } else if (!agree) {
            assert_int_equal(ret, -EINVAL);
            assert_non_null(strstr(why, "order: deadlock with first-in-first-out channels: "));
            out_of_turn++;
        } else if (ret) {
            assert_non_null(strstr(why, "order: deadlock with rendezvous channels: "));
        } else {
            legal++;
        }
        sp_plan_destroy(&plan);
    }
    print_message("swaps: %d before their forward, %d deadlocks, %d out of turn, %d legal\n", early,
                  stuck, out_of_turn, legal);
    assert_true(early > 100 && stuck > 100 && out_of_turn > 100 && legal > 10);
}

/* Each kind of channel refuses what only it does, and names what every blocked stage waits for. */
static void names_what_blocks(void **state)
{
    static const char *const crossed[] = {"F0 B0 F1 B1", "F0 F1 B0 B1"};
    static const char *const turned[] = {"F0 F1 B1 B0", "F1 F0 B1 B0"};
    static const char *const wide[] = {"F0 F1 F2 F0.1 F1.1 F2.1 B2.1 B1.1 B0.1 B2 B1 B0",
                                       "F0 F1 F2 F0.1 F1.1 F2.1 B2.1 B1.1 B0.1 B2 B1 B0"};
    struct sp_layout lay = layout(2, 2);
    struct sp_plan plan;

    (void)state;
    write_plan(lay, crossed, &plan);
    expect(&plan, "order: deadlock with unbounded channels: stage 0 at B0.0 waits for B0.0 of "
                  "stage 1; stage 1 at F1.0 waits for F1.0 of stage 0");
    sp_plan_destroy(&plan);

    write_plan(lay, turned, &plan);
    expect(&plan, "order: deadlock with first-in-first-out channels: stage 0 at B1.0 waits for "
                  "B1.0 of stage 1; stage 1 at F1.0 waits for the message of F0.0 from stage 0 to "
                  "stage 1 to be taken first");
    sp_plan_destroy(&plan);

    /* stage 0 runs on to chunk 1 only after its 3 of chunk 0: stage 1 sends the first too early */
    lay.micro_batches = 3;
    lay.chunks = 2;
    write_plan(lay, wide, &plan);
    expect(&plan, "order: deadlock with rendezvous channels: stage 0 at F2.0 waits for the message "
                  "of F1.0 from stage 0 to stage 1 to be taken first; stage 1 at F1.0 waits for "
                  "the message of F0.0 from stage 1 to stage 0 to be taken first");
    sp_plan_destroy(&plan);
}

/* W and R: each optional, at most once, in their place. */
static void optional_ops(void **state)
{
    static const struct {
        const char *line, *why;
    } table[] = {
        {"F0 B0 W0 F1 B1", NULL},
        {"F0 R0 B0 W0 F1 R1 B1 W1", NULL},
        {"F0 W0 B0 F1 B1", "order: stage 0: W0.0 at position 1 comes before its B0.0"},
        {"F0 B0 W0 F1 B1 W0", "order: stage 0: W0.0 appears twice (positions 2 and 5)"},
        {"R0 F0 B0 F1 B1", "order: stage 0: R0.0 at position 0 comes before its F0.0"},
        {"F0 B0 R0 F1 B1", "order: stage 0: R0.0 at position 2 comes after its B0.0"},
        {"F0 B0 F1 B1 W2", "order: stage 0: W2.0 does not exist (2 micro-batches)"},
        {"", "order: stage 0: F0.0 is missing"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sp_plan plan;
        char why[256] = "";

        write_plan(layout(1, 2), &table[i].line, &plan);
        if (table[i].why)
            expect(&plan, table[i].why);
        else
            assert_int_equal(sp_verify(&plan, why, sizeof why), 0);
        sp_plan_destroy(&plan);
    }
}

/* Slices of a sequence go forward in order and backward in reverse. */
static void slices_in_order(void **state)
{
    static const struct {
        const char *line, *why;
    } table[] = {
        {"F0s0 F0s1 F0s2 B0s2 B0s1 B0s0", NULL},
        {"F0s0 F0s2 F0s1 B0s2 B0s1 B0s0",
         "order: stage 0: F0s2 at position 1 comes before its F0s1"},
        {"F0s0 F0s1 F0s2 B0s2 B0s0 B0s1",
         "order: stage 0: B0s0 at position 4 comes before its B0s1"},
        /* on the last stage a backward needs the loss, so the whole sequence */
        {"F0s0 F0s1 B0s1 F0s2 B0s2 B0s0",
         "order: stage 0: B0s1 at position 2 comes before its F0s2"},
        {"F0s0 F0s1 F0s2 B0s2 B0s1", "order: stage 0: B0s0 is missing"},
    };
    struct sp_layout lay = layout(1, 1);

    (void)state;
    lay.slices = 3;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sp_plan plan;
        char why[256] = "";

        write_plan(lay, &table[i].line, &plan);
        if (table[i].why)
            expect(&plan, table[i].why);
        else
            assert_int_equal(sp_verify(&plan, why, sizeof why), 0);
        sp_plan_destroy(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_schedules_pass), cmocka_unit_test(missing_ops),
        cmocka_unit_test(doubled_ops),        cmocka_unit_test(foreign_ops),
        cmocka_unit_test(swapped_ops),        cmocka_unit_test(names_what_blocks),
        cmocka_unit_test(optional_ops),       cmocka_unit_test(slices_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
