/* AdaPipe over random and real models: the limit, what is promised, the bytes that a run counts. */
#include "adapipe.h"
#include "policies/families/activations.h"
#include "plan/memory.h"
#include "policies/plan_create.h"

/* ---- random models ----------------------------------------------------------------------- */

/* The shortest step of the even partition with one mode for all that fits; INFINITY: none. */
static double even_uniform(const struct sp_adapipe *in)
{
    double best = INFINITY, f[MOST], b[MOST], room[2 * MOST];
    int counts[MOST];

    for (int s = 0, first; s < in->stages; s++)
        sp_partition(in->layers, in->stages, s, &first, &counts[s]);
    for (int j = 0; j < MODES; j++) {
        unsigned char mode[MOST];
        bool fits = true;

        memset(mode, j, sizeof mode);
        for (int s = 0; s < in->stages; s++)
            fits &= !in->memory.limit_bytes ||
                    bytes_of(in, s, counts[s], mode) <= in->memory.limit_bytes;
        times_of(in, counts, mode, f, b);
        if (fits)
            best = fmin(best, sp_1f1b_makespan(in->stages, in->micro_batches, f, b, room));
    }
    return best;
}

/* Checks all that the header promises of a choice. */
static void check_choice(const struct sp_adapipe *in, const int *counts, const unsigned char *mode,
                         const struct sp_adapipe_figures *fig)
{
    double f[MOST], b[MOST], room[2 * MOST], makespan;
    int64_t most = 0;
    int layers = 0;

    for (int s = 0; s < in->stages; layers += counts[s++]) {
        int64_t bytes = bytes_of(in, s, counts[s], mode + layers);

        assert_true(counts[s] >= 1);
        assert_true(!in->memory.limit_bytes || bytes <= in->memory.limit_bytes);
        most = bytes > most ? bytes : most;
        for (int l = layers + 1; l < layers + counts[s]; l++)
            assert_true(mode[l] <= mode[l - 1]);
    }
    assert_int_equal(layers, in->layers);
    assert_int_equal(most, fig->peak_bytes);
    times_of(in, counts, mode, f, b);
    makespan = sp_1f1b_makespan(in->stages, in->micro_batches, f, b, room);
    assert_true(fabs(makespan / fig->makespan_us - 1) < 1e-12);
    assert_true(fig->makespan_us <= even_uniform(in) * (1 + 1e-12));
}

TEST(random_models)
{
    int fitted = 0, longer = 0, simulations = 0;
    double gain = 0, longest = 1;

    for (int i = 0; i < 400; i++) {
        int p = random_int(1, 8), L = p + random_int(0, 24), m = random_int(1, 24), counts[MOST];
        double model = INFINITY, before = INFINITY, even;
        struct sp_adapipe_figures fig;
        unsigned char mode[MOST];
        struct sp_adapipe in;
        struct capture c;

        random_input(&in, p, L, m);
        for (int limit = 100; limit <= 1800; limit += random_int(20, 300)) {
            in.memory.limit_bytes = limit;
            if (CAPTURED(&c, sp_adapipe_choose(&in, counts, mode, &fig))) {
                assert_true(isinf(before)); /* a larger limit still works */
                continue;
            }
            check_choice(&in, counts, mode, &fig);
            assert_true(fig.model_us <= model);
            longer += fig.makespan_us > before;
            longest = fmax(longest, fig.makespan_us / before);
            model = fig.model_us;
            before = fig.makespan_us;
            even = even_uniform(&in);
            gain += isfinite(even) ? 1 - fig.makespan_us / even : 0;
            fitted++;
            if (fitted % 10 == 0) {
                double f[MOST], b[MOST];

                times_of(&in, counts, mode, f, b);
                assert_true(simulated("adapipe", p, m, f, b) == fig.makespan_us);
                simulations++;
            }
        }
        in.memory.limit_bytes = 0;
        assert_int_equal(sp_adapipe_choose(&in, counts, mode, &fig), 0);
        check_choice(&in, counts, mode, &fig);
        assert_true(fig.model_us <= model && fig.makespan_us <= before * 1.02);
    }
    assert_true(longest <= 1.02);
    print_message("%d choices within their limit, %.1f %% shorter on average than even stages with "
                  "one mode; models fall as limits rise, %d steps do not (by at most %.2f %%); %d "
                  "list-simulated\n",
                  fitted, 100 * gain / fitted, longer, 100 * (longest - 1), simulations);
}

/* ---- a model ---------------------------------------------------------------------------- */

/* A choice keeps to its limit by the count of a run's graph; a limit that no choice keeps to is
 * refused. */
