/*
 * starpipe diff: do two runs have the same weights, moments, gradients or losses, and where do they
 * first differ?
 */
#include "cli/diff/diff.h"
#include "cli/commands.h"
#include "cli/print.h"
#include "cli/result.h"
#include "model/files/weights_dir.h"
#include "sp_error.h"
#include "sp_utf8.h"
#include "train/checkpoint/step_dirs.h"
#include <string.h>
#include <sys/stat.h>

struct args {
    const char *a, *b;
    struct sp_diff_options how;
    struct sp_result result;
    bool worst_set;
};

static int parse_options(int argc, char **argv, struct args *a)
{
    const struct sp_option options[] = {
        SP_OPTION("A", OPERAND, a->a,
                  .help = "FILE.safetensors, the index of its shards, FILE.jsonl, or the DIR of "
                          "--save or of a "
                          "model",
                  .arg = "FILE|DIR"),
        SP_OPTION("B", OPERAND, a->b, .help = "what A is compared with, of the same kind",
                  .arg = "FILE|DIR"),
        SP_OPTION("tolerance", DOUBLE, a->how.tolerance,
                  .help = "largest difference allowed, relative to the largest value of the tensor "
                          "in B (0: the "
                          "same bits)",
                  .arg = "X", .max = 1e30),
        SP_OPTION("part", FLAG, a->how.part, .help = "A may lack tensors and steps that B has"),
        SP_OPTION("worst", INT, a->how.worst, .help = "tensors to print, the worst first",
                  .arg = "N", .max = 1000000, .given = &a->worst_set),
        SP_RESULT_OPTIONS(a->result, "text|json"),
        {0},
    };

    return sp_options_parse(options, "Compares tensors, checkpoints or logs of two runs.", argc,
                            argv);
}

static bool exists(const char *path)
{
    struct stat st;

    return !stat(path, &st);
}

/* The name of the shard index that may stand in for `path`. */
static void index_of(const char *path, char index[SP_RUN_PATH])
{
    snprintf(index, SP_RUN_PATH, "%s.index.json", path);
}

static bool is_directory(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* A safetensors file begins with its header's length, a 64-bit number below 2^32, so some of its
 * first bytes are zero. The text of a log has no zero bytes. */
static bool is_log(const char *path)
{
    FILE *f = fopen(path, "r");
    char head[8];
    size_t n = f ? fread(head, 1, sizeof head, f) : 0;

    if (f)
        fclose(f);
    return n && head[0] == '{' && !memchr(head, '\0', n);
}

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && !strcmp(text + n - m, end);
}

/* Opens one file, or the shards of an index, which may be named without its ending. */
static int open_file(const char *path, struct sp_st_file *st)
{
    char index[SP_RUN_PATH];

    if (ends_in(path, ".index.json"))
        return sp_st_open_index(path, st);
    index_of(path, index);
    return !exists(path) && exists(index) ? sp_st_open_index(index, st) : sp_st_open(path, st);
}

/* The directory to compare: the newest step of a run, or `dir` itself. */
static const char *newest_step(const char *dir, char path[SP_RUN_PATH])
{
    char name[SP_STEP_NAME];
    struct sp_dir run;
    long step = -1;

    if (!sp_dir_open(dir, &run)) {
        step = sp_step_highest(&run, "", SP_ANY_STEP);
        sp_dir_close(&run);
    }
    if (step < 0)
        return dir;
    sp_step_name(step, "", name);
    snprintf(path, SP_RUN_PATH, "%s/%s", dir, name);
    return path;
}

/* Opens the file `name` of a directory. A missing file leaves *st zero; missing weights are an
 * error. */
static int open_in(const char *dir, const char *name, struct sp_st_file *st)
{
    char path[SP_RUN_PATH + 64];

    *st = (struct sp_st_file){0};
    if (!strcmp(name, SP_WEIGHTS_FILE)) {
        int err = sp_weights_open(dir, st);

        return err || st->path ? err : sp_error(ENOENT, "diff: %s holds no weights", dir);
    }
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return exists(path) ? sp_st_open(path, st) : 0;
}

