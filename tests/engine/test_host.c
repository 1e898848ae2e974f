/* Main memory beside GPUs: reservations, refused pins, and buffers that are used again. */
#include "engine/support.h"
#include "offload/host.h"

enum { MIB = 1 << 20 };

static size_t most_pinned; /* of one call */
static int asked, pinned, unpinned;

static bool pin(void *memory, size_t bytes)
{
    (void)memory;
    asked++;
    pinned += bytes <= most_pinned;
    return bytes <= most_pinned;
}

static void unpin(void *memory)
{
    (void)memory;
    unpinned++;
}

static void begin(size_t most)
{
    static const struct sp_host_pins pins = {pin, unpin};

    most_pinned = most;
    asked = pinned = unpinned = 0;
    sp_host_start(SIZE_MAX, &pins);
    start_starpu(1, &sp_order_strict);
}

static void end(void)
{
    starpu_shutdown();
    sp_host_stop();
}

static char *take(size_t bytes)
{
    void *memory = NULL;

    assert_int_equal(starpu_malloc(&memory, bytes), 0);
    memset(memory, 1, bytes);
    return memory;
}

/* One call pins the whole reservation. Buffers beyond it are pinned when they are made, and not
 * again when they are reused. */
TEST(reserved)
{
    char *a[4], *more;

    begin(SIZE_MAX);
    sp_host_reserve(4 * MIB - 100); /* whole pages */
    assert_int_equal(asked, 1);
    for (int i = 0; i < 4; i++) {
        a[i] = take(MIB);
        assert_true(i == 0 || a[i] == a[i - 1] + MIB);
    }
    assert_int_equal(asked, 1);
    assert_int_equal(sp_host_bytes(), 4 * MIB);
    more = take(MIB);
    assert_int_equal(asked, 2);
    for (int i = 0; i < 4; i++)
        starpu_free_noflag(a[i], MIB);
    assert_ptr_equal(take(MIB), a[3]); /* the latest */
    starpu_free_noflag(a[3], MIB);
    starpu_free_noflag(more, MIB);
    assert_int_equal(sp_host_bytes(), 0);
    end();
    assert_int_equal(unpinned, 2);
}

/* If a pin is refused, the reservation is halved until it succeeds. */
TEST(refused)
{
    char *a, *b;

    begin(2 * MIB);
    sp_host_reserve(8 * MIB);
    assert_int_equal(asked, 3); /* 8, 4, 2 */
    assert_int_equal(pinned, 1);
    a = take(2 * MIB);
    assert_int_equal(asked, 3);
    b = take(2 * MIB);
    assert_int_equal(pinned, 2);
    starpu_free_noflag(a, 2 * MIB);
    starpu_free_noflag(b, 2 * MIB);
    end();

    begin(0);
    sp_host_reserve(8 * MIB);
    assert_int_equal(pinned, 0);
    a = take(MIB); /* as it is */
    starpu_free_noflag(a, MIB);
    end();
}
