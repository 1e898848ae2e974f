/* Outputs that cannot be written, that are inputs by whatever name, or that are one and the
 * same. */
#include "model/files/dir.h"
#include "model/support.h"
#include "train/start/outputs.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define R SP_FILE_READ
#define W SP_FILE_WRITTEN
#define P SP_FILE_REPLACED

static char *dir;

/* Names in the directory of this test, where the test is. */
static int make_dir(void **state)
{
    (void)state;
    dir = scratch_make();
    must(!chdir(dir), "chdir");
    must(!mkdir("model", 0777) && !mkdir("other", 0777) && !symlink("model", "alias"), "mkdir");
    write_file("text", "abc", 3);
    write_file("model/config.json", "{}", 2);
    write_file("model/model-00001-of-00002.safetensors", "x", 1);
    write_file("model/log.jsonl", "x", 1);
    must(!symlink("text", "soft") && !symlink("soft", "softer") && !link("text", "hard"), "link");
    must(!symlink("other/new", "dangling") && !symlink("dangling", "more-dangling"), "link");
    must(!symlink("../model/config.json", "other/config.json"), "link");
    must(!symlink("loop", "loop"), "link");
    return 0;
}

static int remove_dir(void **state)
{
    static const char *const names[] = {"other/config.json",
                                        "more-dangling",
                                        "dangling",
                                        "hard",
                                        "softer",
                                        "soft",
                                        "alias",
                                        "model/log.jsonl",
                                        "model/config.json",
                                        "text",
                                        "loop",
                                        "model/model-00001-of-00002.safetensors",
                                        "other",
                                        "model"};
    int left = 0;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        left += remove(names[i]) != 0;
    must(!chdir("/"), "chdir");
    left += rmdir(dir) != 0; /* nothing else is there */
    free(dir);
    return left ? -1 : 0;
}

static int check(enum sp_file_use use, const char *out, enum sp_file_use other_use,
                 const char *other)
{
    struct sp_files files = {0};
    int ret = sp_files_add(&files, use, "--out", out);

    ret = ret ? ret : sp_files_add(&files, other_use, "--other", other);
    ret = ret ? ret : sp_files_add_model(&files, "--model", "model");
    ret = ret ? ret : sp_files_check(&files, "train");
    sp_files_free(&files);
    return ret;
}

TEST(test_same)
{
    static const struct {
        enum sp_file_use use;
        const char *out;
        enum sp_file_use other_use;
        const char *other, *said; /* NULL: nothing */
    } table[] = {
        {W, "text", R, "text", "train: --out text is also --other: it would be overwritten"},
        {W, "./text", R, "text", "--out ./text is also --other text"},
        {W, "model/../text", R, "text", "is also --other text"},
        {W, "soft", R, "text", "is also --other text"},
        {W, "text", R, "softer", "is also --other softer"},
        {W, "hard", R, "softer", "is also --other softer"},
        {W, "new", R, "text", NULL},
        {W, "alias/config.json", R, "text", "is also --model model/config.json"},
        {W, "other/config.json", R, "text", "is also --model model/config.json"},
        {W, "model/model-00001-of-00002.safetensors", R, "text", "is also --model"},
        {W, "model/log.jsonl", R, "text", NULL},
        {W, "model/new", R, "text", NULL},
        {W, "/dev/null", R, "/dev/null", NULL},
        {W, "loop", R, "text", NULL},
        /* in directories that will be made */
        {W, "nowhere/new", W, "nowhere/new", "is also --other"},
        {W, "nowhere/new", W, "./nowhere//other/../new", "is also --other"},
        {W, "alias/far/new", P, "model/./far/new", "one would"},
        {W, "nowhere/new", W, "nowhere/newer", NULL},
        {W, "nowhere/new", W, "elsewhere/new", NULL},
        /* two outputs */
        {W, "new", W, "new", "--out new is also --other: one would overwrite the other"},
        {W, "new", W, "./new", "is also --other ./new: one would"},
        {W, "alias/new", W, "model/new", "is also --other model/new"},
        {W, "dangling", W, "other/new", "is also --other other/new"},
        {W, "more-dangling", W, "other/../other/new", "is also --other"},
        {W, "soft", W, "hard", "is also --other hard"},
        {W, "new", W, "newer", NULL},
        {W, "model/new", W, "other/new", NULL},
        {W, "/dev/null", W, "/dev/null", NULL},
        /* a name that is replaced */
        {P, "model/config.json", R, "text", "is also --model"},
        {P, "soft", R, "text", NULL},
        {P, "text", R, "soft", "is also --other soft"},
        {P, "soft", W, "soft", "one would"},
        {W, "soft", P, "soft", "one would"},
        {P, "new", W, "dangling", NULL},
        {P, "other/new", W, "dangling", "one would"},
    };
    struct capture c;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int ret;

        ret = CAPTURED(&c, check(table[i].use, table[i].out, table[i].other_use, table[i].other));
        if (ret != (table[i].said ? -EINVAL : 0))
            fail_msg("%s, %s: %d, \"%s\"", table[i].out, table[i].other, ret, c.text);
        if (table[i].said)
            assert_said(c.text, table[i].said, table[i].out);
        else
            assert_string_equal(c.text, "");
    }
}

