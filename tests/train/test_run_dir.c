/* The directory of a run: which runs may save where, which steps are found, and which files are
 * left. */
#include "model/files/input.h"
#include "model/files/output.h"
#include "model/support.h"
#include "train/checkpoint/run_dir.h"
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

/* A path in a directory of the case. */
static const char *at(const char *name)
{
    static char path[8][4300];
    static int turn;

    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s/%s", scratch, name);
    return path[turn];
}

static void put(const struct sp_dir *dir, const char *name, const char *text)
{
    assert_int_equal(sp_output_text_in(dir, name, text, strlen(text)), 0);
}

/* Makes a step as a run does, up to its renaming. */
static void begin(struct sp_run_dir *d, long step, struct sp_dir *tmp,
                  const char *const *companions)
{
    json_t *names = json_array();
    char *state;

    for (int i = 0; companions[i]; i++)
        json_array_append_new(names, json_string(companions[i]));
    names = json_pack("{s:I,s:i,s:o}", "step", (json_int_t)step, "seed", 1, "files", names);
    state = json_dumps(names, 0);
    json_decref(names);
    assert_int_equal(sp_run_dir_begin(d, step, tmp), 0);
    put(tmp, "state.json", state);
    free(state);
    for (int i = 0; companions[i]; i++)
        put(tmp, companions[i], companions[i]);
}

#define COMPANIONS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* With these companions, and in two files of weights if `shards`. */
static void save_with(struct sp_run_dir *d, long step, bool shards, const char *const *companions)
{
    struct sp_dir tmp;

    begin(d, step, &tmp, companions);
    put(&tmp, "config.json", "x");
    put(&tmp, shards ? "model-00001-of-00002.safetensors" : "model.safetensors", "x");
    sp_dir_close(&tmp);
    assert_int_equal(sp_run_dir_commit(d, step), 0);
}

static void save_as(struct sp_run_dir *d, long step, bool shards)
{
    save_with(d, step, shards, COMPANIONS(NULL));
}

static void save(struct sp_run_dir *d, long step)
{
    save_as(d, step, false);
}

