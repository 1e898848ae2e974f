/*
 * WeiPipe run for real: all variants, every recomputation, uneven and few layers, fewer StarPU
 * workers than workers of the ring, small windows; loss, norms and gradients of one stage, and the
 * same bits wherever the workers are.
 */
#include "engine/graph_run.h"

TEST(every_mode)
{
    static const char *const schedules[] = {"weipipe", "weipipe-naive",   "wzb1",
                                            "wzb2",    "wzb2:owner=each", "weipipe:flow=line",
                                            "tawpipe"};
    static const struct {
        int stages, rounds, layers;
    } sizes[] = {{1, 3, 2}, {2, 2, 2}, {2, 3, 5}, {3, 2, 3}, {3, 3, 7}, {4, 2, 4}, {5, 1, 6}};
    int runs = 0;

    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            int pick = (int)(i + k);
            struct setting set = {.llama = pick % 2,
                                  .tied = pick % 3 != 1,
                                  .workers = 1 + pick % 4,
                                  .ready = pick % 5 == 4,
                                  .window = pick % 4 == 3,
                                  .few =
                                      i >= 4, /* a gradient travels from its owner to its owner */
                                  .every = pick % 4 == 2 ? 2 : 0,
                                  .recompute = (enum sp_recompute)(pick % 4)};

            if (i == 2 && sizes[k].stages % 2)
                continue; /* chunks come in pairs */
            if (i >= 2 && i <= 4 && set.recompute == SP_RECOMPUTE_SELECTIVE)
                set.recompute = SP_RECOMPUTE_NONE;
            if (set.recompute != SP_RECOMPUTE_FULL)
                set.every = 0;
            check_named(schedules[i], sizes[k].stages, sizes[k].stages * sizes[k].rounds,
                        sizes[k].layers, set);
            if (i >= 3 && sizes[k].rounds > 1) /* a last round of fewer workers */
                check_named(schedules[i], sizes[k].stages, sizes[k].stages * sizes[k].rounds - 1,
                            sizes[k].layers, set);
            runs++;
        }
    print_message("%d plans, %d steps each, gradients within %.1e\n", runs, STEPS, worst);
}

TEST(same_bits)
{
    check_bits("weipipe", 4, 8, 5, anywhere, 3);
    check_bits("wzb2", 4, 8, 5, anywhere, 3);
    check_bits("tawpipe:node=2", 4, 10, 5, anywhere, 3);
}

TEST_FIXTURE(make_data, close_data)
