/* Which files of a directory go with its model, and that they do. */
#include "support.h"
#include "model/files/checksums.h"
#include "model/files/companions.h"
#include "model/files/input.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>

/* Opens the scratch directory's; what was said. */
static const char *open_all(const struct sp_companions_other *other, struct sp_dir *held)
{
    static struct capture c;

    *held = SP_DIR_CLOSED;
    capture_begin(&c);
    assert_int_equal(sp_companions_open(scratch, other, held), 0);
    return capture_end(&c);
}

/* Their names, with spaces. */
static const char *names_of(const struct sp_dir *held)
{
    static char text[4000];
    json_t *names = sp_companions_names(held);

    text[0] = '\0';
    for (size_t i = 0; i < json_array_size(names); i++)
        strcat(strcat(text, i ? " " : ""), json_string_value(json_array_get(names, i)));
    json_decref(names);
    return text;
}

static void assert_has(const struct sp_dir *dir, const char *name, const char *text)
{
    size_t n = 0;
    char *has;

    assert_int_equal(sp_input_read_in(dir, name, 1000, "a file", &has, &n), 0);
    has[n] = '\0';
    assert_string_equal(has, text);
    free(has);
}

TEST(test_names)
{
    char good[] =
        "tokenizer.json|tokenizer.model|merges.txt|vocab.json|README.md|a b|modeling_x.py|"
        "model.md|generation_config.json|chat_template.jinja|binary|safetensors";
    char bad[] = "config.json|state.json|checksums.json|optimizer-m.safetensors|optimizer-x.json|"
                 "model.safetensors|model.fp16.safetensors|model.safetensors.index.json|"
                 "model-00001-of-00002.safetensors|pytorch_model.bin|pytorch_model.bin.index.json|"
                 "training_args.bin|rust_model.ot|X.GGUF|tf_model.h5|flax_model.msgpack|"
                 "optimizer.pt|rng_state.pth|last.ckpt|model.onnx|weights.npz||.|..|"
                 ".gitattributes|../x|a/b|tokenizer.json.tmp-12-0"; /* and the empty name */
    char name[300], *rest, *one;

    for (rest = good; (one = strsep(&rest, "|"));)
        if (!sp_companions_is_name(one))
            fail_msg("%s is none", one);
    for (rest = bad; (one = strsep(&rest, "|"));)
        if (sp_companions_is_name(one))
            fail_msg("%s is one", one);
    memset(name, 'x', sizeof name);
    name[255] = '\0';
    assert_false(sp_companions_is_name(name));
}

/* Regular files, through links too; nothing is waited for. */
SCRATCH_TEST(test_found)
{
    struct sp_dir held;

    put_text("config.json", "{}");
    put_text("tokenizer.json", "t");
    put_text("a file", "a");
    put_text(".hidden", "h");
    put_text("model.safetensors", "w");
    must(!mkdir(in_scratch("blobs"), 0777) && !mkfifo(in_scratch("fifo"), 0666) &&
             !mkdir(in_scratch("dir"), 0777) && !symlink("dir", in_scratch("to-dir")) &&
             !symlink("fifo", in_scratch("to-fifo")) &&
             !symlink("blobs/17ab", in_scratch("vocab.json")) &&
             !symlink("/dev/zero", in_scratch("zero")),
         "things");
    put_text("blobs/17ab", "v");
    assert_string_equal(open_all(NULL, &held), "");
    assert_string_equal(names_of(&held), "tokenizer.json vocab.json a file");
    assert_has(&held, "vocab.json", "v");
    assert_has(&held, "config.json", "{}");
    assert_int_equal(sp_companions_bytes(&held), 5);
    sp_dir_close(&held);
    must(!symlink("nowhere", in_scratch("to-nothing")), "symlink");
    assert_said(open_all(NULL, &held), "to-nothing is not saved with the model (No such file",
                "link");
    sp_dir_close(&held);
    unlink(in_scratch("to-nothing"));
    if (geteuid()) {
        put_text("secret", "s");
        must(!chmod(in_scratch("secret"), 0), "chmod");
        assert_said(open_all(NULL, &held), "secret is not saved with the model (Permission",
                    "mode");
        assert_string_equal(names_of(&held), "tokenizer.json vocab.json a file");
        sp_dir_close(&held);
    }
}

static bool takes_inode(int fd, const struct stat *st, const void *arg)
{
    const struct stat *other = arg;

    assert_true(fd >= 0);
    return st->st_ino == other->st_ino && st->st_dev == other->st_dev;
}

