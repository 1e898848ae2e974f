/* Who may save where, what is found, and what is left. */
#include "model/support.h"
#include "train/checkpoint/run_dir.h"
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

static char *scratch;

static int setup(void **state)
{
    (void)state;
    scratch = scratch_make();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    scratch_remove(scratch);
    return 0;
}

/* A path in a directory of the case. */
static const char *at(const char *name)
{
    static char path[8][4300];
    static int turn;

    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s/%s", scratch, name);
    return path[turn];
}

/* A step as a run makes it. */
static void save(struct sp_run_dir *d, long step)
{
    static const char *const names[] = {"config.json", "model.safetensors", "state.json"};
    char path[SP_RUN_PATH], file[SP_RUN_PATH + 32];

    assert_int_equal(sp_run_dir_begin(d, step, path), 0);
    for (int i = 0; i < 3; i++) {
        snprintf(file, sizeof file, "%s/%s", path, names[i]);
        write_file(file, "x", 1);
    }
    assert_int_equal(sp_run_dir_commit(d, step), 0);
}

/* Names in a directory that begin with "step-", in order, with spaces. */
static const char *holds(const char *dir)
{
    static char text[1000];
    struct dirent **list;
    int n = scandir(dir, &list, NULL, alphasort);

    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        if (!strncmp(list[i]->d_name, "step-", 5))
            strcat(strcat(text, text[0] ? " " : ""), list[i]->d_name + 5);
        free(list[i]);
    }
    free(list);
    return text;
}

static void assert_link(const char *path, const char *target)
{
    char text[300] = "";

    assert_true(readlink(path, text, sizeof text - 1) > 0);
    assert_string_equal(text, target);
}

static void claim(struct sp_run_dir *d, const char *path, const char *resumed, int keep,
                  bool overwrite)
{
    assert_int_equal(sp_run_dir_lock(d, path), 0);
    assert_int_equal(sp_run_dir_claim(d, resumed, keep, overwrite), 0);
}

static void refused(const char *path, const char *resumed, const char *word)
{
    struct sp_run_dir d;
    struct capture c;
    int err;

    capture_begin(&c);
    err = sp_run_dir_lock(&d, path);
    err = err ? err : sp_run_dir_claim(&d, resumed, 1, false);
    assert_said(capture_end(&c), word, path);
    assert_true(err < 0);
}

static void test_keeps_the_newest(void **state)
{
    struct sp_run_dir d;
    char found[SP_RUN_PATH];
    long step;

    (void)state;
    claim(&d, at("keep"), NULL, 2, false);
    for (int n = 1; n <= 5; n++)
        save(&d, n);
    assert_string_equal(holds(at("keep")), "000001 000002 000003 000004 000005");
    assert_int_equal(sp_step_find(at("keep"), found, &step), 0);
    assert_int_equal(step, 5);
    sp_run_dir_prune(&d);
    assert_string_equal(holds(at("keep")), "000004 000005");
    assert_link(at("keep/model.safetensors"), "step-000005/model.safetensors");
    assert_int_equal(access(at("keep/config.json"), F_OK), 0);
    save(&d, 5); /* again, in place */
    assert_string_equal(holds(at("keep")), "000004 000005");
    d.keep = 0;
    sp_run_dir_prune(&d);
    assert_string_equal(holds(at("keep")), "000004 000005");
    assert_int_equal(sp_step_find(at("keep/step-000004/"), found, &step), 0);
    assert_int_equal(step, 4);
    sp_run_dir_release(&d);
}

static void test_belongs_to_one_run(void **state)
{
    struct sp_run_dir d;

    (void)state;
    claim(&d, at("mine"), NULL, 1, false);
    refused(at("mine"), NULL, "another run is writing it (process ");
    save(&d, 7);
    save(&d, 8);
    sp_run_dir_release(&d);
    refused(at("mine"), NULL, "holds step 8 of another run");
    refused(at("mine"), at("other/step-000008"), "holds step 8 of another run");
    refused(at("mine"), at("mine/step-000007"), "later than the resumed step 7");
    claim(&d, at("mine"), at("mine/step-000008"), 1, false);
    sp_run_dir_release(&d);
    mkdir(at("model"), 0777);
    write_file(at("model/model.safetensors"), "x", 1);
    refused(at("model"), NULL, "holds a model (model.safetensors)");
    assert_int_not_equal(access(at("model/.lock"), F_OK), 0); /* left as it was */
    refused(at("mine/step-000008/state.json"), NULL, "Not a directory");
}

