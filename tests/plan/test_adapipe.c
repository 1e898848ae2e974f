/* AdaPipe: its order and cost model against the list simulation, its choices against every choice
 * there is. */
#include "adapipe.h"

/* ---- 1F1B ------------------------------------------------------------------------------- */

/* The step of the model that AdaPipe minimises first. */
static double modelled(int p, int m, const double *f, const double *b)
{
    double sum = 0, worst = 0;

    for (int s = 0; s < p; s++) {
        sum += f[s] + b[s];
        worst = fmax(worst, f[s] + b[s]);
    }
    return sum + (m - 1) * worst;
}

TEST(order)
{
    double f[9], b[9], room[18], least = INFINITY, most = 0;
    int cases = 0;

    for (int p = 1; p <= 9; p++) {
        for (int m = 1; m <= 20; m++) {
            struct sp_plan one, ada;

            make_plan("1f1b", p, m, &one);
            make_plan("adapipe", p, m, &ada);
            assert_null(ada.def->makespan);
            for (int s = 0; s < p; s++) {
                assert_int_equal(one.programs[s].n, ada.programs[s].n);
                assert_memory_equal(one.programs[s].ops, ada.programs[s].ops,
                                    (size_t)one.programs[s].n * sizeof(struct sp_op));
                f[s] = b[s] = 7;
            }
            sp_plan_destroy(&one);
            sp_plan_destroy(&ada);
            assert_true(sp_1f1b_makespan(p, m, f, b, room) == 14.0 * (m + p - 1));
            for (int i = 0; i < 10; i++) {
                double makespan, ratio;

                for (int s = 0; s < p; s++) {
                    f[s] = random_int(i < 5 ? 0 : 100, i < 5 ? 3 : 400);
                    b[s] = i < 5 ? random_int(0, 3) : random_int(2, 3) * f[s];
                }
                makespan = sp_1f1b_makespan(p, m, f, b, room);
                assert_true(makespan == simulated("adapipe", p, m, f, b));
                ratio = makespan / modelled(p, m, f, b);
                if (i >= 5) {
                    least = fmin(least, ratio);
                    most = fmax(most, ratio);
                }
                cases++;
            }
        }
    }
    assert_true(most < 1.05);
    print_message("%d makespans equal to the list simulation's, %.3f .. %.3f of the model's where "
                  "a backward takes 2 or 3 forwards\n",
                  cases, least, most);
}

/* ---- every choice there is --------------------------------------------------------------- */

struct brute {
    const struct sp_adapipe *in;
    int counts[8];
    unsigned char mode[8];
    double model, makespan; /* INFINITY: nothing fits */
    int64_t least_bytes;    /* the smallest limit that works */
};

static void judge(struct brute *x)
{
    const struct sp_adapipe *in = x->in;
    double f[8], b[8], room[16];
    int64_t most = 0;

    for (int s = 0, l = 0; s < in->stages; l += x->counts[s++]) {
        int64_t bytes = bytes_of(in, s, x->counts[s], x->mode + l);

        most = bytes > most ? bytes : most;
    }
    x->least_bytes = most < x->least_bytes ? most : x->least_bytes;
    if (in->memory.limit_bytes && most > in->memory.limit_bytes)
        return;
    times_of(in, x->counts, x->mode, f, b);
    x->model = fmin(x->model, modelled(in->stages, in->micro_batches, f, b));
    x->makespan = fmin(x->makespan, sp_1f1b_makespan(in->stages, in->micro_batches, f, b, room));
}

static void all_partitions(struct brute *x, int s, int left)
{
    if (s < x->in->stages - 1) {
        for (int k = 1; k <= left - (x->in->stages - 1 - s); k++) {
            x->counts[s] = k;
            all_partitions(x, s + 1, left - k);
        }
        return;
    }
    x->counts[s] = left;
    judge(x);
}

static struct brute best_of_all(const struct sp_adapipe *in)
{
    struct brute x = {.in = in, .model = INFINITY, .makespan = INFINITY, .least_bytes = INT64_MAX};

    for (int code = 0; code < 1 << 2 * in->layers; code++) {
        for (int l = 0; l < in->layers; l++)
            x.mode[l] = code >> 2 * l & 3;
        all_partitions(&x, 0, in->layers);
    }
    return x;
}

