/* Which files of a directory are its weights, and which directories are refused. */
#include "support.h"
#include "model/files/weights_dir.h"
#include <errno.h>
#include <sys/stat.h>

/* A file of the scalar t, which is 7. */
static void tensor_file(const char *name)
{
    const float x = 7;
    struct sp_st_writer *w;

    assert_int_equal(sp_st_writer_create_in(NULL, in_scratch(name), 0, &w), 0);
    assert_int_equal(sp_st_writer_declare(w, "t", 0, NULL), 0);
    assert_int_equal(sp_st_writer_data(w, &x, 1), 0);
    assert_int_equal(sp_st_writer_finish(w), 0);
}

static void index_file(const char *shard)
{
    char json[200];

    snprintf(json, sizeof json, "{\"weight_map\": {\"t\": \"%s\"}}", shard);
    put_text(SP_WEIGHTS_INDEX, json);
}

static void remove_file(const char *name)
{
    must(!remove(in_scratch(name)), name);
}

static void assert_refused(const char *word, const char *what)
{
    struct sp_st_file st = {0};
    struct capture c;

    capture_begin(&c);
    assert_true(sp_weights_open(scratch, &st) < 0);
    assert_said(capture_end(&c), word, what);
    assert_non_null(strstr(c.text, scratch));
    assert_int_equal(st.n_shards, 0);
}

SCRATCH_TEST(one_file_or_shards)
{
    struct sp_st_file st = {0};
    float x = 0;

    put_text("config.json", "{}");
    put_text("tokenizer.model", "{}");
    put_text("training_args.bin", "{}");
    assert_int_equal(sp_weights_open(scratch, &st), 0); /* random ones */
    assert_int_equal(st.n_shards, 0);

    tensor_file("model.safetensors");
    put_text("pytorch_model.bin", "old"); /* the same once more */
    assert_int_equal(sp_weights_open(scratch, &st), 0);
    assert_int_equal(sp_st_read(&st, sp_st_find(&st, "t"), &x), 0);
    assert_true(x == 7);
    sp_st_close(&st);
    index_file("model-00001-of-00001.safetensors");
    assert_refused("which are its weights? remove", "both");

    remove_file("model.safetensors");
    assert_refused("tensor t is said to be in model-00001-of-00001", "no shard");
    tensor_file("model-00001-of-00001.safetensors");
    x = 0;
    assert_int_equal(sp_weights_open(scratch, &st), 0);
    assert_int_equal(sp_st_read(&st, sp_st_find(&st, "t"), &x), 0);
    assert_true(x == 7);
    sp_st_close(&st);
    remove_file(SP_WEIGHTS_INDEX);
    assert_refused("its index, model.safetensors.index.json, is missing", "no index");
    remove_file("model-00001-of-00001.safetensors");
    assert_refused("pytorch_model.bin", "nothing but pickled weights");

    for (const char *const *name =
             (const char *const[]){"config.json", "tokenizer.model", "training_args.bin",
                                   "pytorch_model.bin", NULL};
         *name; name++)
        remove_file(*name);
    assert_int_equal(rmdir(scratch), 0);
    assert_refused("No such file", "no directory");
}

/* A name that exists but cannot be read as a file is not taken for absent. */
SCRATCH_TEST(unreadable)
{
    static const char *const names[] = {SP_WEIGHTS_FILE, SP_WEIGHTS_INDEX};

    for (int i = 0; i < 2; i++) {
        const char *path = in_scratch(names[i]);

        must(!symlink("no/such/file", path), "symlink");
        assert_refused("cannot be opened: No such file", "dangling link");
        unlink(path);
        must(!symlink(names[i], path), "symlink");
        assert_refused("cannot be opened", "link to itself");
        unlink(path);
        must(!mkfifo(path, 0644), "mkfifo");
        assert_refused("not a regular file", "pipe");
        unlink(path);
        must(!mkdir(path, 0755), "mkdir");
        assert_refused("not a regular file", "directory");
        rmdir(path);
        write_file(path, "", 0);
        assert_refused(names[i], "empty");
        unlink(path);
    }
}

SCRATCH_TEST(other_forms)
{
    static const struct {
        const char *name, *word;
    } forms[] = {
        {"pytorch_model.bin", "safe_serialization=True"},
        {"pytorch_model-00001-of-00002.bin", "safe_serialization=True"},
        {"pytorch_model.bin.index.json", "safe_serialization=True"},
        {"diffusion_pytorch_model.bin", "safe_serialization=True"},
        {"tf_model.h5", "safe_serialization=True"},
        {"flax_model.msgpack", "safe_serialization=True"},
        {"weights.safetensors", "weights must be called model.safetensors"},
        {"model.fp16.safetensors", "weights must be called model.safetensors"},
        {"Model.safetensors", "weights must be called model.safetensors"},
        {"weights.safetensors.index.json", "must be called model.safetensors.index.json"},
        {"model-00002-of-00003.safetensors", "is missing"},
        {"optimizer-m.safetensors", "has lost its model.safetensors"},
        {"adapter_model.safetensors", "merge_and_unload()"},
        {"adapter_model.bin", "merge_and_unload()"},
        {"adapter_config.json", "an adapter, which is not applied"},
        {"llama-q4.gguf", "convert it"},
        {"ggml-model-q4_0.bin", "which is not read"},
        {"model.pt", "convert it"},
        {"consolidated.00.pth", "convert it"},
        {"last.ckpt", "convert it"},
        {"model.ckpt.index", "convert it"},
    };

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const char *path = put_text(forms[i].name, "x");

        assert_refused(forms[i].word, forms[i].name);
        assert_refused(forms[i].name, forms[i].name);
        unlink(path);
        must(!symlink("nowhere", path), "symlink"); /* of a cache that was emptied */
        assert_refused(forms[i].name, forms[i].name);
        unlink(path);
    }
    printf("%zu other forms refused\n", sizeof forms / sizeof forms[0]);

    /* an adapter changes the weights beside it */
    tensor_file("model.safetensors");
    tensor_file("adapter_config.json");
    assert_refused("adapter_config.json: an adapter", "adapter and base");
}

SCRATCH_TEST(lists_what_is_written)
{
    static const char *const there[] = {
        "model.safetensors.index.json",     "config.json",
        "model-00002-of-00002.safetensors", "model.safetensors.tmp-1-0",
        "model-1-of-2.safetensors",         "model.safetensors",
        "optimizer-m.safetensors",          "model-00001-of-00002.safetensors"};
    static const char *const expected[] = {"model-00001-of-00002.safetensors",
                                           "model-00002-of-00002.safetensors", "model.safetensors",
                                           "model.safetensors.index.json"};
    char **names;
    struct sp_dir opened;
    struct capture c;
    int n, fd;

    assert_int_equal(sp_dir_open(scratch, &opened), 0);
    for (int i = 0; i < 8; i++)
        put_text(there[i], "");
    assert_int_equal(sp_weights_list(&opened, &names, &n), 0);
    assert_int_equal(n, 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(names[i], expected[i]);
    sp_dir_free_names(names, n);
    for (int i = 0; i < 8; i++)
        remove_file(there[i]);
    assert_int_equal(sp_weights_list(&opened, &names, &n), 0);
    assert_int_equal(n, 0);
    sp_dir_free_names(names, n);
    fd = opened.fd;
    opened.fd = -1;
    assert_says(&c, sp_weights_list(&opened, &names, &n), -EBADF, scratch, "no directory");
    opened.fd = fd;
    sp_dir_close(&opened);
}