/* The old run's steps stay until the first of the new one is there, although it has a lower number. */
static void test_overwrites(void **state)
{
    struct sp_run_dir d;
    char path[SP_RUN_PATH];
    long step;

    (void)state;
    claim(&d, at("over"), NULL, 1, false);
    save(&d, 40);
    sp_run_dir_release(&d);
    claim(&d, at("over"), NULL, 1, true);
    assert_int_equal(sp_run_dir_begin(&d, 3, path), 0);
    assert_int_equal(sp_step_find(at("over"), path, &step), 0);
    assert_int_equal(step, 40);
    save(&d, 3);
    assert_int_equal(sp_step_find(at("over"), path, &step), 0);
    assert_int_equal(step, 3);
    assert_string_equal(holds(at("over")), "000003 000040.replaced");
    sp_run_dir_prune(&d);
    assert_string_equal(holds(at("over")), "000003");
    save(&d, 4);
    save(&d, 5);
    sp_run_dir_release(&d);
    /* Gone on from an older step: the later ones make way. */
    claim(&d, at("over"), at("over/step-000004"), 1, true);
    save(&d, 5);
    sp_run_dir_prune(&d);
    assert_string_equal(holds(at("over")), "000005");
    sp_run_dir_release(&d);
    mkdir(at("files"), 0777);
    write_file(at("files/config.json"), "x", 1);
    claim(&d, at("files"), NULL, 1, true);
    save(&d, 1);
    assert_link(at("files/config.json"), "step-000001/config.json");
    sp_run_dir_release(&d);
}

/* Killed when the old steps had made way, and the new one was not there yet. */
static void test_finds_what_was_to_be_replaced(void **state)
{
    struct sp_run_dir d;
    char path[SP_RUN_PATH];
    long step;

    (void)state;
    claim(&d, at("half"), NULL, 1, false);
    save(&d, 5);
    save(&d, 6);
    rename(at("half/step-000005"), at("half/step-000005.replaced"));
    rename(at("half/step-000006"), at("half/step-000006.replaced"));
    assert_int_equal(sp_step_find(at("half"), path, &step), 0);
    assert_int_equal(step, 6);
    sp_run_dir_release(&d);
    refused(at("half"), NULL, "holds step 6");
    claim(&d, at("half"), path, 1, false);
    save(&d, 7);
    sp_run_dir_prune(&d);
    assert_string_equal(holds(at("half")), "000007");
    sp_run_dir_release(&d);
}

static void test_steps_back(void **state)
{
    struct sp_run_dir d;
    char path[SP_RUN_PATH];
    long step;

    (void)state;
    claim(&d, at("back"), NULL, 1, false);
    save(&d, 1);
    assert_int_equal(sp_run_dir_step_back(&d, 1), -1); /* better than nothing */
    save(&d, 2);
    assert_int_equal(sp_run_dir_step_back(&d, 2), 1);
    assert_string_equal(holds(at("back")), "000001 000002.diverged");
    assert_link(at("back/config.json"), "step-000001/config.json");
    assert_int_equal(sp_step_find(at("back"), path, &step), 0);
    assert_int_equal(step, 1);
    sp_run_dir_release(&d);
}

/* Links follow the files of the newest step, whatever they are. */
static void test_links(void **state)
{
    struct sp_run_dir d;
    char path[SP_RUN_PATH], file[SP_RUN_PATH + 64];

    (void)state;
    claim(&d, at("links"), NULL, 1, false);
    save(&d, 1);
    assert_int_equal(sp_run_dir_begin(&d, 2, path), 0);
    snprintf(file, sizeof file, "%s/model-00001-of-00002.safetensors", path);
    write_file(file, "x", 1);
    assert_int_equal(sp_run_dir_commit(&d, 2), 0);
    assert_link(at("links/model-00001-of-00002.safetensors"),
                "step-000002/model-00001-of-00002.safetensors");
    assert_int_not_equal(access(at("links/model.safetensors"), F_OK), 0);
    sp_run_dir_prune(&d);
    save(&d, 3);
    assert_int_not_equal(access(at("links/model-00001-of-00002.safetensors"), F_OK), 0);
    /* What is not ours stays, and so does its directory. */
    write_file(at("links/step-000003/notes.txt"), "x", 1);
    save(&d, 4);
    sp_run_dir_prune(&d);
    assert_int_equal(access(at("links/step-000003.removed/notes.txt"), F_OK), 0);
    sp_run_dir_release(&d);
}

static void test_room(void **state)
{
    struct sp_run_dir d;
    struct capture c;

    (void)state;
    claim(&d, at("room"), NULL, 1, false);
    assert_int_equal(sp_run_dir_room(&d, 1000), 0);
    capture_begin(&c);
    assert_int_equal(sp_run_dir_room(&d, (uint64_t)1 << 60), -ENOSPC);
    assert_said(capture_end(&c), "are free there", "room");
    sp_run_dir_release(&d);
}

TEST_GROUP(run_dir)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keeps_the_newest),
        cmocka_unit_test(test_belongs_to_one_run),
        cmocka_unit_test(test_overwrites),
        cmocka_unit_test(test_finds_what_was_to_be_replaced),
        cmocka_unit_test(test_steps_back),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_room),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
