/*
 * Tensors that are away: written and read through buffers that are used in turns, on disk and in memory. A reading sees
 * the last value written before it was submitted, whatever is still on its way; what returns waits until it is told to.
 */
#include "engine/numbered.h"
#include "engine/tier.h"
#include "offload/evicted.h"
#include "sinks/pool.h"
#include "sinks/starpu/sink.h"

enum { PIECES = 3, SETS = 5, BUFFERS = 3, STEPS = 600, NUMBERS = SP_HOST_PAGE / 4 };

static int start(void **state)
{
    (void)state;
    return start_tier(2, 1 << 16);
}

/* Sets of places; each buffer is of one set at a time. */
static void use_in_turns(struct sp_disk *where)
{
    struct sp_tensor *buffer[BUFFERS];
    struct sp_piece piece[SETS][PIECES];
    int value[SETS], wrote = 0;
    uint64_t seed = 9;
    struct sp_mover m;
    struct sp_evicted a;

    wrong = reads = 0;
    sp_mover_init(&m, STARPU_MAIN_RAM, tier, 0);
    assert_int_equal(sp_evicted_create(&a, &m, where), 0);
    for (int b = 0; b < BUFFERS; b++)
        buffer[b] = sp_tensor_make(sp_starpu_sink(), PIECES * NUMBERS, sizeof(float), "buffer");
    for (int s = 0; s < SETS; s++)
        for (int p = 0; p < PIECES; p++)
            piece[s][p] = (struct sp_piece){sp_place_new(&a, SP_HOST_PAGE, "a set"),
                                            (size_t)p * SP_HOST_PAGE};
    for (int k = 0; k < STEPS; k++) {
        int s = k < SETS ? k : draw_below(&seed, SETS);
        struct sp_tensor *in = buffer[k % BUFFERS];

        if (k < SETS || draw_below(&seed, 2)) {
            value[s] = 10000 * (k % 100) + s;
            submit(&write_cl, in, value[s]);
            sp_evicted_write(&a, in, piece[s], PIECES, NULL,
                             (struct sp_memory_count){.live = NULL});
            wrote++;
        } else {
            sp_evicted_read(&a, in, piece[s], PIECES);
            submit(&read_cl, in, value[s]);
        }
    }
    for (int b = 0; b < BUFFERS; b++)
        sp_tensor_unmake(buffer[b]); /* waits for what uses them */
    assert_int_equal(wrong, 0);
    assert_int_equal(reads, STEPS - wrote);
    assert_true(m.moved.left == (int64_t)wrote * PIECES * SP_HOST_PAGE);
    assert_true(m.moved.returned == (int64_t)reads * PIECES * SP_HOST_PAGE);

    /* all of them return, and their places are free */
    for (int s = 0; s < SETS; s++)
        for (int p = 0; p < PIECES; p++) {
            struct sp_tensor *home;
            int64_t live = 0, peak = 0;
            int before = reads;
            struct sp_return *r;

            home = sp_tensor_make(sp_starpu_sink(), NUMBERS, sizeof(float), "home");
            r = sp_evicted_return(&a, home, piece[s][p].place,
                                  (struct sp_memory_count){&live, &peak}, NULL);
            submit(&read_cl, home, value[s] + p * NUMBERS);
            usleep(s + p ? 0 : 20000);
            assert_true(reads == before && live == 0);
            sp_return_begin(r);
            sp_tensor_unmake(home);
            assert_true(reads == before + 1 && live == SP_HOST_PAGE && peak == live);
        }
    assert_int_equal(wrong, 0);
    assert_int_equal(starpu_task_wait_for_all(), 0);
    sp_evicted_destroy(&a);
    sp_mover_destroy(&m, NULL, 0);
}

TEST(on_disk)
{
    use_in_turns(disk);
}

TEST(in_memory)
{
    use_in_turns(NULL);
}

TEST_FIXTURE(start, stop_tier)