/* The number of the step that is found in a directory; -1: none. */
static long found(const char *path)
{
    struct sp_dir step;
    const char *name;
    long n;

    if (sp_step_open(path, &step))
        return -1;
    name = strrchr(step.path, '/') + 1;
    n = sp_step_number(name, "");
    n = n < 0 ? sp_step_number(name, ".replaced") : n;
    sp_dir_close(&step);
    return n;
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

/* `resumed`: the path of a step, or NULL. */
static int try_claim(struct sp_run_dir *d, const char *path, const char *resumed, int keep,
                     bool overwrite)
{
    struct sp_dir step = SP_DIR_CLOSED;
    int err = sp_run_dir_lock(d, path);

    if (!err && resumed)
        err = sp_dir_open(resumed, &step);
    err = err ? err : sp_run_dir_claim(d, resumed ? &step : NULL, keep, overwrite);
    sp_dir_close(&step);
    return err;
}

static void claim(struct sp_run_dir *d, const char *path, const char *resumed, int keep,
                  bool overwrite)
{
    assert_int_equal(try_claim(d, path, resumed, keep, overwrite), 0);
}

static void refused_as(const char *path, const char *resumed, bool overwrite, const char *word)
{
    struct sp_run_dir d;
    struct capture c;
    int err;

    capture_begin(&c);
    err = try_claim(&d, path, resumed, 1, overwrite);
    sp_run_dir_release(&d);
    assert_said(capture_end(&c), word, path);
    assert_true(err < 0);
}

static void refused(const char *path, const char *resumed, const char *word)
{
    refused_as(path, resumed, false, word);
}

TEST(test_keeps_the_newest)
{
    struct sp_run_dir d;

    claim(&d, at("keep"), NULL, 2, false);
    for (int n = 1; n <= 5; n++)
        save(&d, n);
    assert_string_equal(holds(at("keep")), "000001 000002 000003 000004 000005");
    assert_int_equal(found(at("keep")), 5);
    sp_run_dir_prune(&d, 3); /* steps 4 and 5 are not yet proven good */
    assert_string_equal(holds(at("keep")), "000002 000003 000004 000005");
    sp_run_dir_prune(&d, 5);
    assert_string_equal(holds(at("keep")), "000004 000005");
    assert_link(at("keep/model.safetensors"), "step-000005/model.safetensors");
    assert_int_equal(access(at("keep/config.json"), F_OK), 0);
    save(&d, 5); /* again, in place */
    assert_string_equal(holds(at("keep")), "000004 000005");
    d.keep = 0;
    sp_run_dir_prune(&d, 5);
    assert_string_equal(holds(at("keep")), "000004 000005");
    assert_int_equal(found(at("keep/step-000004/")), 4);
    sp_run_dir_release(&d);
}

TEST(test_belongs_to_one_run)
{
    struct sp_run_dir d;

    claim(&d, at("mine"), NULL, 1, false);
    refused(at("mine"), NULL, "another run is writing it (process ");
    save(&d, 7);
    save(&d, 8);
    sp_run_dir_release(&d);
    refused(at("mine"), NULL, "holds step 8 of another run");
    claim(&d, at("theirs"), NULL, 1, false);
    save(&d, 8);
    sp_run_dir_release(&d);
    refused(at("mine"), at("theirs/step-000008"), "holds step 8 of another run");
    refused(at("mine"), at("mine/step-000007"), "later than the resumed step 7");
    claim(&d, at("mine"), at("mine/step-000008"), 1, false);
    sp_run_dir_release(&d);
    mkdir(at("model"), 0777);
    write_file(at("model/model.safetensors"), "x", 1);
    refused(at("model"), NULL, "holds a model (model.safetensors)");
    assert_int_not_equal(access(at("model/.lock"), F_OK), 0); /* left as it was */
    refused(at("mine/step-000008/state.json"), NULL, "Not a directory");
}

/* The old run's steps stay until the new run's first step is complete, although that has a lower
 * number. */
TEST(test_overwrites)
{
    struct sp_run_dir d;
    struct sp_dir tmp;
    struct capture c;

    claim(&d, at("over"), NULL, 1, false);
    save(&d, 40);
    sp_run_dir_release(&d);
    claim(&d, at("over"), NULL, 1, true);
    assert_int_equal(sp_run_dir_begin(&d, 3, &tmp), 0);
    sp_dir_close(&tmp);
    assert_int_equal(found(at("over")), 40);
    save(&d, 3);
    assert_int_equal(found(at("over")), 3);
    assert_string_equal(holds(at("over")), "000003 000040.replaced");
    sp_run_dir_prune(&d, 3);
    assert_string_equal(holds(at("over")), "000003");
    save(&d, 4);
    save(&d, 5);
    sp_run_dir_release(&d);
    /* The run resumes from an older step: the later ones are replaced. */
    claim(&d, at("over"), at("over/step-000004"), 1, true);
    sp_run_dir_prune(&d,
                     4); /* the resumed step has proven good, and nothing replaces the later one */
    assert_string_equal(holds(at("over")), "000004 000005");
    save(&d, 5);
    assert_string_equal(holds(at("over")), "000004 000005 000005.replaced");
    sp_run_dir_prune(&d, 5);
    assert_string_equal(holds(at("over")), "000005");
    sp_run_dir_release(&d);
    mkdir(at("files"), 0777);
    write_file(at("files/config.json"), "x", 1);
    write_file(at("files/model.safetensors.index.json"), "x", 1);
    capture_begin(&c);
    claim(&d, at("files"), NULL, 1, true);
    assert_said(capture_end(&c), "replaces config.json, model.safetensors.index.json", "files");
    save(&d, 1);
    assert_int_equal(access(at("files/model.safetensors.index.json"), F_OK), -1);
    assert_link(at("files/config.json"), "step-000001/config.json");
    sp_run_dir_release(&d);
}

/* The run was killed after the old steps were moved away and before the new one was there. */
TEST(test_finds_what_was_to_be_replaced)
{
    struct sp_run_dir d;

    claim(&d, at("half"), NULL, 1, false);
    save(&d, 5);
    save(&d, 6);
    rename(at("half/step-000005"), at("half/step-000005.replaced"));
    rename(at("half/step-000006"), at("half/step-000006.replaced"));
    assert_int_equal(found(at("half")), 6);
    sp_run_dir_release(&d);
    refused(at("half"), NULL, "holds step 6");
    claim(&d, at("half"), at("half/step-000006.replaced"), 1, false);
    assert_int_equal(d.resumed, -1);
    save(&d, 7);
    sp_run_dir_prune(&d, 7);
    assert_string_equal(holds(at("half")), "000007");
    sp_run_dir_release(&d);
}

TEST(test_steps_back)
{
    struct sp_run_dir d;

    claim(&d, at("back"), NULL, 1, false);
    save(&d, 1);
    assert_int_equal(sp_run_dir_step_back(&d, 1), -1); /* better than nothing */
    save(&d, 2);
    assert_int_equal(sp_run_dir_step_back(&d, 2), 1);
    assert_string_equal(holds(at("back")), "000001 000002.diverged");
    assert_link(at("back/config.json"), "step-000001/config.json");
    assert_int_equal(found(at("back")), 1);
    sp_run_dir_release(&d);
}

/* Links follow the files of the newest step, whatever they are. */
TEST(test_links)
{
    struct sp_run_dir d;

    claim(&d, at("links"), NULL, 1, false);
    save(&d, 1);
    save_as(&d, 2, true);
    assert_link(at("links/model-00001-of-00002.safetensors"),
                "step-000002/model-00001-of-00002.safetensors");
    assert_int_not_equal(access(at("links/model.safetensors"), F_OK), 0);
    sp_run_dir_prune(&d, 2);
    save(&d, 3);
    assert_int_not_equal(access(at("links/model-00001-of-00002.safetensors"), F_OK), 0);
    /* A file that is not the run's stays, and so does its directory. */
    write_file(at("links/step-000003/notes.txt"), "x", 1);
    save(&d, 4);
    sp_run_dir_prune(&d, 4);
    assert_int_equal(access(at("links/step-000003.removed/notes.txt"), F_OK), 0);
    sp_run_dir_release(&d);
    claim(&d, at("links"), at("links/step-000004"), 1, false); /* for ever */
    sp_run_dir_prune(&d, 4);
    assert_int_equal(access(at("links/step-000003.removed/notes.txt"), F_OK), 0);
    sp_run_dir_release(&d);
}

/* A model elsewhere, which some name in a run's directory leads to. */
static void make_victim(const char *name)
{
    char path[100];

    must(!mkdir(at(name), 0777), "mkdir");
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"config.json", "model.safetensors", "state.json"};

        snprintf(path, sizeof path, "%s/%s", name, names[i]);
        write_file(at(path), i == 2 ? "{\"step\": 9}" : "x", i == 2 ? 11 : 1);
    }
}

