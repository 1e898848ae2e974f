#include "train/checkpoint/run_state.h"
#include "model/files/companions.h"
#include "model/files/output.h"
#include "sp_error.h"
#include "sp_utf8.h"
#include "policies/registry.h"
#include "train/config.h"
#include "train/settings.h"
#include "train/checkpoint/step_dirs.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FORMAT = 2 };

/* The data as {"path", "bytes", "digest"}; NULL if they cannot be read. */
static json_t *data_json(const struct sp_run_config *now)
{
    uint64_t bytes, digest;
    char hex[32];

    if (!now->data || sp_data_digest(now->tokens, &bytes, &digest))
        return NULL;
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)digest);
    return json_pack("{s:o,s:I,s:s}", "path", sp_utf8_json(now->data), "bytes", (json_int_t)bytes,
                     "digest", hex);
}

int sp_run_state_write(const struct sp_dir *dir, const struct sp_run_config *now)
{
    json_t *data = data_json(now), *options = sp_settings_json(now->settings), *state;
    json_t *companions = now->companions ? sp_companions_names(now->companions) : NULL;
    char cwd[SP_RUN_PATH];
    int err;

    state = json_pack("{s:i,s:i,s:I,s:I,s:s,s:f,s:o,s:o?,s:o?,s:o?}", "format", FORMAT, "step",
                      now->step, "samples", (json_int_t)now->samples, "seed", (json_int_t)now->seed,
                      "schedule", now->schedule, "loss", isfinite(now->loss) ? now->loss : 0, "cwd",
                      sp_utf8_json(getcwd(cwd, sizeof cwd) ? cwd : ""), "data", data, "options",
                      options, SP_STEP_COMPANIONS, companions);
    err = state ? sp_output_json_in(dir, "state.json", state, SP_OUTPUT_JSON)
                : sp_error(ENOMEM, "%s/state.json: no memory", dir->path);
    json_decref(state);
    return err;
}

const char *sp_run_state_option(const struct sp_run_state *s, const char *name)
{
    return json_string_value(json_object_get(json_object_get(s->json, "options"), name));
}

/* The value of an option that is a number; 0: unknown. */
static int number_of(const struct sp_run_state *s, const char *name)
{
    const char *text = sp_run_state_option(s, name);

    return text ? atoi(text) : 0;
}

/* How far the data were read: as the file says, or for an older version as steps of one size
 * give it. */
static void read_place(struct sp_run_state *s)
{
    int pipelines = number_of(s, "--data-parallel");
    const json_t *samples = json_object_get(s->json, "samples");
    const double most = 1e15;
    double each = (double)number_of(s, "--micro-batches") * number_of(s, "--micro-batch-size") *
                  (pipelines > 0 ? pipelines : 1);

    s->seq = number_of(s, "--seq");
    s->step_samples = each > 0 && each < INT_MAX ? (int)each : 0;
    if (json_is_integer(samples) && json_integer_value(samples) >= 0)
        s->samples = (uint64_t)json_integer_value(samples);
    else
        s->samples = each * s->step < most ? (uint64_t)(each * s->step) : 0;
}

int sp_run_state_read(const struct sp_dir *dir, struct sp_run_state *s)
{
    char path[SP_RUN_PATH];
    json_int_t seed = 0;
    json_t *json = sp_step_state(dir);

    *s = (struct sp_run_state){.format = 1, .step = -1};
    snprintf(path, sizeof path, "%s/state.json", dir->path);
    if (!json ||
        json_unpack(json, "{s:i,s:I,s?i}", "step", &s->step, "seed", &seed, "format", &s->format) ||
        s->step < 0) {
        json_decref(json);
        return sp_error(EINVAL, "cannot resume: %s is missing or malformed", path);
    }
    if (s->format < 1 || s->format > FORMAT) {
        json_decref(json);
        return sp_error(EINVAL, "cannot resume: %s has format %d, this program knows up to %d",
                        path, s->format, FORMAT);
    }
    s->seed = (uint64_t)seed;
    s->loss = json_number_value(json_object_get(json, "loss"));
    s->json = json;
    read_place(s);
    return 0;
}

void sp_run_state_free(struct sp_run_state *s)
{
    json_decref(s->json);
    s->json = NULL;
}

