/* The log of a resumed run goes on behind the steps before it; what is no log is left alone. */
#include "model/support.h"
#include "train/run/log_file.h"
#include <errno.h>
#include <sys/stat.h>

#define PLAN "{\"plan\":\"1f1b\",\"stages\":2}\n"
#define STEP(k) "{\"step\":" #k ",\"loss\":5.5}\n"
#define OTHER "{\"evaluation\":1,\"loss\":5.5}\n"

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

/* What stands in the file, which goes. */
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

/* Opens the log that holds `before` and adds a line: then it holds `kept` and the line. */
static void expect(const char *before, int first_step, const char *kept)
{
    char want[4096];
    FILE *log;

    write_file(path, before, strlen(before));
    assert_int_equal(sp_log_check(path, first_step), 0);
    assert_int_equal(sp_log_open(path, first_step, &log), 0);
    must(fputs("more\n", log) >= 0 && !fclose(log), "writing a log");
    snprintf(want, sizeof want, "%smore\n", kept);
    assert_string_equal(take(), want);
}

static void test_kept(void **state)
{
    (void)state;
    expect(PLAN STEP(0) STEP(1), SP_LOG_NEW, "");
    expect("", SP_LOG_NEW, "");
    expect("", 3, "");
    expect(PLAN STEP(0) STEP(1), 2, PLAN STEP(0) STEP(1));
    expect(PLAN STEP(0) STEP(1) STEP(2) STEP(3), 2, PLAN STEP(0) STEP(1));
    expect(PLAN STEP(0) STEP(1) "{\"step\":2,\"lo", 2, PLAN STEP(0) STEP(1));
    expect(PLAN STEP(0) STEP(1) "{\"step\":2}", 3, PLAN STEP(0) STEP(1)); /* no end of line */
    expect(PLAN STEP(0) STEP(1) "\n", 3, PLAN STEP(0) STEP(1));
    expect(PLAN STEP(0) STEP(1) "[1]\n" STEP(3), 3, PLAN STEP(0) STEP(1));
    /* a run that was resumed before, and killed again; a log that begins late */
    expect(PLAN STEP(0) STEP(1) PLAN STEP(2) OTHER STEP(3) STEP(4), 4,
           PLAN STEP(0) STEP(1) PLAN STEP(2) OTHER STEP(3));
    expect(PLAN STEP(0) STEP(1) PLAN STEP(2), 1, PLAN STEP(0));
    expect(PLAN STEP(0) STEP(1) PLAN STEP(2), 0, PLAN);
    expect(PLAN STEP(7) STEP(8), 8, PLAN STEP(7));
    expect(PLAN STEP(7) STEP(8), 100, PLAN STEP(7) STEP(8));
    /* steps twice, all of them to be cut */
    expect(PLAN STEP(0) STEP(1) STEP(2) STEP(3) PLAN STEP(2) STEP(3), 2, PLAN STEP(0) STEP(1));
    /* killed in the first line */
    expect("{\"plan\":\"1f", 0, "");
    expect("{\"plan\":\"1f", SP_LOG_NEW, "");
}

static void test_refused(void **state)
{
    static const struct {
        const char *text;
        int first_step;
        const char *said;
    } table[] = {
        {"my notes\n", SP_LOG_NEW, "exists and is no log of starpipe; remove it first"},
        {"my notes\n", 4, "exists and is no log of starpipe; remove it first"},
        {"my notes", 4, "is no log of starpipe"},
        {"\n" PLAN, 4, "is no log of starpipe"},
        {STEP(0), SP_LOG_NEW, "is no log of starpipe"},
        {STEP(0) PLAN, 1, "is no log of starpipe"},
        {"[1, 2]\n", SP_LOG_NEW, "is no log of starpipe"},
        {PLAN STEP(0) STEP(1) STEP(2) PLAN STEP(1), 3,
         "out of order: line 6, step 1, comes after line 4, step 2; to go on at step 3 give"},
        {PLAN STEP(0) "{\"step\":1,\"lo" PLAN STEP(1) STEP(2), 3,
         "line 4, step 1, comes after line 3, which is torn"},
        {PLAN STEP(0) STEP(4) STEP(5) STEP(1) STEP(2), 3,
         "line 5, step 1, comes after line 3, step 4"},
    };
    struct capture c;
    FILE *log;

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        write_file(path, table[i].text, strlen(table[i].text));
        for (int opens = 0; opens < 2; opens++) {
            int ret;

            capture_begin(&c);
            ret = opens ? sp_log_open(path, table[i].first_step, &log)
                        : sp_log_check(path, table[i].first_step);
            capture_end(&c);
            assert_int_equal(ret, -EINVAL);
            assert_said(c.text, table[i].said, table[i].text);
        }
        assert_string_equal(take(), table[i].text);
    }
}

/* What is there may be a device, a FIFO that nobody reads, or nothing. */
static void test_no_files(void **state)
{
    struct capture c;
    FILE *log;

    (void)state;
    alarm(20);
    assert_int_equal(sp_log_check(path, 3), 0);
    assert_int_equal(sp_log_check("/dev/null", 3), 0);
    assert_int_equal(sp_log_open("/dev/null", 3, &log), 0);
    assert_true(fputs("more\n", log) >= 0 && !fclose(log));
    must(!mkfifo(path, 0600), "mkfifo");
    capture_begin(&c);
    assert_true(sp_log_open(path, SP_LOG_NEW, &log) < 0);
    assert_said(capture_end(&c), "cannot write log", "FIFO");
    unlink(path);
    capture_begin(&c);
    assert_int_equal(sp_log_open("/nowhere/log", SP_LOG_NEW, &log), -ENOENT);
    assert_said(capture_end(&c), "cannot write log /nowhere/log: No such file", "no directory");
    alarm(0);
}

TEST_GROUP(log_file)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_files),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
