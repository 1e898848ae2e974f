#include "model/files/weights_dir.h"
#include "sp_error.h"
#include <dirent.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

void sp_weights_free_list(char **names, int n)
{
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

int sp_weights_list(const char *dir, char ***names, int *n)
{
    DIR *d = opendir(dir);
    char **list = NULL;
    struct dirent *e;
    int count = 0;

    if (!d)
        return sp_error(errno, "%s: cannot be read: %s", dir, strerror(errno));
    while ((e = readdir(d))) {
        char **more;

        if (!sp_weights_is_file(e->d_name))
            continue;
        more = realloc(list, ((size_t)count + 1) * sizeof *more);
        list = more ? more : list;
        if (!more || !(list[count] = strdup(e->d_name))) {
            sp_weights_free_list(list, count);
            closedir(d);
            return sp_error(ENOMEM, "%s: no memory for the names of its files", dir);
        }
        count++;
    }
    closedir(d);
    if (count)
        qsort(list, (size_t)count, sizeof *list, by_name); /* "-" < "." < ".index" */
    *names = list;
    *n = count;
    return 0;
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
static int find_other(const char *dir, char found[256], int *which)
{
    DIR *d = opendir(dir);
    struct dirent *e;

    if (!d)
        return sp_error(errno, "%s: cannot be read: %s", dir, strerror(errno));
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

static int refuse_other(const char *dir)
{
    char found[256] = "";
    int which = OTHERS, rc = find_other(dir, found, &which);

    if (rc || which == OTHERS)
        return rc;
    return sp_error(EINVAL,
                    "%s holds no %s, but %.100s, which is not read; %s (without weights it would "
                    "train from random ones)",
                    dir, SP_WEIGHTS_FILE, found, others[which].advice);
}

/* ---- a directory -------------------------------------------------------------------------- */

/* Is there an entry of this name, a dangling link too? Its path in path[n]. 0, 1 or -errno. */
static int has(const char *dir, const char *name, char *path, size_t n)
{
    struct stat st;

    if ((size_t)snprintf(path, n, "%s/%s", dir, name) >= n)
        return sp_error(ENAMETOOLONG, "%.200s: the path is too long", dir);
    if (!lstat(path, &st))
        return 1;
    return errno == ENOENT ? 0 : sp_error(errno, "%s: %s", path, strerror(errno));
}

int sp_weights_open(const char *dir, struct sp_st_file *st)
{
    char file_path[4096], index_path[4096], adapter[4096];
    int file = has(dir, SP_WEIGHTS_FILE, file_path, sizeof file_path);
    int index = file < 0 ? file : has(dir, SP_WEIGHTS_INDEX, index_path, sizeof index_path);
    int adapts = index < 0 ? index : has(dir, "adapter_config.json", adapter, sizeof adapter);

    if (adapts < 0)
        return adapts;
    if (adapts)
        return sp_error(EINVAL,
                        "%s: an adapter, which is not applied; merge it into its base model "
                        "(merge_and_unload()), or remove it",
                        adapter);
    if (file && index)
        return sp_error(EINVAL,
                        "%s holds %s and %s: which are its weights? remove the index, or the file",
                        dir, SP_WEIGHTS_FILE, SP_WEIGHTS_INDEX);
    if (file)
        return sp_st_open(file_path, st);
    return index ? sp_st_open_index(index_path, st) : refuse_other(dir);
}