/* True if the contents differ; a file of the same contents may be elsewhere. */
static bool other_data(const struct sp_run_state *s, const struct sp_run_config *now)
{
    json_t *was = json_object_get(s->json, "data"), *is = data_json(now);
    bool other = was && is &&
                 (!json_equal(json_object_get(was, "bytes"), json_object_get(is, "bytes")) ||
                  !json_equal(json_object_get(was, "digest"), json_object_get(is, "digest")));

    json_decref(is);
    return other;
}

/* These differences are told in another way: the sizes of a step by its samples, the seed by the
 * one that was drawn with. */
static bool is_told_apart(const char *name)
{
    static const char *const names[] = {"--micro-batches", "--micro-batch-size", "--data-parallel",
                                        "--seed", NULL};

    for (int i = 0; names[i]; i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

static bool is_last_step(const char *name)
{
    return !strcmp(name, "--steps");
}

static bool counts_for_numbers(const char *name)
{
    enum sp_option_role role = sp_train_role(name + 2);

    return (role == SP_ROLE_NUMBERS || role == SP_ROLE_PLACE) && !is_told_apart(name) &&
           !is_last_step(name);
}

/* True if the learning rate falls, because then the last step decides its course. */
static bool falls(const struct sp_run_state *s)
{
    const char *shape = sp_run_state_option(s, "--lr-schedule");

    return shape && strcmp(shape, "constant");
}

static bool is_schedule(const char *name)
{
    return !strcmp(name, "--schedule");
}

static bool counts_for_nothing(const char *name)
{
    enum sp_option_role role = sp_train_role(name + 2);

    return role == SP_ROLE_WAY || (role == SP_ROLE_PLACE && is_told_apart(name));
}

/* True if only one of the two takes gradients of weights that are older than the step's. */
static bool other_updates(const struct sp_run_state *s, const struct sp_run_config *now)
{
    const char *was = sp_run_state_option(s, "--schedule");

    return was && sp_schedule_find(was) &&
           sp_schedule_is_synchronous(was) != sp_schedule_is_synchronous(now->schedule);
}

/* A list in out[n], with ", " between its items. */
struct list {
    char *out;
    size_t n, used;
    int changes;
};

static void add_text(struct list *l, const char *text, int changes)
{
    if (!changes)
        return;
    if (l->used < l->n)
        l->used += (size_t)snprintf(l->out + l->used, l->n - l->used, "%s%s",
                                    l->changes ? ", " : "", text);
    l->changes += changes;
}

static void add_settings(struct list *l, const struct sp_run_state *s,
                         const struct sp_run_config *now, sp_setting_counts *counts)
{
    char text[2048];

    add_text(l, text,
             sp_settings_changes(now->settings, json_object_get(s->json, "options"), counts, text,
                                 sizeof text));
}

int sp_run_state_changes(const struct sp_run_state *s, const struct sp_run_config *now, char *out,
                         size_t n)
{
    struct list l = {.out = out, .n = n};
    char text[96];

    out[0] = '\0';
    add_settings(&l, s, now, counts_for_numbers);
    if (falls(s))
        add_settings(&l, s, now, is_last_step);
    if (other_updates(s, now))
        add_settings(&l, s, now, is_schedule);
    if (s->step_samples && s->step_samples != now->step_samples) {
        snprintf(text, sizeof text, "steps of %d samples (were %d)", now->step_samples,
                 s->step_samples);
        add_text(&l, text, 1);
    }
    if (now->seed != s->seed) {
        snprintf(text, sizeof text, "--seed %llu (was %llu)", (unsigned long long)now->seed,
                 (unsigned long long)s->seed);
        add_text(&l, text, 1);
    }
    if (other_data(s, now))
        add_text(&l, "other data", 1);
    return l.changes;
}

int sp_run_state_other_changes(const struct sp_run_state *s, const struct sp_run_config *now,
                               char *out, size_t n)
{
    struct list l = {.out = out, .n = n};

    out[0] = '\0';
    if (!falls(s))
        add_settings(&l, s, now, is_last_step);
    add_settings(&l, s, now, counts_for_nothing);
    return l.changes;
}
