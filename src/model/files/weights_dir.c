#define _GNU_SOURCE /* FNM_CASEFOLD */
#include "model/files/weights_dir.h"
#include "sp_error.h"
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* ---- files that are read ------------------------------------------------------------------ */

bool sp_weights_is_file(const char *name)
{
    return !strcmp(name, SP_WEIGHTS_FILE) || !strcmp(name, SP_WEIGHTS_INDEX) ||
           !fnmatch("model-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9].safetensors",
                    name, 0);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int sp_weights_list(const struct sp_dir *dir, char ***names, int *n)
{
    int err = sp_dir_names(dir, sp_weights_is_file, by_name, names, n); /* "-" < "." < ".index" */

    return err > 0 ? sp_error(err, "%s: cannot be read: %s", dir->path, strerror(err)) : err;
}

/* ---- files that are refused --------------------------------------------------------------- */

#define SAVE "load it in transformers and save_pretrained(DIR, safe_serialization=True)"

/* In this order: the first that matches names the file in the refusal. */
static const struct {
    const char *pattern, *advice;
} others[] = {
    {"model-*-of-*.safetensors", "its index, " SP_WEIGHTS_INDEX ", is missing"},
    {"optimizer-[mv].safetensors", "this checkpoint has lost its " SP_WEIGHTS_FILE},
    {"adapter_model.*", "merge the adapter into its base model: merge_and_unload()"},
    {"*.safetensors.index.json", "the index must be called " SP_WEIGHTS_INDEX},
    {"*.safetensors", "weights must be called " SP_WEIGHTS_FILE},
    {"pytorch_model*.bin*", SAVE},
    {"*model*.bin", SAVE},
    {"*model*.bin.index.json", SAVE},
    {"tf_model*.h5*", SAVE},
    {"*.h5", SAVE},
    {"*.msgpack*", SAVE},
    {"consolidated*", "convert it for transformers first"},
    {"*.gguf", "convert it for transformers first"},
    {"*ggml*", "convert it for transformers first"},
    {"*.ckpt*", "convert it for transformers first"},
    {"*.nemo", "convert it for transformers first"},
    {"*.onnx", "convert it for transformers first"},
    {"*.npz", "convert it for transformers first"},
    {"*.distcp", "convert it for transformers first"},
    {"*.pt", "convert it for transformers first"},
    {"*.pth", "convert it for transformers first"},
};

enum { OTHERS = sizeof others / sizeof others[0] };

/* The entry of the directory that is first in the table; *which stays OTHERS: none. 0, -errno. */
static int find_other(const struct sp_dir *dir, char found[256], int *which)
{
    DIR *d = sp_dir_list(dir);
    struct dirent *e;

    if (!d)
        return sp_error(errno, "%s: cannot be read: %s", dir->path, strerror(errno));
    while ((e = readdir(d))) {
        int i = 0;

        while (i < OTHERS && fnmatch(others[i].pattern, e->d_name, FNM_PERIOD))
            i++;
        /* of several the first by name: the same line on every machine */
        if (i < *which || (i < OTHERS && i == *which && strcmp(e->d_name, found) < 0)) {
            *which = i;
            snprintf(found, 256, "%s", e->d_name);
        }
    }
    closedir(d);
    return 0;
}

static int refuse_other(const struct sp_dir *dir)
{
    char found[256] = "";
    int which = OTHERS, rc = find_other(dir, found, &which);

    if (rc || which == OTHERS)
        return rc;
    return sp_error(EINVAL,
                    "%s holds no %s, but %.100s, which is not read; %s (without weights it would "
                    "train from random ones)",
                    dir->path, SP_WEIGHTS_FILE, found, others[which].advice);
}

/* More than the table has, which takes care to refuse no directory for a file that is no model. */
bool sp_weights_is_any_form(const char *name)
{
    char patterns[] =
        "*.safetensors *.safetensors.index.json *.bin *.bin.index.json *.pt *.pth *.ckpt "
        "*.ckpt.* *.gguf *.ggml *.h5 *.h5.index.json *.msgpack *.msgpack.index.json *.onnx "
        "*.onnx_data *.ot *.npz *.nemo *.distcp *.tflite pytorch_model*";
    char *rest = patterns, *pattern;

    while ((pattern = strsep(&rest, " ")))
        if (!fnmatch(pattern, name, FNM_CASEFOLD))
            return true;
    return false;
}

/* ---- a directory -------------------------------------------------------------------------- */

/* Is there an entry of this name, a dangling link too? 0, 1 or -errno. */
static int has_entry(const struct sp_dir *dir, const char *name)
{
    struct stat st;

    if (sp_dir_has(dir, name, &st))
        return 1;
    return errno == ENOENT ? 0 : sp_error(errno, "%s/%s: %s", dir->path, name, strerror(errno));
}

int sp_weights_open_in(const struct sp_dir *dir, struct sp_st_file *st)
{
    int file = has_entry(dir, SP_WEIGHTS_FILE);
    int index = file < 0 ? file : has_entry(dir, SP_WEIGHTS_INDEX);
    int adapts = index < 0 ? index : has_entry(dir, "adapter_config.json");

    if (adapts < 0)
        return adapts;
    if (adapts)
        return sp_error(EINVAL,
                        "%s/adapter_config.json: an adapter, which is not applied; merge it into "
                        "its base model (merge_and_unload()), or remove it",
                        dir->path);
    if (file && index)
        return sp_error(EINVAL,
                        "%s holds %s and %s: which are its weights? remove the index, or the file",
                        dir->path, SP_WEIGHTS_FILE, SP_WEIGHTS_INDEX);
    if (file)
        return sp_st_open_in(dir, SP_WEIGHTS_FILE, st);
    return index ? sp_st_open_index_in(dir, SP_WEIGHTS_INDEX, st) : refuse_other(dir);
}

int sp_weights_open(const char *dir, struct sp_st_file *st)
{
    struct sp_dir d;
    int err = sp_dir_open(dir, &d);

    if (err)
        return sp_error(-err, "%s: cannot be read: %s", dir, strerror(-err));
    err = sp_weights_open_in(&d, st);
    sp_dir_close(&d);
    return err;
}
