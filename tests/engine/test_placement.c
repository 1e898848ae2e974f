/* Stages to processes to workers: floor(s R / p), contiguous, every worker used, cores shared. */
#include "engine/support.h"
#include "graphs/placement.h"
#include <omp.h>

/* hwloc describes a machine of so many cores instead of this one. */
static void machine(int cores)
{
    char text[64];

    snprintf(text, sizeof text, "core:%d pu:1", cores);
    setenv("HWLOC_SYNTHETIC", text, 1);
}

static void check_one(int p, int R, int node_size, int cores, int threads)
{
    int next = 0;

    for (int rank = 0; rank < R; rank++) {
        struct sp_world world = {
            .rank = rank, .size = R, .node_rank = rank % node_size, .node_size = node_size};
        struct sp_placement pl;
        int share = cores / node_size > 0 ? cores / node_size : 1, used = 0;

        assert_int_equal(sp_placement_init(&pl, &world, 1, p, threads), 0);
        for (int s = 0; s < p; s++) {
            assert_int_equal(sp_stage_rank(&pl, s), s * R / p);
            assert_int_equal(sp_stage_is_local(&pl, s), s * R / p == rank);
        }
        assert_true(pl.n_local >= 1);
        assert_int_equal(pl.first_local, next); /* ranks hold consecutive runs of stages */
        for (int s = next; s < next + pl.n_local; s++)
            assert_true(sp_stage_is_local(&pl, s));
        next += pl.n_local;

        assert_int_equal(pl.cores, share);
        assert_true(pl.workers >= 1 && pl.workers <= pl.n_local && pl.threads >= 1);
        for (int s = pl.first_local; s < next; s++) { /* workers 0, 1, ... without a gap */
            int w = sp_stage_worker(&pl, s);

            assert_true(w == used || (w == used - 1 && used > 0));
            used = w + 1;
        }
        assert_int_equal(used, pl.workers);

        if (threads == 0) {
            assert_int_equal(pl.workers, pl.n_local < share ? pl.n_local : share);
            assert_int_equal(pl.threads, share / pl.workers);
        } else {
            assert_int_equal(pl.threads, threads);
            assert_true(pl.workers == 1 || pl.workers * threads <= share);
            /* As many workers as there is room for. */
            assert_true(pl.workers == pl.n_local || pl.workers == share ||
                        (pl.workers + 1) * threads > share);
        }
        assert_int_equal(pl.bound, cores >= node_size && pl.workers * pl.threads <= share);
    }
    assert_int_equal(next, p);
}

TEST(maps)
{
    static const int cores[] = {1, 2, 3, 8}, threads[] = {0, 1, 2, 3, 16};
    int cases = 0;

    for (size_t c = 0; c < 4; c++) {
        machine(cores[c]);
        for (int p = 1; p <= 9; p += p < 5 ? 1 : 2)
            for (int R = 1; R <= p; R++)
                for (size_t t = 0; t < 5; t++) {
                    if ((c + (size_t)(p + R) + t) % (size_t)test_every(3))
                        continue;
                    check_one(p, R, R, cores[c], threads[t]);
                    if (R % 2 == 0)
                        check_one(p, R, R / 2, cores[c], threads[t]);
                    cases++;
                }
    }
    unsetenv("HWLOC_SYNTHETIC");
    printf("[          ] %d placements\n", cases);
}

TEST(large)
{
    struct sp_placement pl = {
        .stages = 65536, .pipelines = 1, .world = {.size = 65535, .rank = 65534}};

    for (int s = 0; s < 65536; s++)
        assert_int_equal(sp_stage_rank(&pl, s), (int64_t)s * 65535 / 65536);
    pl.first_local = 0;
    pl.n_local = 65536;
    pl.workers = 60000;
    assert_int_equal(sp_stage_worker(&pl, 65535), 59999);
}

/* D pipelines of R ranks each, dealt out in turn; in each of them the stages are where those of one are. */
TEST(pipelines)
{
    machine(8);
    for (int D = 1; D <= 5; D++)
        for (int p = 1; p <= 6; p++)
            for (int R = 1; R <= p; R++)
                for (int rank = 0; rank < D * R; rank++) {
                    struct sp_world world = {
                        .rank = rank, .size = D * R, .node_rank = rank, .node_size = D * R};
                    struct sp_placement pl;
                    int n = 0;

                    assert_int_equal(sp_placement_init(&pl, &world, D, p, 1), 0);
                    assert_int_equal(pl.pipeline, rank % D);
                    assert_int_equal(sp_pipeline_size(&pl), R);
                    for (int s = 0; s < p; s++) {
                        assert_int_equal(sp_stage_rank(&pl, s), s * R / p * D + rank % D);
                        assert_int_equal(sp_stage_rank_in(&pl, s, D - 1), s * R / p * D + D - 1);
                        n += sp_stage_is_local(&pl, s);
                    }
                    assert_int_equal(n, pl.n_local);
                    assert_true(sp_stage_is_local(&pl, pl.first_local));
                }
    unsetenv("HWLOC_SYNTHETIC");
}

TEST(too_many_processes)
{
    static const int table[][2] = {{1, 2}, {3, 4}, {4, 64}};

    for (size_t i = 0; i < 3; i++) {
        struct sp_world world = {.size = table[i][1], .node_size = 1};
        struct sp_placement pl;
        struct capture said;
        char expected[128];
        int ret;

        ret = CAPTURED(&said, sp_placement_init(&pl, &world, 1, table[i][0], 0));
        assert_int_equal(ret, -EINVAL);
        snprintf(expected, sizeof expected,
                 "starpipe: %d processes for %d stages: start at most %d\n", table[i][1],
                 table[i][0], table[i][0]);
        assert_string_equal(said.text, expected);
    }
}

static int threads[STARPU_NMAXWORKERS];

static void count_threads(void *arg)
{
    (void)arg;
    threads[starpu_worker_get_id_check()] = omp_get_max_threads();
}

static void assert_threads(int first, int rest)
{
    starpu_execute_on_each_worker(count_threads, NULL, STARPU_CPU);
    for (int w = 0; w < 3; w++)
        assert_int_equal(threads[w], w ? rest : first);
}

/* The first worker takes the threads of all, and gives them back. */
TEST(gather)
{
    struct sp_placement pl = {
        .stages = 3, .n_local = 3, .workers = 3, .threads = 2, .cores = 6, .crowded = true};

    start_starpu(3, &sp_order_strict);
    sp_placement_bind(&pl);
    assert_threads(2, 2);
    sp_placement_gather(&pl, true);
    assert_threads(6, 2);
    sp_placement_gather(&pl, false);
    assert_threads(2, 2);
    starpu_shutdown();
}