TEST(kept_limits)
{
    static const char *const names[] = {"gpt-tiny", "llama-tiny"};
    int cases = 0, refused = 0;

    for (int i = 0; i < 2 * 5 * 6; i++) {
        int p = 1 + i / 2 % 5, m = 1 + i / 10 * 2, counts[8];
        struct sp_layout lay = layout(p, m);
        struct sp_adapipe in = {.stages = p, .micro_batches = m};
        struct sp_memory most;
        unsigned char mode[8];
        struct sp_model model;
        struct sp_shape sh;
        struct sp_plan plan;
        int64_t free_bytes;

        assert_int_equal(sp_model_load(names[i % 2], &model), 0);
        sp_shape_init(&sh, &model, 2, 96, m);
        sp_shape_cut(&sh, 0, 16);
        in.layers = lay.layers = model.layers;
        for (int j = 0; j < MODES; j++)
            in.costs.recompute_us[j] = j;
        in.costs.post_fwd_us = in.costs.bwd_us = 10;
        assert_int_equal(sp_plan_create("adapipe", &lay, &plan), 0);
        sp_memory_fullest(&plan, &sh, SP_RECOMPUTE_NONE, 1, &most, NULL);
        free_bytes = sp_memory_sum(&most);
        for (int tenths = 10; tenths > 3; tenths--) {
            int64_t limit = free_bytes / 10 * tenths;
            bool quiet = sp_error_quiet(true);
            struct sp_adapipe_figures fig;
            int err;

            assert_int_equal(sp_adapipe_memory_of(&sh, p, limit, &in.memory), 0);
            assert_int_equal(in.memory.limit_bytes, limit);
            err = sp_adapipe_plan(&in, &plan, &sh, counts, mode, &fig);
            sp_error_quiet(quiet);
            refused += err != 0;
            if (err)
                continue;
            assert_int_equal(sp_plan_partition(&plan, counts), 0);
            plan.recompute = mode;
            sp_memory_fullest(&plan, &sh, SP_RECOMPUTE_NONE, 1, &most, NULL);
            plan.recompute = NULL;
            assert_int_equal(sp_memory_sum(&most), fig.peak_bytes);
            assert_true(fig.peak_bytes <= limit);
            cases++;
        }
        sp_plan_destroy(&plan);
    }
    print_message("%d choices keep to their limits, %d limits refused\n", cases, refused);
    assert_true(cases > refused && refused > 0);
}

TEST(models)
{
    static const struct {
        const char *name;
        int stages, micro_batches, seq;
    } runs[] = {
        {"gpt2-124m", 4, 16, 1024}, {"gpt3-7b", 8, 32, 32768}, {"llama3-405b", 16, 64, 8192}};
    static const char letter[] = "nsaf";

    for (size_t i = 0; i < 3; i++) {
        struct sp_adapipe in = {.stages = runs[i].stages, .micro_batches = runs[i].micro_batches};
        static struct sp_machine machine;
        struct sp_adapipe_figures fig;
        unsigned char mode[MOST];
        struct sp_model model;
        int counts[MOST];
        struct sp_shape sh;

        assert_int_equal(sp_model_load(runs[i].name, &model), 0);
        sp_shape_init(&sh, &model, 1, runs[i].seq, in.micro_batches);
        assert_int_equal(sp_machine_load(SP_MACHINE_DEFAULT, &machine), 0);
        sp_layer_costs_estimate(&machine, &sh, &in.costs);
        in.layers = model.layers;
        assert_int_equal(sp_adapipe_memory_of(&sh, in.stages, 0, &in.memory), 0);
        assert_int_equal(sp_adapipe_choose(&in, counts, mode, &fig), 0);
        check_choice(&in, counts, mode, &fig);
        for (int tenths = 10; tenths >= 4; tenths -= 2) {
            int64_t most = fig.peak_bytes;
            struct sp_adapipe limited = in;
            struct sp_adapipe_figures of;
            struct capture c;

            limited.memory.limit_bytes = most / 10 * tenths;
            if (CAPTURED(&c, sp_adapipe_choose(&limited, counts, mode, &of))) {
                print_message("%s", c.text);
                continue;
            }
            check_choice(&limited, counts, mode, &of);
            print_message("%s, limit %.2f GiB: step %.3f of no limit's, even stages with one mode "
                          "%.3f:",
                          model.name, (double)limited.memory.limit_bytes / (1 << 30),
                          of.makespan_us / fig.makespan_us,
                          even_uniform(&limited) / fig.makespan_us);
            for (int s = 0, l = 0; s < in.stages; s++) {
                print_message(" ");
                for (int j = MODES - 1; j >= 0; j--) {
                    int n = 0;

                    for (; l < in.layers && n < counts[s] && mode[l] == j; l++)
                        n++;
                    counts[s] -= n;
                    if (n)
                        print_message("%d%c", n, letter[j]);
                }
            }
            print_message("\n");
        }
    }
}
