#include "cli/watch/watch.h"
#include "sp_error.h"
#include "train/run/log_file.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

void sp_watched_destroy(struct sp_watched *w)
{
    json_decref(w->plan);
    free(w->steps);
    free(w->stage);
    *w = (struct sp_watched){.name = w->name, .eval_step = -1};
}

static double real_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* False if the number is there but below `least` or above `most`. */
static bool is_within(const json_t *object, const char *key, double least, double most)
{
    const json_t *v = json_object_get(object, key);
    double n = json_number_value(v);

    return !v || (json_is_number(v) && n >= least && n <= most);
}

/* True if a run can have written the line: a log may come from anybody. */
static bool is_possible(const json_t *line)
{
    static const char *const sizes[] = {"step_ms", "tokens_per_s", "micro_batches"};
    const json_t *stages = json_object_get(line, "stages"), *stage;
    size_t i;

    for (i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!is_within(line, sizes[i], 0, 1e18))
            return false;
    json_array_foreach(stages, i, stage)
    {
        if (!is_within(stage, "bubble_ratio", -1e-9, 1 + 1e-9) ||
            !is_within(stage, "peak_activation_bytes", 0, 1e18) ||
            !is_within(stage, "buffer_bytes", 0, 1e18))
            return false;
    }
    return is_within(line, "step", 0, INT_MAX - 1) &&
           is_within(line, "eval_step", -1, INT_MAX - 1) &&
           (json_is_array(stages) || is_within(line, "stages", 1, 1 << 24)) &&
           (!json_object_get(line, "step") || json_is_number(json_object_get(line, "loss"))) &&
           is_within(line, "loss", -1e18, 1e18) && is_within(line, "eval_loss", -1e18, 1e18) &&
           is_within(line, "grad_norm", 0, 1e18);
}

static int add_stages(struct sp_watched *w, const json_t *stages)
{
    int n = (int)json_array_size(stages);
    struct sp_watched_stage *stage = realloc(w->stage, ((size_t)n + 1) * sizeof *stage);

    if (!stage)
        return sp_error(ENOMEM, "watch: no memory for %d stages", n);
    w->stage = stage;
    w->stages = n;
    for (int s = 0; s < n; s++) {
        const json_t *from = json_array_get(stages, (size_t)s);

        stage[s] =
            (struct sp_watched_stage){.bubble = real_of(from, "bubble_ratio"),
                                      .stashed_bytes = real_of(from, "peak_activation_bytes"),
                                      .buffer_bytes = real_of(from, "buffer_bytes")};
    }
    return 0;
}

/* The number of a step, counted from 1. */
static int step_of(const struct sp_watched *w, const json_t *line, const char *key)
{
    return (int)json_integer_value(json_object_get(line, key)) + w->shift;
}

static int add_step(struct sp_watched *w, const json_t *line)
{
    if (w->n == w->cap) {
        int cap = 2 * w->cap + 64;
        struct sp_watched_step *more = realloc(w->steps, (size_t)cap * sizeof *more);

        if (!more)
            return sp_error(ENOMEM, "watch: no memory for %d steps", cap);
        w->steps = more;
        w->cap = cap;
    }
    w->steps[w->n++] = (struct sp_watched_step){.number = step_of(w, line, "step"),
                                                .loss = real_of(line, "loss"),
                                                .grad_norm = real_of(line, "grad_norm"),
                                                .tokens_per_s = real_of(line, "tokens_per_s"),
                                                .step_ms = real_of(line, "step_ms")};
    return add_stages(w, json_object_get(line, "stages"));
}

/* Refuses a first line that belongs to no log. -EINVAL. */
static int refuse_file(const struct sp_watched *w, const char *text, size_t n)
{
    static const char record[] = "{\"displayTimeUnit\":"; /* trace/timeline/json_write.c */

    if (n >= strlen(record) && !strncmp(text, record, strlen(record)))
        return sp_error(EINVAL, "watch: %s is the record of a step: try 'starpipe report %s'",
                        w->name, w->name);
    return sp_error(EINVAL, "watch: %s, line 1: this is no log of starpipe", w->name);
}

int sp_watched_add(struct sp_watched *w, const char *text, size_t n)
{
    json_t *line = json_loadb(text, n, 0, NULL);
    int err = 0;

    w->lines++;
    if (!json_is_object(line) || (!w->plan && !json_object_get(line, "plan"))) {
        err = w->lines == 1
                  ? refuse_file(w, text, n)
                  : sp_error(EINVAL, "watch: %s, line %ld: not a JSON object", w->name, w->lines);
    } else if (!is_possible(line)) {
        err = w->plan ? 1
                      : sp_error(EINVAL, "watch: %s, line %ld: numbers that no run has", w->name,
                                 w->lines);
    } else if (json_object_get(line, "plan")) {
        json_decref(w->plan);
        w->plan = json_incref(line);
        w->shift = sp_log_shift(line, w->shift);
    } else if (json_object_get(line, "eval_step")) {
        w->eval_step = step_of(w, line, "eval_step");
        w->eval_loss = real_of(line, "eval_loss");
    } else if (json_object_get(line, "step")) {
        err = add_step(w, line);
    }
    json_decref(line);
    return err;
}
