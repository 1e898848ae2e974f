/*
 * Lengths of slices: costs against a sum over tokens, lengths of equal times, TeraPipe's program
 * against every composition there is, lists, and plans with them.
 */
#include "policies/common.h"
#include "plan/slices.h"
#include "policies/plan_create.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/costs.h"
#include "policies/simulation/times.h"
#include <errno.h>
#include <math.h>

static uint64_t seed = 5;

static int below(int n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

static struct sp_slice_costs random_costs(void)
{
    return (struct sp_slice_costs){.token = 1 + below(1000),
                                   .pair = below(3) ? 0.1 * below(200) : 0};
}

TEST(costs)
{
    for (int i = 0; i < 200; i++) {
        struct sp_slice_costs c = random_costs();
        int first = below(50), len = 1 + below(50);
        double want = 0;

        for (int t = first; t < first + len; t++)
            want += c.token + c.pair * (t + 1);
        assert_true(fabs(sp_slice_cost(&c, first, len) - want) < 1e-9 * want);
    }
}

static struct sp_shape shape_of(int seq)
{
    struct sp_model m = {.name = "test",
                         .arch = SP_ARCH_GPT2,
                         .layers = 4,
                         .hidden = 64,
                         .heads = 4,
                         .kv_heads = 4,
                         .head_dim = 16,
                         .mlp = 256,
                         .vocab = 64,
                         .positions = 4096};
    struct sp_shape sh;

    sp_shape_init(&sh, &m, 1, seq, 2);
    return sh;
}

/* A layer of width h: 24h^2 operations a token and 4h a pair. */
TEST(flops)
{
    struct sp_shape sh = shape_of(128);
    struct sp_slice_costs c = sp_slice_flops(&sh);

    assert_true(c.token == 24 * 64 * 64 && c.pair == 4 * 64);
}

/* All slices within a token of the mean, the first the longest, none empty. */
TEST(balanced)
{
    int most = 0, len[64];

    for (int i = 0; i < 5000; i++) {
        struct sp_slice_costs c = random_costs();
        int seq = 1 + below(3000), n = 1 + below(seq < 64 ? seq : 64), first = 0;
        double mean = sp_slice_cost(&c, 0, seq) / n, token = c.token + c.pair * seq;

        sp_slices_by_flops(&c, seq, n, len);
        for (int k = 0; k < n; k++) {
            double t = sp_slice_cost(&c, first, len[k]);

            assert_true(len[k] >= 1 && (k == 0 || len[k] <= len[0] + 1));
            if (fabs(t - mean) > token && len[k] > 1)
                fail_msg("slice %d of %d, %d tokens of %d, takes %g, the mean is %g, a token %g", k,
                         n, len[k], seq, t, mean, token);
            first += len[k];
        }
        assert_int_equal(first, seq);
        most = len[0] > most ? len[0] : most;
    }
    assert_true(most > 100);
}

/* A cost of operations, plus a constant for every slice. */
struct priced {
    struct sp_slice_costs c;
    double each;
};

static double time_of(const void *arg, int first, int len)
{
    const struct priced *t = arg;

    return t->each + sp_slice_cost(&t->c, first, len) * (1 + 3.0 / (1 + len));
}

/* The best of all compositions. */
static double best_of(const struct priced *c, int first, int seq, int n, double sum, double most,
                      int stages, int m)
{
    double best = INFINITY;

    if (n == 1) {
        double t = time_of(c, first, seq - first);

        return m * (sum + t) + (stages - 1) * fmax(most, t);
    }
    for (int len = 1; len <= seq - first - (n - 1); len++) {
        double t = time_of(c, first, len);

        best = fmin(best, best_of(c, first + len, seq, n - 1, sum + t, fmax(most, t), stages, m));
    }
    return best;
}

static double total(const struct priced *c, const int *len, int n, int stages, int m)
{
    double sum = 0, most = 0;

    for (int k = 0, first = 0; k < n; first += len[k++]) {
        sum += time_of(c, first, len[k]);
        most = fmax(most, time_of(c, first, len[k]));
    }
    return m * sum + (stages - 1) * most;
}

/* Short sequences against all ways to cut them. The program tries bounds on the longest slice in
 * steps, so it misses the optimum a few times in a thousand. */
TEST(program)
{
    double far = 0;
    int len[8];

    for (int i = 0; i < 300; i++) {
        struct priced c = {.c = random_costs()};
        struct sp_slice_time t = {time_of, &c};
        int seq = 1 + below(16), n = 1 + below(seq < 5 ? seq : 5), stages = 1 + below(6);
        int m = 1 + below(4), sum = 0;
        double best, got;

        c.each = below(3) * c.c.token;
        best = best_of(&c, 0, seq, n, 0, 0, stages, m);
        sp_slices_by_flops(&c.c, seq, n, len);
        assert_int_equal(sp_slices_by_program(&t, seq, n, stages, m, len), 0);
        for (int k = 0; k < n; k++) {
            assert_true(len[k] >= 1);
            sum += len[k];
        }
        assert_int_equal(sum, seq);
        got = total(&c, len, n, stages, m);
        far = fmax(far, got / best - 1);
        if (got < best * (1 - 1e-12) || got > best * 1.02)
            fail_msg("%d tokens in %d slices, p=%d m=%d: %g, the best is %g", seq, n, stages, m,
                     got, best);
    }
    print_message("short sequences: at most %.2f %% beyond the best\n", 100 * far);
}

/* TeraPipe's lengths are never worse than equal times, and better if every slice has a constant
 * cost. */
TEST(long_ones)
{
    struct priced c = {.c = {.token = 24 * 1024., .pair = 4}};
    struct sp_slice_time t = {time_of, &c};
    static int len[256], most[SP_MAX_SIZE];
    int sum = 0;

    c.each = 512 * c.c.token;
    for (int n = 2; n <= 256; n *= 4) {
        double even;

        sp_slices_by_flops(&c.c, 8192, n, len);
        even = total(&c, len, n, 8, 1);
        assert_int_equal(sp_slices_by_program(&t, 8192, n, 8, 1, len), 0);
        print_message("8192 tokens in %d slices: %.4f of equal times\n", n,
                      total(&c, len, n, 8, 1) / even);
        assert_true(total(&c, len, n, 8, 1) <= even);
    }
    sp_slices_by_flops(&c.c, 2 * SP_MAX_SIZE, SP_MAX_SIZE, most); /* as many as `show` takes */
    assert_int_equal(sp_slices_by_program(&t, 2 * SP_MAX_SIZE, SP_MAX_SIZE, 8, 1, most), 0);
    for (int k = 0; k < SP_MAX_SIZE; k++)
        sum += most[k];
    assert_int_equal(sum, 2 * SP_MAX_SIZE);
}

/* The bubble (p-1)/n of SPPO with slices of equal times, more with equal lengths. */
TEST(plans)
{
    static const char *const how[] = {"length", "flops", "dp", "1000,600,300,148"};
    struct sp_shape sh = shape_of(2048);
    uint64_t digest[4];
    double bubble[4];

    for (int i = 0; i < 4; i++) {
        struct sp_layout lay = layout(4, 1);
        struct sp_plan plan;
        struct sp_times t;
        char why[256];
        double sum = 0;

        lay.slices = 4;
        assert_int_equal(sp_plan_create("sppo", &lay, &plan), 0);
        assert_int_equal(sp_plan_cut(&plan, &sh, how[i], NULL), 0);
        for (int k = 0; k < 4; k++)
            sum += plan.slice_share[k];
        assert_true(fabs(sum - 1) < 1e-12);
        assert_int_equal(sp_listsim(&plan, &sp_costs_unit, SP_PAIRED, &t, why, sizeof why), 0);
        bubble[i] = (t.makespan - 3) / 3; /* of the work */
        digest[i] = sp_plan_digest(&plan);
        if (i == 3) {
            assert_int_equal(plan.first_token[2], 1600);
            sp_slices_text(&plan, 2048, why, sizeof why);
            assert_string_equal(why, "1000 600 300 148");
        }
        sp_times_destroy(&t);
        sp_plan_destroy(&plan);
    }
    print_message(
        "bubble of the work: length %.3f, flops %.3f, dp %.3f, list %.3f; (p-1)/n = 0.75\n",
        bubble[0], bubble[1], bubble[2], bubble[3]);
    assert_true(fabs(bubble[1] - 0.75) < 0.005 && fabs(bubble[2] - 0.75) < 0.005);
    assert_true(bubble[0] > 0.8 && bubble[3] > 0.9);
    assert_true(digest[0] != digest[1] && digest[1] != digest[3]);
}

TEST(words)
{
    struct sp_layout lay = layout(2, 1);
    struct sp_plan plan;
    char text[160], little[8];

    lay.slices = 40;
    assert_int_equal(sp_plan_create("seq1f1b", &lay, &plan), 0);
    sp_slices_text(&plan, 100, text, sizeof text);
    assert_string_equal(text, "3 3 3 3 3 3 3 3 3 3 3 3 ... 2 2");
    sp_slices_text(&plan, 100, little, sizeof little);
    assert_string_equal(little, "3 3 3 3");
    sp_plan_destroy(&plan);
}

/* The default lengths of schedules, and the lists that are refused. */
TEST(defaults)
{
    static const struct {
        const char *how, *says;
    } bad[] = {{"half", "want length, flops, dp or the tokens of each slice"},
               {"1,2", "has 2 counts, the schedule 3 slices to fill"},
               {"10,10,11", "deals out 31 tokens, the sequence has 30"},
               {"30,0,0", "'0' is not a number of tokens"}};
    static const char *const names[] = {"seq1f1b", "sppo", "terapipe"};
    struct sp_shape sh = shape_of(30), tiny = shape_of(2);
    struct sp_layout lay = layout(2, 2);
    struct sp_plan plan;
    struct capture c;

    lay.slices = 3;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sp_plan_create(names[i], &lay, &plan), 0);
        assert_int_equal(sp_plan_cut(&plan, &sh, NULL, NULL), 0);
        assert_true(i == 0 ? plan.first_token[1] == 10 : plan.first_token[1] >= 10);
        for (size_t k = 0; i == 0 && k < sizeof bad / sizeof *bad; k++) {
            assert_says(&c, sp_plan_cut(&plan, &sh, bad[k].how, NULL), -EINVAL, bad[k].says,
                        bad[k].how);
            assert_int_equal(plan.first_token[1], 10);
        }
        assert_says(&c, sp_plan_cut(&plan, &tiny, NULL, NULL), -EINVAL, "there are at most 2",
                    "two tokens");
        sp_plan_destroy(&plan);
    }
}