static void assert_whole(const char *name)
{
    char path[100];

    snprintf(path, sizeof path, "%s/config.json", name);
    assert_int_equal(access(at(path), F_OK), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", name);
    assert_int_equal(access(at(path), F_OK), 0);
}

/* Files listed in a step's state.json belong to the step: they get links, and are removed with
 * it. */
TEST(test_companions)
{
    struct sp_run_dir d;
    struct sp_dir step;
    struct stat st;

    claim(&d, at("with"), NULL, 1, false);
    save_with(&d, 1, false, COMPANIONS("tokenizer.json", "README.md", "old"));
    assert_link(at("with/tokenizer.json"), "step-000001/tokenizer.json");
    assert_link(at("with/old"), "step-000001/old");
    assert_int_equal(sp_step_bytes(&d.dir, 1),
                     2 + 14 + 9 + 3 +
                         (long)strlen("{\"step\": 1, \"seed\": 1, \"files\": ["
                                      "\"tokenizer.json\", \"README.md\", \"old\"]}"));
    assert_int_equal(sp_step_open(at("with"), &step), 0);
    /* the user's own: at the top of the run, a link into a step, and in that */
    unlink(at("with/README.md"));
    write_file(at("with/README.md"), "mine", 4);
    write_file(at("with/step-000001/notes"), "mine", 4);
    must(!symlink("step-000001/notes", at("with/notes")), "symlink");
    save_with(&d, 2, false, COMPANIONS("tokenizer.json", "README.md"));
    assert_link(at("with/tokenizer.json"), "step-000002/tokenizer.json");
    assert_link(at("with/notes"), "step-000001/notes");
    must(!lstat(at("with/README.md"), &st) && S_ISREG(st.st_mode) && st.st_size == 4, "mine");
    assert_int_not_equal(lstat(at("with/old"), &st), 0);
    sp_run_dir_prune(&d, 2);
    assert_string_equal(holds(at("with")), "000001.removed 000002");
    assert_int_equal(access(at("with/step-000001.removed/notes"), F_OK), 0);
    assert_int_equal(access(at("with/step-000001.removed/old"), F_OK), -1);
    /* a step that was opened is whole, and its companions with it */
    assert_int_equal(sp_dir_file(&step, "notes"), -ENOENT);
    assert_true(sp_dir_has(&step, "old", &st) && st.st_size == 3);
    sp_dir_close(&step);
    /* no companions: the links are removed, and the user's own file stays */
    save(&d, 3);
    assert_int_not_equal(lstat(at("with/tokenizer.json"), &st), 0);
    assert_int_equal(access(at("with/README.md"), F_OK), 0);
    sp_run_dir_prune(&d, 3);
    assert_string_equal(holds(at("with")), "000001.removed 000003");
    sp_run_dir_release(&d);
}

/* An unfinished step is removed with its companions, finished or not. */
TEST(test_companions_of_a_killed_run)
{
    struct sp_run_dir d;
    struct sp_dir tmp;

    claim(&d, at("torn"), NULL, 1, false);
    begin(&d, 1, &tmp, COMPANIONS("a", "b", "c"));
    put(&tmp, "b.tmp-77-0", "x");
    sp_dir_close(&tmp);
    assert_string_equal(holds(at("torn")), "000001.tmp");
    save_with(&d, 1, false, COMPANIONS("a", "b"));
    assert_string_equal(holds(at("torn")), "000001");
    begin(&d, 2, &tmp, COMPANIONS("a"));
    sp_dir_close(&tmp);
    sp_run_dir_release(&d);
    claim(&d, at("torn"), at("torn/step-000001"), 1, false);
    assert_string_equal(holds(at("torn")), "000001");
    /* one that could not be copied has no link */
    begin(&d, 2, &tmp, COMPANIONS("a", "b"));
    must(!unlink(at("torn/step-000002.tmp/b")), "unlink");
    put(&tmp, "config.json", "x");
    sp_dir_close(&tmp);
    assert_int_equal(sp_run_dir_commit(&d, 2), 0);
    assert_link(at("torn/a"), "step-000002/a");
    assert_int_equal(access(at("torn/b"), F_OK), -1);
    assert_int_equal(readlink(at("torn/b"), (char[8]){0}, 8), -1);
    sp_run_dir_release(&d);
}

/* A forged list can name nothing outside the step, and nothing that is not a file. */
TEST(test_hostile_companions)
{
    static const char listed[] = "{\"step\": 1, \"files\": [\"../../outside/config.json\", \"..\", "
                                 "\".lock\", [], 7, \"sub\", \"state.json\"]}";
    struct sp_run_dir d;
    struct stat st;

    make_victim("outside");
    claim(&d, at("hostile"), NULL, 1, false);
    save(&d, 1);
    write_file(at("hostile/step-000001/state.json"), listed, strlen(listed));
    must(!mkdir(at("hostile/step-000001/sub"), 0777), "mkdir");
    write_file(at("hostile/step-000001/sub/config.json"), "x", 1);
    save(&d, 2);
    sp_run_dir_prune(&d, 2);
    assert_string_equal(holds(at("hostile")), "000001.removed 000002");
    must(!stat(at("hostile/step-000001.removed/sub/config.json"), &st), "left");
    assert_whole("outside");
    sp_run_dir_release(&d);
}

/* A file or directory that no run made is refused if it is in the way, else left alone, and never
 * entered. */
TEST(test_follows_no_link)
{
    struct sp_run_dir d;
    struct stat st;

    make_victim("victim");
    claim(&d, at("held"), NULL, 1, false);
    save(&d, 4);
    sp_run_dir_release(&d);
    must(!symlink("../victim", at("held/step-000008.tmp")), "symlink");
    refused(at("held"), at("held/step-000004"), "step-000008.tmp is in the way");
    unlink(at("held/step-000008.tmp"));
    must(!symlink("nowhere", at("held/step-000008.tmp")), "symlink"); /* to nothing */
    refused(at("held"), at("held/step-000004"), "step-000008.tmp is in the way");
    unlink(at("held/step-000008.tmp"));
    write_file(at("held/step-000005.tmp"), "x", 1);
    refused(at("held"), at("held/step-000004"), "step-000005.tmp is in the way");
    unlink(at("held/step-000005.tmp"));
    must(!mkdir(at("held/step-000005.tmp"), 0777), "mkdir"); /* somebody's model, no run's */
    write_file(at("held/step-000005.tmp/model.safetensors"), "x", 1);
    refused(at("held"), at("held/step-000004"), "step-000005.tmp is in the way");
    assert_int_equal(access(at("held/step-000005.tmp/model.safetensors"), F_OK), 0);
    unlink(at("held/step-000005.tmp/model.safetensors"));
    rmdir(at("held/step-000005.tmp"));
    must(!symlink("../victim", at("held/step-000002.tmp")), "symlink");
    must(!symlink("../victim", at("held/step-000004.removed")), "symlink");
    must(!symlink("../victim", at("held/step-000003.replaced")), "symlink");
    must(!symlink("../victim", at("held/step-000001.diverged")), "symlink");
    refused_as(at("held"), at("held/step-000004"), true, "step-000003.replaced is in the way");
    claim(&d, at("held"), at("held/step-000004"), 1, false);
    save(&d, 5);
    sp_run_dir_prune(&d, 5);
    sp_run_dir_release(&d);
    assert_int_equal(access(at("held/step-000004/config.json"), F_OK),
                     0); /* it cannot be renamed */
    must(!lstat(at("held/step-000002.tmp"), &st) && !lstat(at("held/step-000004.removed"), &st) &&
             !lstat(at("held/step-000003.replaced"), &st) &&
             !lstat(at("held/step-000001.diverged"), &st),
         "left");
    assert_whole("victim");
}

/* A run resumes from an archived step that was linked back; the step does not count as kept, and
 * stays. */
TEST(test_archived_step)
{
    struct sp_run_dir d;
    struct stat st;

    claim(&d, at("short"), NULL, 2, false);
    save(&d, 4);
    sp_run_dir_release(&d);
    must(!mkdir(at("archive"), 0777) &&
             !rename(at("short/step-000004"), at("archive/step-000004")) &&
             !symlink("../archive/step-000004", at("short/step-000004")),
         "archive");
    refused(at("short"), NULL, "holds step 4 of another run");
    refused_as(at("short"), NULL, true, "step-000004 is in the way");
    assert_int_equal(found(at("short")), 4);
    claim(&d, at("short"), at("archive/step-000004"), 2, false);
    assert_int_equal(d.resumed, 4);
    sp_run_dir_prune(&d, 4);
    save(&d, 5);
    save(&d, 6);
    sp_run_dir_prune(&d, 6);
    assert_string_equal(holds(at("short")), "000004 000005 000006");
    save(&d, 7);
    sp_run_dir_prune(&d, 7);
    assert_string_equal(holds(at("short")), "000004 000006 000007");
    sp_run_dir_release(&d);
    must(!lstat(at("short/step-000004"), &st) && S_ISLNK(st.st_mode), "the link stays");
    assert_whole("archive/step-000004");
}

/* If files of a step are links, only the links are removed. */
TEST(test_links_in_a_step)
{
    struct sp_run_dir d;

    make_victim("far");
    claim(&d, at("inner"), NULL, 1, false);
    save(&d, 1);
    unlink(at("inner/step-000001/model.safetensors"));
    must(!symlink("../../far/model.safetensors", at("inner/step-000001/model.safetensors")) &&
             !symlink("../../far/config.json", at("inner/step-000001/checksums.json")),
         "symlink");
    save(&d, 2);
    sp_run_dir_prune(&d, 2);
    assert_string_equal(holds(at("inner")), "000002");
    sp_run_dir_release(&d);
    assert_whole("far");
}

/* As in the cache of Hugging Face: links, and none of them to a step. */
TEST(test_snapshot)
{
    struct sp_run_dir d;
    struct capture c;

    make_victim("blobs");
    must(
        !mkdir(at("snapshot"), 0777) &&
            !symlink("../blobs/config.json", at("snapshot/config.json")) &&
            !symlink("../blobs/model.safetensors", at("snapshot/model-00001-of-00001.safetensors")),
        "symlink");
    refused(at("snapshot"), NULL,
            "a model (config.json, model-00001-of-00001.safetensors) that no run saved there");
    assert_link(at("snapshot/config.json"), "../blobs/config.json");
    capture_begin(&c);
    claim(&d, at("snapshot"), NULL, 1, true);
    assert_said(capture_end(&c), "--overwrite replaces config.json, model-00001", "snapshot");
    assert_link(at("snapshot/config.json"), "../blobs/config.json");
    save(&d, 1);
    sp_run_dir_release(&d);
    assert_link(at("snapshot/config.json"), "step-000001/config.json");
    assert_int_equal(access(at("snapshot/model-00001-of-00001.safetensors"), F_OK), -1);
    assert_whole("blobs");
    /* a step's link by another way is none of ours */
    unlink(at("snapshot/config.json"));
    must(!symlink("step-000001/../step-000001/config.json", at("snapshot/config.json")), "symlink");
    refused(at("snapshot"), at("snapshot/step-000001"), "a model (config.json)");
    unlink(at("snapshot/config.json"));
    must(!mkdir(at("snapshot/config.json"), 0777), "mkdir");
    refused_as(at("snapshot"), at("snapshot/step-000001"), true, "a directory with the name of a");
}

/* The run's directory is renamed and another takes its name: the run stays in its own. */
TEST(test_stays_in_its_directory)
{
    struct sp_run_dir d;

    claim(&d, at("first"), NULL, 1, false);
    save(&d, 1);
    must(!rename(at("first"), at("moved")) && !mkdir(at("first"), 0777), "rename");
    make_victim("first/step-000002.tmp");
    save(&d, 2);
    sp_run_dir_prune(&d, 2);
    sp_run_dir_release(&d);
    assert_string_equal(holds(at("moved")), "000002");
    assert_whole("first/step-000002.tmp");
}

/* An open step stays whole, even if it is removed or another takes its name. */
TEST(test_reads_what_it_opened)
{
    struct sp_run_dir d;
    struct sp_dir step;
    size_t n;
    char *text;

    claim(&d, at("live"), NULL, 1, false);
    save(&d, 1);
    assert_int_equal(sp_step_open(at("live/"), &step), 0);
    save(&d, 2);
    sp_run_dir_prune(&d, 2);
    must(!mkdir(at("live/step-000001"), 0777), "mkdir");
    write_file(at("live/step-000001/config.json"), "other", 5);
    assert_int_equal(sp_input_read_in(&step, "config.json", 100, "a file", &text, &n), 0);
    assert_int_equal(n, 1);
    free(text);
    assert_int_equal(sp_dir_file(&step, "checksums.json"), -ENOENT);
    sp_dir_close(&step);
    sp_run_dir_release(&d);
}

/* Missing parents are made, and removed again if nothing was saved. */
TEST(test_makes_its_way)
{
    struct sp_run_dir d;

    claim(&d, at("far/away/run/"), NULL, 1, false);
    assert_int_equal(access(at("far/away/run/.lock"), F_OK), 0);
    sp_run_dir_release(&d);
    assert_int_equal(access(at("far/away"), F_OK), -1);
    claim(&d, at("far/away/run"), NULL, 1, false);
    save(&d, 1);
    sp_run_dir_release(&d);
    assert_int_equal(access(at("far/away/run/step-000001"), F_OK), 0);
}

/* A .lock that is not a regular file is refused. */
TEST(test_lock)
{
    must(!mkdir(at("locked"), 0777), "mkdir");
    write_file(at("precious"), "x", 1);
    must(!symlink("../precious", at("locked/.lock")), "symlink");
    refused(at("locked"), NULL, ".lock is no file of a run");
    unlink(at("locked/.lock"));
    must(!mkfifo(at("locked/.lock"), 0600), "mkfifo");
    refused(at("locked"), NULL, ".lock is no file of a run");
    unlink(at("locked/.lock"));
    must(!mkdir(at("locked/.lock"), 0700), "mkdir");
    refused(at("locked"), NULL, ".lock is no file of a run");
}

TEST(test_room)
{
    struct sp_run_dir d;
    struct capture c;

    claim(&d, at("room"), NULL, 1, false);
    assert_int_equal(sp_run_dir_room(&d, 1000), 0);
    assert_says(&c, sp_run_dir_room(&d, (uint64_t)1 << 60), -ENOSPC, "are free there", "room");
    sp_run_dir_release(&d);
}

TEST_FIXTURE(scratch_setup, scratch_teardown)
