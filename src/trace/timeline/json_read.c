#include "sp_error.h"
#include "trace/timeline/json.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- values: missing ones are NaN, 0 or "" --------------------------------------------------- */

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    return json_is_number(v) ? json_number_value(v) : NAN;
}

static int whole(const json_t *o, const char *key)
{
    return (int)json_integer_value(json_object_get(o, key));
}

static int64_t bytes(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static const char *text(const json_t *o, const char *key)
{
    const char *value = json_string_value(json_object_get(o, key));

    return value ? value : "";
}

static bool is(const json_t *event, const char *category)
{
    return !strcmp(text(event, "ph"), "X") && !strcmp(text(event, "cat"), category);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* True for numbers that are read into an int. -1 means none. */
static bool is_count(const char *key)
{
    static const char *const keys[] = {
        "step",   "micro_batches", "chunks", "slices", "layers", "parts",   "overlaps",
        "stages", "rank",          "lane",   "peak",   "stage",  "index",   "turn",
        "split",  "alive",         "after",  "from",   "to",     "overlap", "processes"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i]))
            return true;
    return false;
}

/* True if all numbers are so small that no sum or product of a step's numbers overflows: anybody
 * may have written the file. */
static bool is_bounded(const json_t *v, const char *key)
{
    const json_int_t most_count = 1 << 24, most = (json_int_t)1 << 53;
    const json_t *inner;
    const char *name;
    size_t i;

    if (json_is_integer(v)) {
        json_int_t n = json_integer_value(v);

        return is_count(key) ? n >= -1 && n <= most_count : n >= -most && n <= most;
    }
    if (json_is_real(v))
        return fabs(json_real_value(v)) <= 1e18;
    json_array_foreach(v, i, inner)
    {
        if (!is_bounded(inner, ""))
            return false;
    }
    json_object_foreach((json_t *)v, name, inner)
    {
        if (!is_bounded(inner, name))
            return false;
    }
    return true;
}

static bool is_ratio(double r)
{
    return r >= -1e-9 && r <= 1 + 1e-9;
}

/* True if the numbers that every report needs are there and possible. */
static bool has_numbers(const json_t *head)
{
    const json_t *list = json_object_get(head, "stage");

    for (int s = 0; s < whole(head, "stages"); s++) {
        const json_t *stage = json_array_get(list, (size_t)s);

        if (!(number(stage, "busy_ms") >= 0) || !is_ratio(number(stage, "bubble_ratio")))
            return false;
    }
    return number(head, "span_ms") >= 0 && is_ratio(number(head, "bubble_ratio")) &&
           whole(head, "micro_batches") >= 0;
}

/* ---- otherData ------------------------------------------------------------------------------- */

static void read_stage(const json_t *o, struct sp_timeline_stage *s)
{
    *s = (struct sp_timeline_stage){.rank = whole(o, "rank"),
                                    .lane = whole(o, "lane"),
                                    .layers = whole(o, "layers"),
                                    .peak = whole(o, "peak"),
                                    .busy = number(o, "busy_ms"),
                                    .idle = number(o, "idle_ms"),
                                    .core_wait = number(o, "core_wait_ms"),
                                    .comm_wait = number(o, "comm_wait_ms"),
                                    .update = number(o, "update_ms"),
                                    .stall = number(o, "offload_stall_ms"),
                                    .bubble = number(o, "bubble_ratio"),
                                    .bytes_sent = bytes(o, "bytes_sent"),
                                    .peak_bytes = bytes(o, "peak_activation_bytes"),
                                    .left = bytes(o, "bytes_offloaded"),
                                    .returned = bytes(o, "bytes_brought_back")};
}

/* Returns the number of processes, or 0: a rank or a lane is invalid. */
static int read_stages(const json_t *list, struct sp_timeline *t)
{
    int processes = whole(list, "processes");
    const json_t *stage = json_object_get(list, "stage");

    for (int s = 0; s < t->stages; s++) {
        struct sp_timeline_stage *st = &t->stage[s];

        read_stage(json_array_get(stage, (size_t)s), st);
        if (st->rank < 0 || st->rank >= processes || st->lane < 0 || st->lane >= t->stages)
            return 0;
    }
    return processes <= SP_MAX_SIZE ? processes : 0;
}

