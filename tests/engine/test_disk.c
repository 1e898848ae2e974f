/*
 * The disk tier and host memory by themselves: tensors of many sizes out and back in random orders, the
 * space of the file used again, memory that is really given back, a disk that has no room.
 */
#define _GNU_SOURCE /* fallocate */
#include "engine/numbered.h"
#include "engine/tier.h"
#include "offload/mover.h"
#include "sinks/pool.h"
#include "sinks/starpu/sink.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

enum { TENSORS = 24, ROUNDS = 40 };

/* ---- what stands in the place of the C library's: a disk as full as a test wants it ------------ */

static int64_t wanted_free = -1; /* bytes; -1: what there is */
static bool fails_half_way;
static int reservations;
static int64_t held; /* bytes on the disk of the file that was asked about last */

int fallocate(int fd, int mode, off_t at, off_t n)
{
    reservations++;
    if (fails_half_way && !syscall(SYS_fallocate, fd, mode, at, n / 2)) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, at, n);
}

int fstatvfs(int fd, struct statvfs *fs)
{
    struct statfs here;
    struct stat st;

    if (fstatfs(fd, &here) || fstat(fd, &st))
        return -1;
    held = 512 * (int64_t)st.st_blocks;
    *fs = (struct statvfs){.f_frsize = 4096, .f_blocks = 1 << 20};
    fs->f_bavail = wanted_free >= 0 ? (fsblkcnt_t)wanted_free / 4096
                                    : (fsblkcnt_t)here.f_bavail * (fsblkcnt_t)here.f_bsize / 4096;
    return 0;
}

static int start(void **state)
{
    (void)state;
    return start_tier(1, 1 << 20);
}

/* Waits until so many bytes have left. */
static void wait_left(struct sp_mover *m, int64_t bytes)
{
    for (int i = 0; i < 20000 && __atomic_load_n(&m->moved.left, __ATOMIC_ACQUIRE) < bytes; i++)
        usleep(500);
    assert_true(m->moved.left == bytes);
}

TEST(out_and_back)
{
    struct sp_pool *pool = sp_pool_create(sp_starpu_sink(), 2, SP_POOL_FREES);
    int64_t live = 0, peak = 0, most = 0;
    uint64_t seed = 4;
    struct sp_move moves[TENSORS] = {0};
    struct sp_mover m;

    sp_mover_init(&m, STARPU_MAIN_RAM, tier, 0);
    for (int round = 0; round < ROUNDS; round++) {
        struct sp_move_tensor moved[TENSORS];
        struct sp_tensor *handles[TENSORS];
        int64_t bytes = 0, out = 0, before = sp_host_bytes();
        bool leaves[TENSORS];

        m.moved = (struct sp_moved){0};
        for (int i = 0; i < TENSORS; i++) {
            size_t n = 1 + (size_t)draw_below(&seed, round % 2 ? 3000 : 60000);

            handles[i] = sp_pool_get(pool, n, sizeof(float), "x");
            submit(&write_cl, handles[i], 100 * round + i);
            bytes += (int64_t)(n * sizeof(float));
            leaves[i] = draw_below(&seed, 4) > 0;
            if (!leaves[i])
                continue;
            live += (int64_t)(n * sizeof(float));
            moves[i].tensors = &moved[i];
            sp_move_out(&moves[i], &m, &handles[i], 1, (struct sp_memory_count){&live, &peak});
            out += (int64_t)sp_host_round(n * sizeof(float));
        }
        wait_left(&m, out);
        assert_int_equal(starpu_task_wait_for_all(), 0);
        /* what left takes no memory; whole pages of the others do */
        assert_true(sp_host_bytes() - before <= bytes - out + 2 * TENSORS * SP_HOST_PAGE);
        most = bytes - out > most ? bytes - out : most; /* there at once, whatever left before */
        for (int i = 0; i < TENSORS; i++)
            if (leaves[i] && draw_below(&seed, 2))
                sp_move_back(&moves[i]);
        for (int i = TENSORS - 1; i >= 0; i--) { /* fetched before or not */
            submit(&read_cl, handles[i], 100 * round + i);
            sp_pool_put(handles[i]);
        }
        assert_int_equal(starpu_task_wait_for_all(), 0);
        starpu_do_schedule();
        for (int i = 0; i < 2000 && sp_host_bytes() > before; i++)
            usleep(500);
        assert_true(sp_host_bytes() == before);
    }
    assert_int_equal(wrong, 0);
    assert_int_equal(reads, ROUNDS * TENSORS);
    assert_true(sp_host_peak() >= most);
    sp_pool_destroy(pool);
    sp_mover_destroy(&m, moves, TENSORS);
}

/* Reading on where nothing was asked back, and measuring beside, work too. */
TEST(rates)
{
    struct sp_tier_rates rates;
    struct sp_disk_traffic t;
    double both;

    assert_int_equal(sp_disk_measure(disk, &rates), 0);
    t = sp_disk_traffic(disk);
    assert_true(rates.write > 1e6 && rates.read > 1e6);
    assert_true(t.written >= 16 * SP_HOST_PAGE && t.read >= 16 * SP_HOST_PAGE);
    assert_true(t.write_us > 0 && t.read_us > 0);
    assert_int_equal(sp_disk_measure_both(disk, &both), 0);
    assert_true(both > 1e6);
    assert_true(sp_disk_traffic(disk).read > t.read && sp_disk_traffic(disk).written > t.written);
    printf("[          ] writes %.2f, reads %.2f, both at once %.2f GB/s\n", rates.write / 1e9,
           rates.read / 1e9, both / 1e9);
}

TEST(refusals)
{
    struct sp_disk *none = NULL;
    struct capture said;

    capture_begin(&said);
    assert_int_equal(sp_disk_create("/nowhere", 1, _exit, &none), -ENOENT);
    assert_non_null(strstr(capture_end(&said), "/nowhere/"));
    capture_begin(&said);
    assert_true(sp_disk_create("/var/tmp", INT64_C(1) << 60, _exit, &none) < 0);
    assert_non_null(strstr(capture_end(&said), "offload file /var/tmp/"));
    assert_null(none);
}

TEST(no_room)
{
    struct sp_disk *none = NULL;
    struct capture said;

    reservations = 0;
    wanted_free = 10 << 20;
    capture_begin(&said);
    assert_int_equal(sp_disk_create("/var/tmp", 64 << 20, _exit, &none), -ENOSPC);
    assert_non_null(strstr(capture_end(&said), "needs 64 MiB, 10 are free there"));
    assert_int_equal(reservations, 0);

    /* There seemed to be room: what was taken of it is given back before the free space is told. */
    wanted_free = -1;
    fails_half_way = true;
    held = -1;
    capture_begin(&said);
    assert_int_equal(sp_disk_create("/var/tmp", 8 << 20, _exit, &none), -ENOSPC);
    assert_non_null(strstr(capture_end(&said), "needs 8 MiB, "));
    assert_int_equal(reservations, 1);
    assert_int_equal(held, 0);
    fails_half_way = false;
    assert_null(none);
}

TEST_FIXTURE(start, stop_tier)
