/*
 * The layerwise graph on programs written by hand: several chunks a stage, weight gradients apart,
 * one stage or as many as layers, one window or many. Whatever the plan: the loss and the gradients
 * of one stage, nothing alive after a step, the planned peak, no growth after the second step.
 */
#include "engine/graph_run.h"

enum { LAYERS = 4 };

/* Three micro-batches each. */
static const struct program {
    const char *name;
    int stages, chunks;
    const char *lines[4];
} table[] = {
    {"one stage, W apart", 1, 1, {"F0.0 B0.0 F1.0 F2.0 B2.0 W0.0 B1.0 W1.0 W2.0"}},
    {"one stage, one W apart", 1, 1, {"F0.0 F1.0 B1.0 F2.0 B0.0 B2.0 W0.0"}},
    {"one stage, two chunks",
     1,
     2,
     {"F0.0 F1.0 F0.1 B0.1 F1.1 F2.0 B0.0 F2.1 B1.1 B2.1 B1.0 B2.0"}},
    {"one stage, four chunks, W apart",
     1,
     4,
     {"F0.0 F0.1 F0.2 F0.3 B0.3 B0.2 W0.3 B0.1 B0.0 W0.2 W0.0 W0.1 "
      "F1.0 F2.0 F1.1 F2.1 F1.2 F2.2 F1.3 F2.3 B2.3 B1.3 B2.2 B1.2 B2.1 B1.1 B2.0 B1.0 W2.1"}},
    {"two stages, two chunks",
     2,
     2,
     {"F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F2.1 B1.1 B0.0 B2.1 B1.0 B2.0",
      "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F2.1 B2.1 B1.0 B2.0"}},
    {"two stages, W apart",
     2,
     1,
     {"F0.0 F1.0 F2.0 B0.0 B1.0 W0.0 B2.0 W1.0 W2.0", "F0.0 B0.0 F1.0 B1.0 W1.0 F2.0 B2.0 W2.0"}},
    {"as many stages as layers",
     4,
     1,
     {"F0.0 F1.0 F2.0 B0.0 B1.0 B2.0", "F0.0 F1.0 F2.0 B0.0 B1.0 B2.0",
      "F0.0 F1.0 B0.0 F2.0 B1.0 B2.0", "F0.0 B0.0 F1.0 B1.0 F2.0 B2.0"}},
};

/* On other placements than the loop, the last of them with two replicas of everything. */
static const struct placed {
    struct program prog;
    int (*place)(const struct sp_layout *lay, int stage, int chunk);
    int pipes;
} placed[] = {
    {{"down and up again",
      2,
      2,
      {"F0.0 F1.0 F0.1 B0.1 F1.1 F2.0 B0.0 B1.1 F2.1 B1.0 B2.1 B2.0",
       "F0.0 F0.1 F1.0 F1.1 B0.1 F2.0 B0.0 W0.0 F2.1 B1.1 B1.0 B2.1 B2.0"}},
     sp_place_wave,
     1},
    {{"two pipes", 2, 2, {"F0.0 F1.0 F2.1 B2.1 B0.0 B1.0", "F2.1 F0.0 B0.0 F1.0 B1.0 B2.1"}},
     sp_place_both_ways,
     2},
    {{"two pipes, overlapping",
      2,
      2,
      {"F0.0 F1.0 F2.1& B0.0 B2.1 B1.0", "F2.1 F0.0 F1.0& B0.0 B1.0 B2.1 W2.1"}},
     sp_place_both_ways,
     2},
};

enum { N_TABLE = sizeof table / sizeof *table };

static struct sp_plan *plan_of(const struct program *prog)
{
    struct sp_layout lay = layout(prog->stages, 3);
    struct sp_plan *plan = test_bytes(sizeof *plan);

    lay.chunks = prog->chunks;
    lay.layers = LAYERS;
    write_plan(lay, prog->lines, plan);
    test_at_end(destroy_plan, plan);
    return plan;
}

static const struct program one_stage = {"one stage", 1, 1, {"F0.0 B0.0 F1.0 B1.0 F2.0 B2.0"}};

TEST(programs)
{
    static const struct setting settings[] = {
        {.tied = true, .workers = 2},
        {.tied = true, .workers = 1, .window = 1, .recompute = SP_RECOMPUTE_FULL},
        {.llama = true, .workers = 2, .ready = true, .recompute = SP_RECOMPUTE_NO_ATTENTION},
        {.llama = true, .tied = true, .workers = 2, .ready = true, .window = 1},
        {.workers = 2, .recompute = SP_RECOMPUTE_FULL, .every = 2},
        {.llama = true, .workers = 1, .ready = true, .recompute = SP_RECOMPUTE_SELECTIVE},
    };
    int runs = 0;

    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
        struct setting plain = plain_setting(&settings[k]);
        struct run one, run;

        run_plan(plan_of(&one_stage), &plain, &one);
        for (size_t i = 0; i < N_TABLE + sizeof placed / sizeof *placed; i++) {
            const struct placed *at = i < N_TABLE ? NULL : &placed[i - N_TABLE];
            const struct program *prog = at ? &at->prog : &table[i];
            struct sp_plan *plan = plan_of(prog);

            if (at)
                place_plan(plan, at->pipes, at->place);
            run_plan(plan, &settings[k], &run);
            compare(&run, &one, prog->name);
            runs++;
        }
    }
    printf("[          ] %d runs of %d steps, gradients within %.1e of one stage's\n", runs, STEPS,
           worst);
}

/* Two runs of one plan give the same bits. */
TEST(same_bits)
{
    struct setting set = {.tied = true, .workers = 2, .ready = true, .window = 3};
    struct sp_plan *plan = plan_of(&table[4]);
    struct run a, b;

    run_plan(plan, &set, &a);
    run_plan(plan, &set, &b);
    assert_same_run(&a, &b);
}

TEST_FIXTURE(make_data, close_data)
