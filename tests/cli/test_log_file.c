/* A resumed run appends to its log after the steps it continues; a file that is no log is left
 * alone. */
#include "model/support.h"
#include "train/run/log_file.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OLD "{\"plan\":\"1f1b\",\"stages\":2}\n" /* of a version whose steps count from 0 */
#define PLAN "{\"plan\":\"1f1b\",\"first_step\":1,\"stages\":2}\n"
#define STEP(k) "{\"step\":" #k ",\"loss\":5.5}\n"
#define OTHER "{\"evaluation\":1,\"loss\":5.5}\n"

/* False makes flock, which replaces the C library's, fail as on a file system without locks. */
static bool has_locks = true;

int flock(int fd, int operation)
{
    if (has_locks)
        return (int)syscall(SYS_flock, fd, operation);
    errno = ENOLCK;
    return -1;
}

static char *dir;
static char path[4200];

static int make_dir(void **state)
{
    (void)state;
    dir = scratch_make();
    scratch_path(dir, "log", path);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    rmdir(dir);
    free(dir);
    return 0;
}

/* Returns the text of the log file and removes the file. */
static char *take(void)
{
    static char text[4096];
    FILE *f = fopen(path, "r");

    must(f != NULL, "open");
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    unlink(path);
    return text;
}

/* As a run does. */
static int open_log(const char *name, int done, FILE **log)
{
    struct sp_log_file file;
    int ret = sp_log_take(name, &file);

    if (!ret)
        ret = sp_log_open(name, done, &file, log);
    sp_log_release(name, &file);
    return ret;
}

/* Opens a log that holds `before` and adds a line; the log must then hold `kept` and that line. */
static void expect(const char *before, int done, const char *kept)
{
    char want[4096];
    FILE *log;

    write_file(path, before, strlen(before));
    assert_int_equal(sp_log_check(path, done), 0);
    assert_int_equal(open_log(path, done, &log), 0);
    must(fputs("more\n", log) >= 0 && !fclose(log), "writing a log");
    snprintf(want, sizeof want, "%smore\n", kept);
    assert_string_equal(take(), want);
}

TEST(test_kept)
{
    expect(PLAN STEP(1) STEP(2), SP_LOG_NEW, "");
    expect("", SP_LOG_NEW, "");
    expect("", 3, "");
    expect(PLAN STEP(1) STEP(2), 2, PLAN STEP(1) STEP(2));
    expect(PLAN STEP(1) STEP(2) STEP(3) STEP(4), 2, PLAN STEP(1) STEP(2));
    expect(PLAN STEP(1) STEP(2) "{\"step\":3,\"lo", 2, PLAN STEP(1) STEP(2));
    expect(PLAN STEP(1) STEP(2) "{\"step\":3}", 3, PLAN STEP(1) STEP(2)); /* no end of line */
    expect(PLAN STEP(1) STEP(2) "\n", 3, PLAN STEP(1) STEP(2));
    expect(PLAN STEP(1) STEP(2) "[1]\n" STEP(4), 3, PLAN STEP(1) STEP(2));
    /* a run that was resumed before, and killed again; a log that begins late */
    expect(PLAN STEP(1) STEP(2) PLAN STEP(3) OTHER STEP(4) STEP(5), 4,
           PLAN STEP(1) STEP(2) PLAN STEP(3) OTHER STEP(4));
    expect(PLAN STEP(1) STEP(2) PLAN STEP(3), 1, PLAN STEP(1));
    expect(PLAN STEP(1) STEP(2) PLAN STEP(3), 0, PLAN);
    expect(PLAN STEP(8) STEP(9), 8, PLAN STEP(8));
    expect(PLAN STEP(8) STEP(9), 100, PLAN STEP(8) STEP(9));
    /* steps twice, all of them to be cut */
    expect(PLAN STEP(1) STEP(2) STEP(3) STEP(4) PLAN STEP(3) STEP(4), 2, PLAN STEP(1) STEP(2));
    /* begun by a version that counted from 0, and gone on with */
    expect(OLD STEP(0) STEP(1) STEP(2), 2, OLD STEP(0) STEP(1));
    expect(OLD STEP(0) STEP(1) PLAN STEP(3) STEP(4), 3, OLD STEP(0) STEP(1) PLAN STEP(3));
    expect(OLD STEP(0) STEP(1) PLAN STEP(3) STEP(4), 1, OLD STEP(0));
    /* killed in the first line */
    expect("{\"plan\":\"1f", 0, "");
    expect("{\"plan\":\"1f", SP_LOG_NEW, "");
}

