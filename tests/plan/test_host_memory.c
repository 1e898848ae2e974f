/* The memory that there is, from /proc and control groups that the test makes. */
#include "policies/common.h"
#include "model/support.h"
#include "offload/host_memory.h"
#include <sys/stat.h>

static char *root;

/* A file below the root, with the directories above it. */
static void put(const char *name, const char *text)
{
    char path[4200];

    scratch_path(root, name, path);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    write_file(path, text, strlen(text));
}

static void begin(void)
{
    root = scratch_make();
    put("proc/meminfo",
        "MemTotal:       1000 kB\nMemFree:          10 kB\nMemAvailable:    400 kB\n"
        "CommitLimit:     700 kB\nCommitted_AS:    650 kB\n");
    put("proc/sys/vm/overcommit_memory", "0\n");
    put("proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max data size             unlimited            unlimited            bytes     \n"
        "Max address space         unlimited            unlimited            bytes     \n");
    put("proc/self/status", "Name:   x\nVmSize:      50 kB\nVmData:      20 kB\n");
}

static struct sp_host_memory end(void)
{
    struct sp_host_memory m;

    sp_host_memory_read(root, &m);
    scratch_remove(root);
    return m;
}

static void assert_limit(const struct sp_memory_limit *limit, int64_t kib, const char *origin)
{
    if (limit->bytes != 1024 * kib || !strstr(limit->origin, origin))
        fail_msg("%lld bytes of %s, not %lld KiB of %s", (long long)limit->bytes, limit->origin,
                 (long long)kib, origin);
}

TEST(test_machine)
{
    struct sp_host_memory m;
    struct sp_memory_limit share;

    begin();
    m = end();
    assert_limit(&m.node, 1000, "this machine");
    assert_limit(&m.node_free, 400, "this machine");
    assert_true(m.process.bytes == INT64_MAX);
    share = sp_host_memory_share(&m, 3);
    assert_int_equal(share.bytes, 1024 * 1000 / 10 * 9 / 3);
    assert_int_equal(sp_host_memory_free_share(&m, 2).bytes, 1024 * 400 / 10 * 9 / 2);
}

/* Without /proc there is no limit, and no crash. */
TEST(test_nothing)
{
    struct sp_host_memory m;

    root = scratch_make();
    m = end();
    assert_true(m.node.bytes == INT64_MAX && m.process.bytes == INT64_MAX);
    assert_true(sp_host_memory_share(&m, 2).bytes == INT64_MAX);
}

TEST(test_promises)
{
    struct sp_host_memory m;

    begin();
    put("proc/sys/vm/overcommit_memory", "2\n");
    m = end();
    assert_limit(&m.node, 700, "overcommit");
    assert_limit(&m.node_free, 50, "overcommit");
}

/* The smallest limit of all levels counts, wherever it is; pages of files are no use. */
TEST(test_unified)
{
    struct sp_host_memory m;

    begin();
    put("proc/self/cgroup", "0::/user/job/step\n");
    put("proc/self/mountinfo",
        "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
    put("sys/fs/cgroup/user/memory.max", "max\n");
    put("sys/fs/cgroup/user/memory.current", "900000\n");
    put("sys/fs/cgroup/user/job/memory.max", "512000\n");
    put("sys/fs/cgroup/user/job/memory.high", "max\n");
    put("sys/fs/cgroup/user/job/memory.current", "204800\n");
    put("sys/fs/cgroup/user/job/memory.stat", "anon 1\nfile 2\ninactive_file 102400\n");
    put("sys/fs/cgroup/user/job/step/memory.max", "614400\n");
    put("sys/fs/cgroup/user/job/step/memory.high", "563200\n");
    put("sys/fs/cgroup/user/job/step/memory.current", "460800\n");
    m = end();
    assert_limit(&m.node, 500, "(/sys/fs/cgroup/user/job/memory.max)");
    assert_limit(&m.node_free, 100, "(/sys/fs/cgroup/user/job/step/memory.high)");
}

/* In a container the group is what is mounted, whatever its name is outside. */
TEST(test_container)
{
    static const char *const groups[] = {"0::/\n", "0::/../../outside\n", "0::/docker/4711\n"};
    static const char *const mounts[] = {"/", "/", "/docker/4711"};

    for (int i = 0; i < 3; i++) {
        struct sp_host_memory m;
        char line[200];

        begin();
        put("proc/self/cgroup", groups[i]);
        snprintf(line, sizeof line, "29 23 0:26 %s /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
                 mounts[i]);
        put("proc/self/mountinfo", line);
        put("sys/fs/cgroup/memory.max", "307200\n");
        m = end();
        assert_limit(&m.node, 300, "(/sys/fs/cgroup/memory.max)");
        assert_limit(&m.node_free, 400, "this machine");
    }
}

/* The older hierarchies: that of memory is one of several. */
TEST(test_memory_controller)
{
    struct sp_host_memory m;

    begin();
    put("proc/self/cgroup", "5:cpuset:/other\n4:memory:/slurm/job_7\n0::/\n");
    put("proc/self/mountinfo",
        "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", "409600\n");
    put("sys/fs/cgroup/memory/slurm/memory.usage_in_bytes", "399360\n");
    put("sys/fs/cgroup/memory/slurm/memory.stat", "cache 1\ntotal_inactive_file 204800\n");
    m = end();
    assert_limit(&m.node, 400, "(/sys/fs/cgroup/memory/slurm/memory.limit_in_bytes)");
    assert_limit(&m.node_free, 210, "slurm");
}

TEST(test_limits)
{
    struct sp_memory_limit share;
    struct sp_host_memory m;

    begin();
    put("proc/self/limits",
        "Max data size             204800               unlimited            bytes\n"
        "Max address space         307200               307200               bytes\n");
    m = end();
    assert_limit(&m.process, 180, "ulimit -d");
    share = sp_host_memory_share(&m, 1); /* of the process, however many there are */
    assert_limit(&share, 180, "ulimit -d");
    share = sp_host_memory_share(&m, 10);
    assert_limit(&share, 90, "this machine");
}

/* This machine, whatever it is. */
TEST(test_here)
{
    struct sp_memory_limit has = sp_host_memory_has(1), unused = sp_host_memory_has_free(1);

    print_message("%s has room for %.2f GiB, %.2f of them free (%s)\n", has.origin,
                  (double)has.bytes / (1 << 30), (double)unused.bytes / (1 << 30), unused.origin);
    assert_true(has.bytes > 1 << 20 && has.bytes < INT64_MAX && unused.bytes <= has.bytes);
}