static void assert_refused(int (*try)(const char *), const char *name, const char *said)
{
    struct capture c;
    int ret;

    ret = CAPTURED(&c, try(name));
    assert_true(ret < 0);
    assert_said(c.text, said, name);
}

static int try_file(const char *path)
{
    return sp_output_try_file(path, true);
}

static int try_old_dir(const char *path)
{
    return sp_output_try_file(path, false);
}

TEST(test_try)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    struct stat before, after;
    int s = socket(AF_UNIX, SOCK_STREAM, 0);

    alarm(20);
    must(!mkfifo("fifo", 0600), "mkfifo");
    must(!bind(s, (struct sockaddr *)&address, sizeof address), "bind");
    assert_refused(try_file, "fifo", "cannot write fifo: it is a FIFO");
    assert_refused(try_file, "socket", "cannot write socket: it is a socket");
    assert_refused(try_file, "model", "cannot write model: Is a directory");
    assert_refused(try_file, "text/new", "cannot write text/new: Not a directory");
    assert_refused(try_file, "text/far/new", "cannot write text/far/new: Not a directory");
    assert_refused(try_old_dir, "nowhere/new", "cannot write nowhere/new: No such file");
    assert_refused(try_file, "dangling/new", "cannot write dangling/new: ");
    assert_refused(try_file, "loop/new", "cannot write loop/new: Too many levels");
    assert_refused(try_file, "loop", "cannot write loop: Too many levels");
    assert_refused(sp_output_try_dir, "text", "cannot write text: Not a directory");
    assert_refused(sp_output_try_dir, "fifo", "cannot write fifo: Not a directory");
    assert_refused(sp_output_try_dir, "text/new", "cannot write text/new: Not a directory");
    assert_refused(sp_output_try_dir, "dangling/far/new", "cannot write dangling/far/new: ");
    close(s);
    unlink("socket");
    unlink("fifo");

    must(!stat("text", &before), "stat");
    assert_int_equal(sp_output_try_file("text", true), 0);
    assert_int_equal(sp_output_try_file("soft", true), 0);
    must(!stat("text", &after), "stat");
    assert_true(before.st_size == after.st_size && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
    assert_int_equal(sp_output_try_file("/dev/null", true), 0);
    assert_int_equal(sp_output_try_file("new", true), 0);
    assert_int_equal(access("new", F_OK), -1);
    assert_int_equal(sp_output_try_file("dangling", true), 0);
    assert_int_equal(access("other/new", F_OK), -1);
    must(!lstat("dangling", &after), "the link stays");
    assert_int_equal(sp_output_try_dir("other"), 0);
    assert_int_equal(sp_output_try_dir("fresh"), 0);
    assert_int_equal(sp_output_try_dir("far/fresh/"), 0);
    assert_int_equal(sp_output_try_file("far/new", true), 0);
    assert_int_equal(access("fresh", F_OK), -1); /* nothing is made */
    assert_int_equal(access("far", F_OK), -1);
    alarm(0);
}

/* Directories of a run that is refused after all go again, unless others put something there. */
TEST(test_make)
{
    struct sp_made_dirs made = {0};
    struct stat st;

    assert_int_equal(sp_dir_make_parent("a/b/c/log", &made), 0);
    assert_int_equal(sp_dir_make("a/b/d//e/", &made), 0);
    assert_int_equal(sp_dir_make("other", &made), 0);
    assert_int_equal(made.n, 5);
    assert_int_equal(stat("a/b/d/e", &st), 0);
    write_file("a/b/c/log", "x", 1);
    sp_dir_made_end(&made, true);
    assert_int_equal(stat("a/b/d", &st), -1);
    assert_int_equal(stat("other", &st), 0);
    assert_int_equal(stat("a/b/c/log", &st), 0);
    must(!unlink("a/b/c/log") && !rmdir("a/b/c") && !rmdir("a/b") && !rmdir("a"), "remove");
}

TEST_FIXTURE(make_dir, remove_dir)
