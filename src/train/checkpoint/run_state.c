#include "train/checkpoint/run_state.h"
#include "model/files/file_digest.h"
#include "model/files/output.h"
#include "sp_error.h"
#include "train/settings.h"
#include "train/checkpoint/step_dirs.h"
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { FORMAT = 2 };

/* The data as {"path", "bytes", "digest"}; NULL where they cannot be read. */
static json_t *data_json(const struct sp_run_config *now)
{
    uint64_t bytes, digest;
    char hex[32];

    if (!now->data || sp_file_digest(now->tokens->fd, now->data, &bytes, &digest))
        return NULL;
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)digest);
    return json_pack("{s:s,s:I,s:s}", "path", now->data, "bytes", (json_int_t)bytes, "digest", hex);
}

int sp_run_state_write(const char *dir, const struct sp_run_config *now)
{
    json_t *data = data_json(now), *options = sp_settings_json(now->settings), *state;
    char path[SP_RUN_PATH];
    int err;

    snprintf(path, sizeof path, "%s/state.json", dir);
    state = json_pack("{s:i,s:i,s:I,s:s,s:f,s:o?,s:o?}", "format", FORMAT, "step", now->step,
                      "seed", (json_int_t)now->seed, "schedule", now->schedule, "loss",
                      isfinite(now->loss) ? now->loss : 0, "data", data, "options", options);
    err = state ? sp_output_json(path, state) : sp_error(ENOMEM, "%s: no memory", path);
    json_decref(state);
    return err;
}

int sp_run_state_read(const char *dir, struct sp_run_state *s)
{
    char path[SP_RUN_PATH];
    json_int_t seed = 0;
    json_t *json;
    FILE *f;
    int fd;

    *s = (struct sp_run_state){.format = 1, .step = -1};
    snprintf(path, sizeof path, "%s/state.json", dir);
    fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    f = fd < 0 ? NULL : fdopen(fd, "rb");
    json = f ? json_loadf(f, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (f)
        fclose(f);
    else if (fd >= 0)
        close(fd);
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
    s->json = json;
    return 0;
}

void sp_run_state_free(struct sp_run_state *s)
{
    json_decref(s->json);
    s->json = NULL;
}

/* Whether the contents differ; a file of the same contents may lie elsewhere. */
static bool other_data(const struct sp_run_state *s, const struct sp_run_config *now)
{
    json_t *was = json_object_get(s->json, "data"), *is = data_json(now);
    bool other = was && is &&
                 (!json_equal(json_object_get(was, "bytes"), json_object_get(is, "bytes")) ||
                  !json_equal(json_object_get(was, "digest"), json_object_get(is, "digest")));

    json_decref(is);
    return other;
}

int sp_run_state_changes(const struct sp_run_state *s, const struct sp_run_config *now, char *out,
                         size_t n)
{
    static const char *const matter[] = {"--seq",
                                         "--micro-batches",
                                         "--micro-batch-size",
                                         "--order",
                                         "--token-bytes",
                                         "--lr",
                                         "--lr-schedule",
                                         "--lr-min",
                                         "--decay",
                                         "--warmup",
                                         "--weight-decay",
                                         "--beta1",
                                         "--beta2",
                                         "--eps",
                                         "--clip",
                                         "--dtype",
                                         NULL};
    static const char *const falling[] = {"--steps", NULL};
    const json_t *saved = json_object_get(s->json, "options");
    const char *shape = json_string_value(json_object_get(saved, "--lr-schedule"));
    const char *what[4];
    char text[2][1024], seeds[96] = "";
    int changes, lists = 0;

    changes = sp_settings_changes(now->settings, saved, matter, text[0], sizeof text[0]);
    if (changes)
        what[lists++] = text[0];
    /* where a falling rate ends is the last step */
    if (shape && strcmp(shape, "constant") &&
        sp_settings_changes(now->settings, saved, falling, text[1], sizeof text[1])) {
        changes++;
        what[lists++] = text[1];
    }
    if (now->seed != s->seed) {
        changes++;
        snprintf(seeds, sizeof seeds, "--seed %llu (was %llu)", (unsigned long long)now->seed,
                 (unsigned long long)s->seed);
        what[lists++] = seeds;
    }
    if (other_data(s, now)) {
        changes++;
        what[lists++] = "other data";
    }
    out[0] = '\0';
    for (int i = 0; i < lists; i++) {
        size_t used = strlen(out);

        snprintf(out + used, n - used, "%s%s", i ? ", " : "", what[i]);
    }
    return changes;
}
