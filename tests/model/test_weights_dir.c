/* Which files of a directory are its weights, and which directories are refused. */
#include "support.h"
#include "model/files/weights_dir.h"
#include <errno.h>
#include <sys/stat.h>

/* A file of the scalar t, which is 7. */
static void tensor_file(const char *dir, const char *name)
{
    const float x = 7;
    struct sp_st_writer *w;
    char path[4200];

    assert_int_equal(sp_st_writer_create(scratch_path(dir, name, path), &w), 0);
    assert_int_equal(sp_st_writer_declare(w, "t", 0, NULL), 0);
    assert_int_equal(sp_st_writer_data(w, &x, 1), 0);
    assert_int_equal(sp_st_writer_finish(w), 0);
}

static void index_file(const char *dir, const char *shard)
{
    char path[4200], json[200];
    int n = sprintf(json, "{\"weight_map\": {\"t\": \"%s\"}}", shard);

    write_file(scratch_path(dir, SP_WEIGHTS_INDEX, path), json, (size_t)n);
}

static void remove_file(const char *dir, const char *name)
{
    char path[4200];

    must(!remove(scratch_path(dir, name, path)), name);
}

static void assert_refused(const char *dir, const char *word, const char *what)
{
    struct sp_st_file st = {0};
    struct capture c;

    capture_begin(&c);
    assert_true(sp_weights_open(dir, &st) < 0);
    assert_said(capture_end(&c), word, what);
    assert_non_null(strstr(c.text, dir));
    assert_int_equal(st.n_shards, 0);
}

TEST(one_file_or_shards)
{
    char *dir = scratch_make(), path[4200];
    struct sp_st_file st = {0};
    float x = 0;

    write_file(scratch_path(dir, "config.json", path), "{}", 2);
    write_file(scratch_path(dir, "tokenizer.model", path), "{}", 2);
    write_file(scratch_path(dir, "training_args.bin", path), "{}", 2);
    assert_int_equal(sp_weights_open(dir, &st), 0); /* random ones */
    assert_int_equal(st.n_shards, 0);

    tensor_file(dir, "model.safetensors");
    write_file(scratch_path(dir, "pytorch_model.bin", path), "old", 3); /* the same once more */
    assert_int_equal(sp_weights_open(dir, &st), 0);
    assert_int_equal(sp_st_read(&st, sp_st_find(&st, "t"), &x), 0);
    assert_true(x == 7);
    sp_st_close(&st);
    index_file(dir, "model-00001-of-00001.safetensors");
    assert_refused(dir, "which are its weights? remove", "both");

    remove_file(dir, "model.safetensors");
    assert_refused(dir, "tensor t is said to be in model-00001-of-00001", "no shard");
    tensor_file(dir, "model-00001-of-00001.safetensors");
    x = 0;
    assert_int_equal(sp_weights_open(dir, &st), 0);
    assert_int_equal(sp_st_read(&st, sp_st_find(&st, "t"), &x), 0);
    assert_true(x == 7);
    sp_st_close(&st);
    remove_file(dir, SP_WEIGHTS_INDEX);
    assert_refused(dir, "its index, model.safetensors.index.json, is missing", "no index");
    remove_file(dir, "model-00001-of-00001.safetensors");
    assert_refused(dir, "pytorch_model.bin", "nothing but pickled weights");

    for (const char *const *name =
             (const char *const[]){"config.json", "tokenizer.model", "training_args.bin",
                                   "pytorch_model.bin", NULL};
         *name; name++)
        remove_file(dir, *name);
    assert_int_equal(rmdir(dir), 0);
    assert_refused(dir, "No such file", "no directory");
    free(dir);
}

/* A name that exists but cannot be read as a file is not taken for absent. */
TEST(unreadable)
{
    static const char *const names[] = {SP_WEIGHTS_FILE, SP_WEIGHTS_INDEX};
    char *dir = scratch_make(), path[4200];

    for (int i = 0; i < 2; i++) {
        scratch_path(dir, names[i], path);
        must(!symlink("no/such/file", path), "symlink");
        assert_refused(dir, "cannot be opened: No such file", "dangling link");
        unlink(path);
        must(!symlink(names[i], path), "symlink");
        assert_refused(dir, "cannot be opened", "link to itself");
        unlink(path);
        must(!mkfifo(path, 0644), "mkfifo");
        assert_refused(dir, "not a regular file", "pipe");
        unlink(path);
        must(!mkdir(path, 0755), "mkdir");
        assert_refused(dir, "not a regular file", "directory");
        rmdir(path);
        write_file(path, "", 0);
        assert_refused(dir, names[i], "empty");
        unlink(path);
    }
    rmdir(dir);
    free(dir);
}

TEST(other_forms)
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
    char *dir = scratch_make();

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        char path[4200];

        write_file(scratch_path(dir, forms[i].name, path), "x", 1);
        assert_refused(dir, forms[i].word, forms[i].name);
        assert_refused(dir, forms[i].name, forms[i].name);
        unlink(path);
        must(!symlink("nowhere", path), "symlink"); /* of a cache that was emptied */
        assert_refused(dir, forms[i].name, forms[i].name);
        unlink(path);
    }
    printf("%zu other forms refused\n", sizeof forms / sizeof forms[0]);

    /* an adapter changes the weights beside it */
    tensor_file(dir, "model.safetensors");
    tensor_file(dir, "adapter_config.json");
    assert_refused(dir, "adapter_config.json: an adapter", "adapter and base");
    remove_file(dir, "adapter_config.json");
    remove_file(dir, "model.safetensors");
    rmdir(dir);
    free(dir);
}

TEST(lists_what_is_written)
{
    static const char *const there[] = {
        "model.safetensors.index.json",     "config.json",
        "model-00002-of-00002.safetensors", "model.safetensors.tmp-1-0",
        "model-1-of-2.safetensors",         "model.safetensors",
        "optimizer-m.safetensors",          "model-00001-of-00002.safetensors"};
    static const char *const expected[] = {"model-00001-of-00002.safetensors",
                                           "model-00002-of-00002.safetensors", "model.safetensors",
                                           "model.safetensors.index.json"};
    char *dir = scratch_make(), path[4200], **names;
    struct sp_dir opened;
    struct capture c;
    int n, fd;

    assert_int_equal(sp_dir_open(dir, &opened), 0);
    for (int i = 0; i < 8; i++)
        write_file(scratch_path(dir, there[i], path), "", 0);
    assert_int_equal(sp_weights_list(&opened, &names, &n), 0);
    assert_int_equal(n, 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(names[i], expected[i]);
    sp_dir_free_names(names, n);
    for (int i = 0; i < 8; i++)
        remove_file(dir, there[i]);
    assert_int_equal(sp_weights_list(&opened, &names, &n), 0);
    assert_int_equal(n, 0);
    sp_dir_free_names(names, n);
    fd = opened.fd;
    opened.fd = -1;
    assert_says(&c, sp_weights_list(&opened, &names, &n), -EBADF, dir, "no directory");
    opened.fd = fd;
    sp_dir_close(&opened);
    rmdir(dir);
    free(dir);
}