static enum sp_diff compare_in(const char *a, const char *b, const char *name,
                               const struct sp_diff_options *how)
{
    struct sp_st_file x = {0}, y = {0};
    enum sp_diff result = SP_DIFF_UNREADABLE;

    if (open_in(a, name, &x) || open_in(b, name, &y))
        goto out;
    result = SP_DIFF_SAME;
    if (x.path && y.path) {
        if (!how->parts)
            printf("%s:\n", name);
        result = sp_diff_tensors(&x, &y, how);
    } else if (x.path || (y.path && !how->part)) {
        if (how->parts)
            json_array_append_new(how->parts, json_pack("{s:o}", x.path ? "a" : "b",
                                                        sp_utf8_json(x.path ? x.path : y.path)));
        else
            printf("only in %s: %s\n", x.path ? a : b, name);
        result = SP_DIFF_DIFFERENT;
    }
out:
    sp_st_close(&y);
    sp_st_close(&x);
    return result;
}

/* Compares the weights, and the optimizer's moments if they were saved. */
static enum sp_diff compare_directories(const char *a, const char *b,
                                        const struct sp_diff_options *how)
{
    static const char *const names[] = {SP_WEIGHTS_FILE, "optimizer-m.safetensors",
                                        "optimizer-v.safetensors"};
    char newest_a[SP_RUN_PATH], newest_b[SP_RUN_PATH];
    enum sp_diff worst = SP_DIFF_SAME;

    a = newest_step(a, newest_a);
    b = newest_step(b, newest_b);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        enum sp_diff result = compare_in(a, b, names[i], how);

        if (result == SP_DIFF_UNREADABLE)
            return result;
        worst = result > worst ? result : worst;
    }
    return worst;
}

static enum sp_diff compare_files(const char *a, const char *b, const struct sp_diff_options *how)
{
    struct sp_st_file x, y;
    enum sp_diff result = SP_DIFF_UNREADABLE;

    if (open_file(a, &x))
        return SP_DIFF_UNREADABLE;
    if (!open_file(b, &y)) {
        result = sp_diff_tensors(&x, &y, how);
        sp_st_close(&y);
    }
    sp_st_close(&x);
    return result;
}

enum kind { TENSORS, LOG, DIRECTORY };

/* 0 or -ENOENT after one line. */
static int find_kind(const char *path, enum kind *kind)
{
    char index[SP_RUN_PATH];

    index_of(path, index);
    if (!exists(path) && !exists(index))
        return sp_error(ENOENT, "diff: %s: no such file or directory", path);
    if (is_directory(path))
        *kind = DIRECTORY;
    else
        *kind = is_log(path) && !ends_in(path, ".index.json") ? LOG : TENSORS;
    return 0;
}

static enum sp_diff compare_kind(const struct args *args, enum kind kind)
{
    if (kind == LOG)
        return sp_diff_logs(args->a, args->b, &args->how);
    return kind == DIRECTORY ? compare_directories(args->a, args->b, &args->how)
                             : compare_files(args->a, args->b, &args->how);
}

/* JSON: {same, tolerance, parts[]}, one part for each pair of files, as tensors.c and logs.c
 * make it. A file that only one side has is a part with its name alone. */
static enum sp_diff print_result(const struct args *args, enum kind kind)
{
    struct args with = *args;
    enum sp_diff result;
    json_t *root;

    if (!args->result.format)
        return compare_kind(args, kind);
    with.how.parts = json_array();
    result = compare_kind(&with, kind);
    root = json_pack("{s:b,s:f,s:o}", "same", result == SP_DIFF_SAME, "tolerance",
                     args->how.tolerance, "parts", with.how.parts);
    if (result == SP_DIFF_UNREADABLE)
        json_decref(root);
    else if (sp_json_print(root, 0, stdout))
        result = SP_DIFF_UNREADABLE;
    return result;
}

int sp_cmd_diff(int argc, char **argv)
{
    static const char *const kinds[] = {"a file of tensors", "a log", "a directory"};
    struct args args = {.how.worst = 5};
    enum kind a, b;
    int ret = parse_options(argc, argv, &args);

    if (ret)
        return SP_OPTIONS_EXIT(ret);
    if (find_kind(args.a, &a) || find_kind(args.b, &b))
        return SP_DIFF_UNREADABLE;
    if (a != b) {
        sp_error(EINVAL, "diff: %s is %s and %s is %s: give two of one kind", args.a, kinds[a],
                 args.b, kinds[b]);
        return SP_DIFF_UNREADABLE;
    }
    if (a == LOG && args.worst_set) {
        sp_error(EINVAL, "diff: --worst is for tensors, of which logs have none");
        return SP_DIFF_UNREADABLE;
    }
    if (sp_result_begin("diff", args.result.output, SP_DIFF_DIFFERENT))
        return SP_DIFF_UNREADABLE;
    return (int)print_result(&args, a);
}
