/* Checks the files of a run before it starts: none that it reads is written to, and none is
 * written twice. */
#include "train/start/phases.h"
#include "model/files/companions.h"
#include "sp_error.h"
#include "train/checkpoint/step_dirs.h"
#include "train/run/log_file.h"
#include "train/start/outputs.h"

/* The names of the pictures in --trace DIR. */
static const char *const pictures[] = {"trace.json",   "predicted.json", "measured.svg",
                                       "expected.svg", "trace.html",     NULL};

static int add(struct sp_files *files, enum sp_file_use use, const char *option, const char *path)
{
    return path ? sp_files_add(files, use, option, path) : 0;
}

/* Adds files of a directory, by their names. */
static int add_names(struct sp_files *files, enum sp_file_use use, const char *option,
                     const char *dir, const char *const *names)
{
    char path[4400];
    int err = 0;

    for (; dir && !err && *names; names++) {
        snprintf(path, sizeof path, "%s/%s", dir, *names);
        err = sp_files_add(files, use, option, path);
    }
    return err;
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
    static const char *const links[] = {"config.json", "model.safetensors", NULL}; /* of DIR */
    int err = add(files, SP_FILE_WRITTEN, "--output", a->output);

    if (a->dry_run) /* writes nothing else */
        return err;
    err =
        err ? err : add(files, SP_FILE_WRITTEN, "--log", sp_log_is_stdout(a->log) ? NULL : a->log);
    err = err ? err : add(files, SP_FILE_WRITTEN, "--dump-grads", a->dump_grads);
    err = err ? err : add_names(files, SP_FILE_REPLACED, "--save", a->save, links);
    return err ? err : add_names(files, SP_FILE_WRITTEN, "--trace", a->trace, pictures);
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
    const struct {
        const char *option, *path;
    } outputs[] = {{"--log", sp_log_is_stdout(a->log) ? NULL : a->log},
                   {"--dump-grads", a->dump_grads},
                   {"--trace", a->trace}};

    for (size_t i = 0; a->save && i < sizeof outputs / sizeof *outputs; i++)
        if (outputs[i].path && sp_output_is_in(outputs[i].path, a->save, is_of_step))
            return sp_error(EINVAL,
                            "train: %s %s is in a step of --save %s, where only checkpoints are "
                            "written; give it another place",
                            outputs[i].option, outputs[i].path, a->save);
    return 0;
}

int sp_train_check_files(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    struct sp_files files = {0};
    int err;

    if (t->world.rank)
        return 0;
    err = add_inputs(a, t->resumed_dir.path, &files);
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

    if (t->world.rank || a->dry_run || !a->save)
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

static int try_pictures(const char *dir)
{
    char path[4400];
    int err = sp_output_try_dir(dir);

    for (int i = 0; !err && pictures[i]; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, pictures[i]);
        err = sp_output_try_file(path, true);
    }
    return err;
}

int sp_train_check_output(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    int err = 0;

    if (t->world.rank || a->dry_run)
        return 0;
    if (a->log && !sp_log_is_stdout(a->log))
        err = sp_output_try_file(a->log, true);
    if (!err && a->dump_grads)
        err = sp_output_try_file(a->dump_grads, true);
    if (!err && a->save)
        err = sp_output_try_dir(a->save);
    if (!err && a->trace)
        err = try_pictures(a->trace);
    return err;
}

int sp_train_make_dirs(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    int err = 0;

    if (t->world.rank || a->dry_run)
        return 0;
    if (a->log && !sp_log_is_stdout(a->log))
        err = sp_dir_make_parent(a->log, &t->made);
    if (!err && a->dump_grads)
        err = sp_dir_make_parent(a->dump_grads, &t->made);
    if (!err && a->trace)
        err = sp_dir_make(a->trace, &t->made);
    return err;
}

int sp_train_claim_log(struct sp_trainer *t)
{
    return t->world.rank || t->cfg.dry_run || !t->cfg.log ? 0
                                                          : sp_log_take(t->cfg.log, &t->log_file);
}
