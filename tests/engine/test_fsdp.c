/*
 * Fully sharded data parallelism run for real: every recomputation, units of one and of several layers,
 * fewer StarPU workers than workers, small windows; loss, norms and gradients of one stage, and the same
 * bits wherever the workers are.
 */
#include "engine/graph_run.h"

TEST(every_mode)
{
    static const struct {
        int stages, rounds, layers, units;
    } sizes[] = {{1, 2, 3, 0}, {2, 1, 2, 0}, {2, 3, 5, 0}, {3, 2, 7, 3}, {4, 2, 4, 0},
                 {5, 1, 6, 2}, {2, 2, 3, 1}, {3, 3, 4, 2}, {7, 1, 5, 0}};
    int runs = 0;

    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int i = 0; i < 3; i++) {
            int pick = (int)k + 2 * i;
            struct setting set = {.llama = pick % 2,
                                  .tied = pick % 3 != 1,
                                  .workers = 1 + pick % 4,
                                  .ready = pick % 5 == 4,
                                  .window = pick % 4 == 3,
                                  .recompute = (enum sp_recompute)(pick % 4),
                                  .chunks = sizes[k].units};

            if (set.recompute == SP_RECOMPUTE_FULL && pick % 3 == 0)
                set.every = 2;
            check_named(i == 1 ? "fsdp:order=breadth" : "fsdp", sizes[k].stages,
                        sizes[k].stages * sizes[k].rounds, sizes[k].layers, set);
            runs++;
        }
    print_message("%d plans, %d steps each, gradients within %.1e\n", runs, STEPS, worst);
}

TEST(same_bits)
{
    check_bits("fsdp", 4, 8, 5, anywhere, 3);
    check_bits("fsdp:order=breadth", 4, 12, 5, anywhere, 3);
}

TEST_FIXTURE(make_data, close_data)