SCRATCH_TEST(test_left_out)
{
    char name[16];
    struct stat st;
    const struct sp_companions_other other = {takes_inode, &st};
    struct sp_dir held;

    put_text("config.json", "{}");
    put_text("data.txt", "d");
    put_text("tokenizer.json", "t");
    must(!symlink("data.txt", in_scratch("also")) && !stat(in_scratch("data.txt"), &st), "symlink");
    assert_string_equal(open_all(&other, &held), "");
    assert_string_equal(names_of(&held), "tokenizer.json");
    sp_dir_close(&held);
    put_text("large", "");
    must(!truncate(in_scratch("large"), (64 << 20) + 1), "truncate");
    put_text("largest", "");
    must(!truncate(in_scratch("largest"), 64 << 20), "truncate");
    put_text("no\xff", "");
    assert_said(open_all(&other, &held),
                "large is not saved with the model (it has more than 64 MiB), and 1 more file\n",
                "two");
    assert_string_equal(names_of(&held), "tokenizer.json largest");
    sp_dir_close(&held);
    unlink(in_scratch("large"));
    assert_said(open_all(&other, &held), "(its name is not UTF-8)\n", "one");
    sp_dir_close(&held);
    unlink(in_scratch("no\xff"));
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "file-%03d", i);
        put_text(name, "");
    }
    assert_said(open_all(&other, &held),
                "file-255 is not saved with the model (256 others are), and 45", "many");
    sp_dir_close(&held);
}

/* The files that had the names when they were opened are copied. */
SCRATCH_TEST(test_copied)
{
    struct sp_dir held, to, taken = SP_DIR_CLOSED, again = SP_DIR_CLOSED;
    json_t *sums = json_object(), *names;
    struct capture c;
    struct stat st;

    put_text("config.json", "{}");
    put_text("a", "one");
    put_text("b", "");
    assert_string_equal(open_all(NULL, &held), "");
    put_text("c", "late");
    put_text("new", "other");
    must(!rename(in_scratch("new"), in_scratch("a")) && !unlink(in_scratch("b")) &&
             !mkdir(in_scratch("to"), 0777) && !sp_dir_open(in_scratch("to"), &to),
         "directory");
    assert_int_equal(sp_companions_copy(&held, &to, sums), 0);
    assert_has(&to, "a", "one");
    assert_has(&to, "b", "");
    assert_int_equal(access(in_scratch("to/c"), F_OK), -1);
    assert_int_equal(access(in_scratch("to/config.json"), F_OK), -1); /* which is edited */
    assert_int_equal(json_object_size(sums), 2);
    assert_int_equal(sp_checksums_write(&to, sums), 0);
    assert_int_equal(sp_checksums_verify(&to, (const char *const[]){"a", "b", NULL}, 0, 1), 0);
    put_text("to/a", "onE");
    assert_says(&c, sp_checksums_verify(&to, (const char *const[]){NULL}, 0, 1), -EINVAL,
                "a: damaged", "a flipped bit");
    put_text("to/a", "one");

    /* from a directory that holds its files, by a list that may say anything */
    names = json_pack("[s, i, s, s, s, s, n]", "../config.json", 3, "checksums.json", "a", "gone",
                      "config.json");
    assert_int_equal(sp_companions_take(&held, names, &taken), 0);
    assert_string_equal(names_of(&taken), "a");
    assert_true(sp_dir_has(&taken, "config.json", &st));
    json_decref(names);
    assert_int_equal(sp_companions_take(&held, NULL, &again), 0);
    assert_null(sp_companions_names(&again));
    sp_dir_close(&again);
    sp_dir_close(&held);
    unlink(in_scratch("to/a"));
    sums = json_object();
    assert_int_equal(sp_companions_copy(&taken, &to, sums), 0);
    assert_has(&to, "a", "one");
    json_decref(sums);

    /* grown beyond the limit: said, and left out; what cannot be written is an error */
    put_text("a", "x");
    assert_string_equal(open_all(NULL, &held), "");
    must(!truncate(in_scratch("a"), (64 << 20) + 1), "truncate");
    sums = json_object();
    assert_says(&c, sp_companions_copy(&held, &to, sums), 0,
                "a is not saved with the model (File too large)", "grown");
    assert_has(&to, "a", "one");
    assert_null(json_object_get(sums, "a"));
    must(!unlink(in_scratch("to/c")) || errno == ENOENT, "unlink");
    must(!mkdir(in_scratch("to/c"), 0777), "mkdir");
    capture_begin(&c);
    assert_int_equal(sp_companions_copy(&held, &to, sums), -EINVAL);
    capture_end(&c);
    assert_non_null(strstr(c.text, "to/c: not a regular file, cannot be replaced"));
    json_decref(sums);
    sp_dir_close(&held);
    sp_dir_close(&taken);
    sp_dir_close(&to);
}
