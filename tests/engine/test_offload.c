/*
 * Eviction may change nothing but the place of activations. Gradients, losses and norms have the
 * bits of the same plan without offloading, and the values of one stage; the planned peak is never
 * exceeded; every evicted tensor is fetched again.
 */
#include "engine/graph_run.h"

enum { LAYERS = 5 };

static double moved, visited;
static int runs;

static struct sp_plan *make(const char *name, int stages, int mbs, int slices,
                            const struct setting *set)
{
    struct sp_layout lay = layout(stages, mbs);
    struct setting whole = *set;

    lay.layers = LAYERS;
    lay.chunks = 0;
    lay.slices = slices;
    whole.cut = slices > 1 ? set->cut : NULL;
    return new_plan(name, &lay, &whole);
}

/* If stages assist each other's attention, two slices of a stage alone must be left. */
static bool keys_may_leave(const struct sp_plan *plan)
{
    return plan->layout.slices > (plan->family->shared ? plan->layout.stages : 2) &&
           plan->layout.slices > 2;
}

/* Compares all modes with no offloading, and that with one stage. */
static void compare_modes(const char *name, int stages, int mbs, int slices, struct setting set)
{
    static const struct {
        enum sp_offload_mode mode;
        enum sp_offload_keys keys;
        double room;
    } modes[] = {{SP_OFFLOAD_FULL, SP_KEYS_STAY, 0},        {SP_OFFLOAD_ADAPTIVE, SP_KEYS_AUTO, 0},
                 {SP_OFFLOAD_ADAPTIVE, SP_KEYS_AUTO, 0.5},  {SP_OFFLOAD_ADAPTIVE, SP_KEYS_AUTO, 1},
                 {SP_OFFLOAD_ADAPTIVE, SP_KEYS_AUTO, -0.5}, {SP_OFFLOAD_FULL, SP_KEYS_LEAVE, 0}};
    struct setting plain = set;
    struct sp_plan *plan = make(name, stages, mbs, slices, &set);
    struct run none, one;
    char what[160];

    snprintf(what, sizeof what, "%s, %d stages, %d micro-batches, %d slices", name, stages, mbs,
             slices);
    plain.cut = NULL;
    plain.workers = 1;
    run_plan(make("1f1b", 1, mbs, 1, &plain), &plain, &one);
    run_plan(plan, &set, &none);
    compare(&none, &one, what);
    assert_true(none.left == 0);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct run run;

        if ((modes[i].room < 0 || modes[i].keys == SP_KEYS_LEAVE) && !keys_may_leave(plan))
            continue;
        if (modes[i].room < 0 && plan->family->shared)
            continue; /* they stay unless they are told to leave */
        set.offload = modes[i].mode;
        set.keys = modes[i].keys;
        set.room = modes[i].room;
        run_plan(plan, &set, &run);
        assert_int_equal(run.n, none.n);
        if (run.left != run.planned_out || run.returned != run.planned_in)
            fail_msg("%s, mode %zu: %.0f and %.0f bytes moved, %.0f and %.0f planned", what, i,
                     run.left, run.returned, run.planned_out, run.planned_in);
        if (run.streams) { /* attention in parts is another sum */
            compare(&run, &one, what);
            visited += run.returned - run.left;
            runs++;
            continue;
        }
        assert_same_run(&run, &none);
        assert_true(run.left == run.returned);
        assert_true(modes[i].room < 1 || run.left == 0);
        moved += run.left;
        runs++;
    }
}

/* Slices 1 to 8, one to four stages, both styles, uneven slices, all that is recomputed. */
TEST(slices)
{
    for (int n = 1; n <= 8; n++)
        for (int stages = 1; stages <= 4; stages *= 2) {
            struct setting set = {.llama = n % 2,
                                  .tied = n % 3 == 0,
                                  .workers = 1 + n % 2,
                                  .batch = 1 + (n + stages) % 2,
                                  .seq = 16,
                                  .cut = n % 4 == 3 ? "length" : "flops",
                                  .recompute = (enum sp_recompute)((n + stages / 2) % 4),
                                  .every = 1 + (n + stages / 2) % 4 / 3};

            if ((n + stages / 2) % test_every(3))
                continue;
            compare_modes("sppo", stages, 1 + n % 2, n, set);
        }
}

/* Slices that several stages compute. */
TEST(multiplexed)
{
    for (int stages = 2; stages <= 4; stages++)
        for (int n = stages > 3 ? 3 : 2; n <= 8; n += 2) {
            struct setting set = {.llama = n % 3 == 0,
                                  .tied = stages % 2,
                                  .workers = stages == 4 ? 2 : stages,
                                  .window = n == 4,
                                  .batch = 1 + n / 2 % 2,
                                  .seq = 56,
                                  .cut = n == 6 ? "length" : "flops",
                                  .recompute = (enum sp_recompute)((n / 2 + stages) % 4),
                                  .every = 1,
                                  .few = true};

            if ((stages + n / 2) % test_every(2) == 0)
                compare_modes("sppo:multiplex", stages, 1 + n % 4 / 2, n, set);
        }
}

/* Whole micro-batches, several at a time, chunks, separate weight gradients, overlapped pairs, two
 * pipes. */
TEST(schedules)
{
    static const struct {
        const char *name;
        int stages, mbs, slices;
    } plans[] = {{"1f1b", 2, 5, 1},     {"gpipe", 2, 4, 1},   {"interleaved", 2, 4, 1},
                 {"zb1p", 2, 4, 1},     {"zbv", 2, 4, 1},     {"dualpipev", 2, 5, 1},
                 {"dualpipe", 2, 6, 1}, {"seq1f1b", 2, 3, 3}, {"terapipe", 2, 3, 3},
                 {"hanayo", 2, 4, 1},   {"bfs", 2, 4, 1}};

    for (size_t i = 0; i < sizeof plans / sizeof *plans; i += (size_t)test_every(2)) {
        struct setting set = {.llama = i % 2,
                              .tied = i % 3 == 0,
                              .workers = 2,
                              .batch = 2,
                              .seq = 12,
                              .recompute = (enum sp_recompute)(i % 3),
                              .every = 1};

        compare_modes(plans[i].name, plans[i].stages, plans[i].mbs, plans[i].slices, set);
    }
}

TEST(all)
{
    printf(
        "%d runs, %.1f MB left memory in their last steps; worst difference from one stage %.1e\n",
        runs, moved / 1e6, worst);
    assert_true(moved > 1e6 && visited > 1e5);
}

TEST_FIXTURE(make_data, close_data)