TEST(test_refused)
{
    static const struct {
        const char *text;
        int done;
        const char *said;
    } table[] = {
        {"my notes\n", SP_LOG_NEW, "exists and is no log of starpipe; remove it first"},
        {"my notes\n", 4, "exists and is no log of starpipe; remove it first"},
        {"my notes", 4, "is no log of starpipe"},
        {"\n" PLAN, 4, "is no log of starpipe"},
        {STEP(1), SP_LOG_NEW, "is no log of starpipe"},
        {STEP(1) PLAN, 1, "is no log of starpipe"},
        {"[1, 2]\n", SP_LOG_NEW, "is no log of starpipe"},
        {PLAN STEP(1) STEP(2) STEP(3) PLAN STEP(2), 3,
         "out of order: line 6, step 2, comes after line 4, step 3; to go on at step 4 give"},
        {PLAN STEP(1) "{\"step\":2,\"lo" PLAN STEP(2) STEP(3), 3,
         "line 4, step 2, comes after line 3, which is torn"},
        {PLAN STEP(1) STEP(5) STEP(6) STEP(2) STEP(3), 3,
         "line 5, step 2, comes after line 3, step 5"},
    };
    struct capture c;
    FILE *log;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        write_file(path, table[i].text, strlen(table[i].text));
        for (int opens = 0; opens < 2; opens++) {
            int ret;

            ret = CAPTURED(&c, opens ? open_log(path, table[i].done, &log)
                                     : sp_log_check(path, table[i].done));
            assert_int_equal(ret, -EINVAL);
            assert_said(c.text, table[i].said, table[i].text);
        }
        assert_string_equal(take(), table[i].text);
    }
}

/* The path may name a device, a FIFO that nobody reads, or nothing. */
TEST(test_no_files)
{
    struct capture c;
    FILE *log;

    alarm(20);
    assert_int_equal(sp_log_check(path, 3), 0);
    assert_int_equal(sp_log_check("/dev/null", 3), 0);
    assert_int_equal(open_log("/dev/null", 3, &log), 0);
    assert_true(fputs("more\n", log) >= 0 && !fclose(log));
    must(!mkfifo(path, 0600), "mkfifo");
    capture_begin(&c);
    assert_true(open_log(path, SP_LOG_NEW, &log) < 0);
    assert_said(capture_end(&c), "cannot write log", "FIFO");
    unlink(path);
    assert_says(&c, open_log("/nowhere/log", SP_LOG_NEW, &log), -ENOENT,
                "cannot write log /nowhere/log: No such file", "no directory");
    alarm(0);
}

/* Another process holds a lock of either kind: the log is refused at once, its holder is named, and
 * nothing is touched. */
TEST(test_locked)
{
    struct sp_log_file file, other;
    char me[64];
    struct capture c;
    int fd;

    alarm(20);
    write_file(path, PLAN STEP(1), strlen(PLAN STEP(1)));
    assert_int_equal(sp_log_take(path, &file), 0);
    capture_begin(&c);
    assert_int_equal(sp_log_take(path, &other), -EBUSY);
    snprintf(me, sizeof me, "(process %ld, ", (long)getpid());
    assert_said(capture_end(&c), "another run writes it", "a lock");
    assert_said(c.text, access("/proc/locks", R_OK) ? "give" : me, "its holder");
    assert_int_equal(other.fd, -1);
    sp_log_release(path, &file);
    fd = open(path, O_RDONLY);
    must(fd >= 0 && !flock(fd, LOCK_SH), "flock");
    capture_begin(&c);
    assert_int_equal(sp_log_take(path, &other), -EBUSY);
    capture_end(&c);
    close(fd);
    assert_int_equal(sp_log_take(path, &file), 0);
    sp_log_release(path, &file);
    assert_string_equal(take(), PLAN STEP(1));
    alarm(0);
}

/* Without locks the run warns and goes on. */
TEST(test_no_locks)
{
    struct sp_log_file file;
    struct capture c;

    has_locks = false;
    assert_says(&c, sp_log_take(path, &file), 0, "warning: log ", "no locks");
    assert_said(c.text, "cannot be locked (No locks available)", "no locks");
    has_locks = true;
    assert_true(file.fd >= 0);
    sp_log_release(path, &file);
}

/* A log made for a run that is then refused is removed; a file that was there before stays. */
TEST(test_released)
{
    struct sp_log_file file;

    assert_int_equal(sp_log_take(path, &file), 0);
    sp_log_release(path, &file);
    assert_int_not_equal(access(path, F_OK), 0);
    write_file(path, "", 0);
    assert_int_equal(sp_log_take(path, &file), 0);
    sp_log_release(path, &file);
    assert_string_equal(take(), "");
}

TEST_FIXTURE(make_dir, remove_dir)
