/*
 * HelixPipe refuses layouts and options that mean nothing to it, and less memory than its stages
 * hold. It takes any number of micro-batches.
 */
#include "policies/helix.h"

/* If the last loop is not full, the order still has every micro-batch and can be run, and no step
 * takes longer than one with the next multiple of a loop. */
TEST(micro_batches)
{
    const struct sp_part_costs unit = {.pre = 1, .attn = 3, .post = 2, .backward = 2};
    int steps = 0;

    for (int p = 1; p <= 6; p++) {
        for (int i = 1; i <= 3 * p * 3 * 3; i++) {
            int fold = i % 3 + 1, m = i / 3 + 1, loop = p * fold,
                above = (m + loop - 1) / loop * loop;
            double makespan[2];

            for (int k = 0; k < 4; k++) {
                int L = k / 2 ? p : 2 * p + 1;
                struct sp_plan plan;
                struct oracle h;

                helix_legal(helix_name(fold, L > p), fold, helix_layout(p, L, k % 2 ? above : m),
                            &plan, &h);
                helix_play(&h, &unit, 0);
                makespan[k % 2] = h.makespan;
                if (k % 2 && makespan[0] > makespan[1])
                    fail_msg("p=%d L=%d fold=%d: %d micro-batches take %g, %d take %g", p, L, fold,
                             m, makespan[0], above, makespan[1]);
                oracle_done(&plan, &h);
                steps++;
            }
        }
    }
    print_message("%d steps\n", steps);
}

TEST(refusals)
{
    static const struct {
        const char *schedule, *text;
    } table[] = {
        {"helix:fold=0", "fold of 1, 2"},
        {"helix:fold=x", "fold of 1, 2"},
        {"helix:fold=-1", "fold of 1, 2"},
        {"helix:fold=1.5", "fold of 1, 2"},
        {"helix:fold=99999999999", "fold"},
        {"helix:fold=2147483647", "fold"},
        {"helix:fold=16385", "fold"},
        {"helix:fold=", "fold="},
        {"helix:fold=1,fold=2", "given twice"},
        {"helix:qkv=z", "qkv=z"},
        {"helix:ship=z", "ship=z"},
        {"helix:ship=attention,qkv=weights", "leave out qkv=weights"},
        {"helix:bounded,tail=reverse", "leave out tail=reverse"},
        {"helix:fold=outo", "fold=auto"},
        {"helix:qkv", "key=value"},
        {"helix:tail=z", "tail=z"},
        {"helix:flod=1", "'flod'"},
    };
    struct sp_layout lay = helix_layout(4, 8, 8), other;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_no_plan(table[i].schedule, lay, table[i].text);
    other = lay;
    other.layers = 0;
    assert_no_plan("helix", other, "layers are unknown");
    other.layers = 3;
    assert_no_plan("helix", other, "need 4 layers, the model has 3");
    other.layers = 1 << 30;
    assert_no_plan("helix", other, "2147483649 parts of 8 micro-batches");
    other = lay;
    other.chunks = 2;
    assert_no_plan("helix", other, "not 2 chunks");
    other = lay;
    other.slices = 65536;
    assert_no_plan("helix", other, "17 parts of 524288 slices");
}

/* All forwards come before all backwards, so a stage holds half its ops, each p/(2L+1) of a
 * micro-batch on a whole stage; on average a stage holds m micro-batches. */
TEST(memory)
{
    static const int table[][4] = {
        {1, 1, 1, 1}, {2, 5, 3, 2}, {3, 7, 2, 1}, {4, 8, 2, 2}, {6, 6, 1, 2}};
    int limits = 0;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int p = table[i][0], L = table[i][1], fold = table[i][2], m = p * fold * table[i][3];
        double part = (double)p / (2 * L + 1), sum = 0;
        struct sp_layout lay = helix_layout(p, L, m);
        struct sp_plan plan;
        struct oracle h;

        helix_legal(helix_name(fold, false), fold, helix_layout(p, L, m), &plan, &h);
        for (int s = 0; s < p; s++) {
            assert_int_equal(h.peak[s], plan.programs[s].n / 2);
            sum += h.peak[s] * part;
        }
        assert_true(sum > m * p - 1e-9 && sum < m * p + 1e-9);
        for (int ops = 1; ops <= 2 * h.peak[0]; ops++, limits++) {
            char text[128];
            int s = 0;

            while (s < p && h.peak[s] <= ops)
                s++;
            lay.memory = ops * part;
            if (s == p) {
                struct sp_plan within;

                assert_int_equal(sp_plan_create(helix_name(fold, false), &lay, &within), 0);
                sp_plan_destroy(&within);
                continue;
            }
            snprintf(text, sizeof text,
                     "order: stage %d holds activations of %.6g micro-batches at once, more than "
                     "the %.6g allowed",
                     s, h.peak[s] * part, lay.memory);
            assert_no_plan(helix_name(fold, false), lay, text);
        }
        print_message("p=%d L=%d m=%d: stage 0 holds %d ops, %g micro-batches\n", p, L, m,
                      h.peak[0], h.peak[0] * part);
        oracle_done(&plan, &h);
    }
    print_message("%d limits\n", limits);
}