TEST(brute_force)
{
    int fitted = 0, shortest = 0, refused = 0;
    double most = 1;

    for (int i = 0; i < 400; i++) {
        int p = random_int(1, 4), L = p + random_int(0, 6 - p), counts[8] = {0};
        struct sp_adapipe_figures fig;
        unsigned char mode[8];
        struct sp_adapipe in;
        struct brute want;
        struct capture c;
        int ret;

        random_input(&in, p, L, random_int(1, 12));
        in.memory.limit_bytes = random_int(100, 700);
        want = best_of_all(&in);
        ret = CAPTURED(&c, sp_adapipe_choose(&in, counts, mode, &fig));
        if (isinf(want.model)) {
            char bytes[64];

            assert_int_equal(ret, -EINVAL);
            assert_int_equal(counts[0], 0);
            snprintf(bytes, sizeof bytes, "(%lld bytes)", (long long)want.least_bytes);
            if (!strstr(c.text, bytes))
                fail_msg("not %s: %s", bytes, c.text);
            in.memory.limit_bytes = want.least_bytes;
            assert_int_equal(sp_adapipe_choose(&in, counts, mode, NULL), 0);
            in.memory.limit_bytes--;
            assert_int_equal(CAPTURED(&c, sp_adapipe_choose(&in, counts, mode, NULL)), -EINVAL);
            refused++;
            continue;
        }
        assert_int_equal(ret, 0);
        assert_true(fig.model_us == want.model);
        assert_true(fig.makespan_us >= want.makespan && fig.makespan_us <= 1.02 * want.makespan);
        shortest += fig.makespan_us <= want.makespan;
        most = fmax(most, fig.makespan_us / want.makespan);
        fitted++;
    }
    print_message("%d choices with the smallest model of all, %d of them with the shortest "
                  "simulated step, the others at most %.4f times; %d refused as none fits\n",
                  fitted, shortest, most, refused);
}

/* One stage: the cheapest of all numbers of layers in each mode, which sometimes needs three. */
TEST(mixes)
{
    int modes_used[MODES + 1] = {0};

    for (int i = 0; i < 3000; i++) {
        int p = random_int(1, 4), s = random_int(0, p - 1), k = random_int(1, 12), used = 0;
        struct sp_adapipe in;
        struct sp_adapipe_mix mix;
        double best = INFINITY;

        random_input(&in, p, 24, random_int(1, 6));
        in.memory.limit_bytes = random_int(100, 2000);
        for (int code = 0; code < 13 * 13 * 13; code++) {
            int n[MODES] = {k - code % 13 - code / 13 % 13 - code / 169, code % 13, code / 13 % 13,
                            code / 169};
            unsigned char mode[12];
            double us = 0;

            if (n[0] < 0)
                continue;
            for (int j = 0, l = 0; j < MODES; l += n[j++]) {
                memset(mode + l, j, (size_t)n[j]);
                us += n[j] * in.costs.recompute_us[j];
            }
            if (us < best && bytes_of(&in, s, k, mode) <= in.memory.limit_bytes)
                best = us;
        }
        sp_adapipe_cheapest(&in, s, k, &mix);
        assert_true(mix.us == best);
        if (isinf(best)) {
            assert_true(sp_adapipe_least_bytes(&in, s, k) > in.memory.limit_bytes);
            continue;
        }
        assert_true(sp_adapipe_least_bytes(&in, s, k) <= mix.bytes);
        assert_true(mix.bytes <= in.memory.limit_bytes);
        for (int j = 0; j < MODES; j++)
            used += mix.n[j] > 0;
        modes_used[used]++;
    }
    print_message("the cheapest mixes of a stage: %d of one mode, %d of two, %d of three, %d of "
                  "four\n",
                  modes_used[1], modes_used[2], modes_used[3], modes_used[4]);
}

TEST(refused)
{
    struct sp_adapipe in;
    unsigned char mode[MOST];
    int counts[MOST];
    struct capture c;

    random_input(&in, 4, 3, 8);
    assert_says(&c, sp_adapipe_choose(&in, counts, mode, NULL), -EINVAL,
                "3 layers cannot be dealt out to 4 stages\n", "three layers");
}
