/* Checks the files of a run before it starts: none that it reads is written to, and none is
 * written twice. */
#include "train/start/phases.h"
#include "model/files/companions.h"
#include "sp_error.h"
#include "train/checkpoint/step_dirs.h"
#include "train/run/log_file.h"
#include "train/start/outputs.h"

/* An output of a run; a dry run has none but --output. */
struct output {
    const char *option;
    const char *path; /* NULL: not wanted */
    enum sp_file_use use;
    const char *const *names; /* of files in that directory, NULL at the end; NULL: it is a file */
};

enum { LOG, GRADS, SAVE, TRACE, OUTPUTS };

static void list_outputs(const struct sp_train_config *a, struct output out[OUTPUTS])
{
    static const char *const links[] = {"config.json", "model.safetensors", NULL};
    static const char *const pictures[] = {"trace.json",   "predicted.json", "measured.svg",
                                           "expected.svg", "trace.html",     NULL};

    out[LOG] =
        (struct output){"--log", sp_log_is_stdout(a->log) ? NULL : a->log, SP_FILE_WRITTEN, NULL};
    out[GRADS] = (struct output){"--dump-grads", a->dump_grads, SP_FILE_WRITTEN, NULL};
    out[SAVE] = (struct output){"--save", a->save, SP_FILE_REPLACED, links};
    out[TRACE] = (struct output){"--trace", a->trace, SP_FILE_WRITTEN, pictures};
}

static int add(struct sp_files *files, enum sp_file_use use, const char *option, const char *path)
{
    return path ? sp_files_add(files, use, option, path) : 0;
}

static void name_file(const struct output *o, int i, char path[SP_RUN_PATH])
{
    snprintf(path, SP_RUN_PATH, "%s/%s", o->path, o->names[i]);
}

/* Adds all files that a name of data stands for. */
static int add_data(struct sp_files *files, const char *option, const char *names)
{
    char **paths;
    int n, err;

    if (!names)
        return 0;
    err = sp_data_names(names, &paths, &n);
    if (err)
        return err;
    for (int i = 0; !err && i < n; i++)
        err = sp_files_add(files, SP_FILE_READ, option, paths[i]);
    sp_data_free_names(paths, n);
    return err;
}

static int add_inputs(const struct sp_train_config *a, const char *resume, struct sp_files *files)
{
    int err = add_data(files, "--data", a->data);

    err = err ? err : add_data(files, "--tokens", a->tokens);
    err = err ? err : add_data(files, "--eval", a->eval);
    if (!err && a->resume)
        err = sp_files_add_model(files, "--resume", resume);
    return err;
}

static int add_outputs(const struct sp_train_config *a, struct sp_files *files)
{
    int err = add(files, SP_FILE_WRITTEN, "--output", a->output);
    struct output outputs[OUTPUTS];

    list_outputs(a, outputs);
    for (const struct output *o = outputs; o < outputs + OUTPUTS && !a->dry_run; o++) {
        char path[SP_RUN_PATH];

        if (!err && !o->names)
            err = add(files, o->use, o->option, o->path);
        for (int i = 0; !err && o->path && o->names && o->names[i]; i++) {
            name_file(o, i, path);
            err = sp_files_add(files, o->use, o->option, path);
        }
    }
    return err;
}

static bool is_of_step(const char *name)
{
    static const char *const suffixes[] = {"", ".tmp", ".replaced", ".removed", ".diverged"};

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (sp_step_number(name, suffixes[i]) >= 0)
            return true;
    return false;
}

/* Only the run may make, rename and remove steps. */
static int check_steps(const struct sp_train_config *a)
{
    struct output outputs[OUTPUTS];

    list_outputs(a, outputs);
    for (const struct output *o = outputs; a->save && o < outputs + OUTPUTS; o++)
        if (o->path && o != &outputs[SAVE] && sp_output_is_in(o->path, a->save, is_of_step))
            return sp_error(EINVAL,
                            "train: %s %s is in a step of --save %s, where only checkpoints are "
                            "written; give it another place",
                            o->option, o->path, a->save);
    return 0;
}

int sp_train_check_files(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    struct sp_files files = {0};
    int err = add_inputs(a, t->resumed_dir.path, &files);

    err = err ? err : sp_files_add_layout(&files, &a->layout);
    err = err ? err : add_outputs(a, &files);
    err = err ? err : sp_files_check(&files, "train");
    err = err || a->dry_run ? err : check_steps(a);
    sp_files_free(&files);
    if (!err && a->log && !a->dry_run)
        err = sp_log_check(a->log, a->resume ? t->first_step : SP_LOG_NEW);
    return err;
}

/* True if it is a file of the run, or a log, this run's or another's. */
static bool is_of_run(int fd, const struct stat *st, const void *files)
{
    return sp_files_have(files, st) || sp_log_is_log(fd);
}

int sp_train_open_companions(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    struct sp_files files = {0};
    const struct sp_companions_other other = {is_of_run, &files};
    int err;

    if (!a->save)
        return 0;
    if (a->resume)
        return sp_companions_take(
            &t->resumed_dir, json_object_get(t->resumed.json, SP_STEP_COMPANIONS), &t->companions);
    if (sp_model_is_preset(a->layout.model))
        return 0;
    err = add_inputs(a, NULL, &files);
    err = err ? err : add(&files, SP_FILE_READ, "--hardware", a->hardware);
    err = err ? err : add_outputs(a, &files);
    err = err ? err : sp_companions_open(a->layout.model, &other, &t->companions);
    sp_files_free(&files);
    return err;
}

int sp_train_check_output(struct sp_trainer *t)
{
    struct output outputs[OUTPUTS];
    int err = 0;

    list_outputs(&t->cfg, outputs);
    for (const struct output *o = outputs; !err && o < outputs + OUTPUTS; o++) {
        char path[SP_RUN_PATH];

        if (o->path)
            err = o->names ? sp_output_try_dir(o->path) : sp_output_try_file(o->path, true);
        for (int i = 0; !err && o == &outputs[TRACE] && o->path && o->names[i]; i++) {
            name_file(o, i, path);
            err = sp_output_try_file(path, true);
        }
    }
    return err;
}

int sp_train_make_dirs(struct sp_trainer *t)
{
    struct output outputs[OUTPUTS];
    int err = 0;

    list_outputs(&t->cfg, outputs);
    for (const struct output *o = outputs; !err && o < outputs + OUTPUTS; o++)
        if (o->path && o != &outputs[SAVE])
            err = o->names ? sp_dir_make(o->path, &t->made) : sp_dir_make_parent(o->path, &t->made);
    return err;
}

int sp_train_claim_log(struct sp_trainer *t)
{
    return t->cfg.log ? sp_log_take(t->cfg.log, &t->log_file) : 0;
}