static int read_head(const json_t *o, struct sp_timeline *t)
{
    snprintf(t->unit, sizeof t->unit, "%s", text(o, "unit"));
    snprintf(t->schedule, sizeof t->schedule, "%s", text(o, "schedule"));
    snprintf(t->model, sizeof t->model, "%s", text(o, "model"));
    snprintf(t->machine, sizeof t->machine, "%s", text(o, "machine"));
    t->options = strdup(text(o, "options"));
    for (int i = 0; i <= SP_TIMELINE_PREDICTED; i++)
        if (!strcmp(text(o, "source"), sp_timeline_source_name((enum sp_timeline_source)i)))
            t->source = (enum sp_timeline_source)i;
    t->step = whole(o, "step");
    if (t->step >= 0 && t->step < INT_MAX && !json_object_get(o, "first_step"))
        t->step++; /* written by a version that counted from 0 */
    t->micro_batches = whole(o, "micro_batches");
    t->chunks = whole(o, "chunks");
    t->slices = whole(o, "slices");
    t->layers = whole(o, "layers");
    t->parts = whole(o, "parts");
    t->overlaps = whole(o, "overlaps");
    t->share = number(o, "share");
    t->span = number(o, "span_ms");
    t->length = number(o, "step_ms");
    t->bubble = number(o, "bubble_ratio");
    t->processes = read_stages(o, t);
    return t->options && t->processes > 0 ? 0 : -EINVAL;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* The number of an op; -1: there is none. */
static int number_of(const struct sp_timeline *t, json_int_t stage, json_int_t index)
{
    if (stage < 0 || stage >= t->stages || index < 0 ||
        index >= t->first_op[stage + 1] - t->first_op[stage])
        return -1;
    return t->first_op[stage] + (int)index;
}

/* The number of the op at [stage, index, ...]; -1: there is none. */
static int op_at(const struct sp_timeline *t, const json_t *place)
{
    return json_array_size(place) < 2 ? -1
                                      : number_of(t, json_integer_value(json_array_get(place, 0)),
                                                  json_integer_value(json_array_get(place, 1)));
}

static int read_op(const json_t *event, struct sp_timeline *t)
{
    const json_t *a = json_object_get(event, "args"), *deps = json_object_get(a, "waits_for");
    int at = number_of(t, whole(a, "stage"), whole(a, "index"));
    struct sp_timeline_op *op = &t->op[at < 0 ? 0 : at];

    if (at < 0 || op->end > 0 || sp_op_parse(text(event, "name"), &op->op))
        return -EINVAL;
    op->op.overlap = (unsigned char)whole(a, "overlap");
    op->stage = whole(a, "stage");
    op->index = whole(a, "index");
    op->turn = whole(a, "turn");
    op->split = whole(a, "split");
    op->start = number(a, "start");
    op->end = number(a, "end");
    op->busy = number(a, "busy");
    op->core_wait = number(a, "core_wait");
    op->stall = number(a, "stall");
    op->late = number(a, "late");
    op->exchange = json_object_get(a, "exchange") ? number(a, "exchange") : 0;
    op->out = number(a, "out");
    op->submitted = number(a, "submitted");
    op->ready = number(a, "ready");
    op->arrived = number(a, "arrived");
    op->alive = whole(a, "alive");
    op->after = whole(a, "after");
    op->bytes = bytes(a, "bytes");
    op->bytes_after = bytes(a, "bytes_after");
    op->first_dep = t->n_deps;
    op->deps = (int)json_array_size(deps);
    for (int d = 0; d < op->deps; d++) {
        const json_t *dep = json_array_get(deps, (size_t)d);
        int producer = op_at(t, dep);

        if (producer < 0)
            return -EINVAL;
        t->dep[t->n_deps++] =
            (struct sp_timeline_dep){producer, json_integer_value(json_array_get(dep, 2)) != 0};
    }
    return isfinite(op->start + op->end + op->busy + op->core_wait + op->stall + op->late +
                    op->exchange + op->out)
               ? 0
               : -EINVAL;
}

static int read_message(const json_t *event, struct sp_timeline *t)
{
    const json_t *a = json_object_get(event, "args");
    struct sp_timeline_message m = {.bytes = bytes(a, "bytes"),
                                    .from = whole(a, "from"),
                                    .to = whole(a, "to"),
                                    .writer = op_at(t, json_object_get(a, "writer")),
                                    .reader = op_at(t, json_object_get(a, "reader")),
                                    .ready = number(a, "ready"),
                                    .posted = number(a, "posted"),
                                    .begun = number(a, "begun"),
                                    .sent = number(a, "sent"),
                                    .arrived = number(a, "arrived")};

    snprintf(m.tensor, sizeof m.tensor, "%s", text(a, "tensor"));
    m.kind = SP_ACTION_KINDS;
    for (int i = 0; i < SP_ACTION_KINDS; i++)
        if (!strcmp(text(a, "kind"), sp_action_name((enum sp_action_kind)i)))
            m.kind = (enum sp_action_kind)i;
    if (m.kind == SP_ACTION_KINDS || m.from < 0 || m.from >= t->stages || m.to < 0 ||
        m.to >= t->stages || !isfinite(m.ready + m.posted + m.begun + m.sent + m.arrived))
        return -EINVAL;
    return sp_timeline_add_message(t, &m);
}

/* Counts the ops of each stage by the highest index; returns the number of all ops, and counts
 * their dependencies. */
static int count(const json_t *events, int stages, int *first_op, int *deps)
{
    const json_t *event;
    size_t i;
    int n = 0;

    json_array_foreach(events, i, event)
    {
        const json_t *a = json_object_get(event, "args");
        int stage = whole(a, "stage");

        if (!is(event, "op"))
            continue;
        if (stage < 0 || stage >= stages)
            return -1;
        first_op[stage + 1]++;
        *deps += (int)json_array_size(json_object_get(a, "waits_for"));
        n++;
    }
    for (int s = 0; s < stages; s++)
        first_op[s + 1] += first_op[s];
    return n;
}

static int read_events(const json_t *events, struct sp_timeline *t)
{
    const json_t *event;
    size_t i;
    int err = 0;

    json_array_foreach(events, i, event)
    {
        err = err ? err : is(event, "op") ? read_op(event, t) : 0;
    }
    json_array_foreach(events, i, event)
    {
        err = err ? err : is(event, "message") ? read_message(event, t) : 0;
    }
    return err;
}

static int read_all(const json_t *root, struct sp_timeline *t)
{
    const json_t *head = json_object_get(root, "otherData");
    const json_t *events = json_object_get(root, "traceEvents");
    int stages = whole(head, "stages"), ops, deps = 0, err;
    int *first;

    if (strcmp(text(head, "format"), "starpipe step 1") || stages < 1 || stages > SP_MAX_SIZE ||
        !is_bounded(root, "") || !has_numbers(head))
        return -EINVAL;
    first = calloc((size_t)stages + 1, sizeof *first);
    ops = first ? count(events, stages, first, &deps) : -1;
    err = !first ? -ENOMEM : ops < 1 ? -EINVAL : sp_timeline_create(stages, ops, deps, t);
    if (!err) {
        memcpy(t->first_op, first, ((size_t)stages + 1) * sizeof *first);
        t->n_deps = 0;
        err = read_head(head, t);
        err = err ? err : read_events(events, t);
        err = err ? err : sp_timeline_finish(t);
        if (err)
            sp_timeline_destroy(t);
    }
    free(first);
    return err;
}

/* True if the first line is that of a log of train, which describes its plan. */
static bool is_log(const char *path)
{
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t cap = 0;
    ssize_t n = f ? getline(&line, &cap, f) : -1;
    json_t *first = n > 0 ? json_loadb(line, (size_t)n, 0, NULL) : NULL;
    bool log = json_object_get(first, "plan");

    json_decref(first);
    free(line);
    if (f)
        fclose(f);
    return log;
}

int sp_timeline_load(const char *command, const char *path, struct sp_timeline *t)
{
    char inside[4096];
    json_error_t why;
    struct stat st;
    json_t *root;
    int err;

    if (stat(path, &st))
        return sp_error(errno, "%s: cannot read %s: %s", command, path, strerror(errno));
    if (S_ISDIR(st.st_mode)) {
        snprintf(inside, sizeof inside, "%s/trace.json", path);
        path = inside;
        if (stat(path, &st))
            return sp_error(errno, "%s: no record of a step in %s: %s", command, path,
                            strerror(errno));
    }
    root = json_load_file(path, 0, &why);
    if ((!root || !json_object_get(root, "otherData")) && is_log(path)) {
        json_decref(root);
        return sp_error(EINVAL, "%s: %s is a log of train: try 'starpipe watch %s'", command, path,
                        path);
    }
    if (!root)
        return sp_error(EINVAL, "%s: %s, line %d: %s", command, path, why.line, why.text);
    err = read_all(root, t);
    json_decref(root);
    if (err == -EINVAL)
        return sp_error(EINVAL,
                        "%s: %s is no record of a step as 'train --trace' or 'show --format "
                        "perfetto' writes it",
                        command, path);
    return err ? sp_error(ENOMEM, "%s: no memory for what %s holds", command, path) : 0;
}
