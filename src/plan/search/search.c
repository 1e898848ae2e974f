#include "plan/search/search.h"
#include "model/stash.h"
#include "plan/search/distinct.h"
#include "plan/search/trials.h"
#include "policies/registry.h"
#include "sp_error.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of slices that are tried of a range. */
enum { FEW_TRIES = 3, TRIES = 8, MANY_TRIES = 24 };

/* Chunks of a stage that are tried at most: more would halve again what is left of a bubble. */
enum { MOST_CHUNKS = 4 };
/* Slices that take turns only for messages to travel beside them: more gain nothing. */
enum { MOST_TURNS = 4 };
/* The least of a slice where only more slices could fit into memory. */
enum { SMALL_TOKENS = 32 };

struct search {
    const struct sp_search *want;
    struct sp_found *best;
    int n, most;
    bool small; /* slices that only memory can ask for */
    struct sp_trials trials;
};

/* ---- the best ----------------------------------------------------------------------------------- */

/* Rates that are within a thousandth are equal: less is more than any model knows. */
static double grade(const struct sp_found *f)
{
    return floor(1e3 * log(f->tokens_per_s));
}

static bool better(const struct sp_found *a, const struct sp_found *b)
{
    if (a->fits != b->fits)
        return a->fits;
    if (!a->fits)
        return a->memory < b->memory;
    if (grade(a) != grade(b))
        return a->tokens_per_s > b->tokens_per_s;
    if (a->trains != b->trains)
        return a->trains;
    if (a->vocabulary != b->vocabulary)
        return b->vocabulary;
    return a->slices < b->slices;
}

/* One row for each schedule on stages of a size: the best of its micro-batches, chunks and slices. */
static bool is_alike(const struct sp_found *a, const struct sp_found *b)
{
    return !strcmp(a->schedule, b->schedule) && a->stages == b->stages &&
           a->devices == b->devices && a->context == b->context;
}

static void insert(struct search *s, const struct sp_found *f)
{
    int at = 0;

    while (at < s->n && !is_alike(&s->best[at], f))
        at++;
    if (at < s->n) {
        if (!better(f, &s->best[at]))
            return;
        memmove(&s->best[at], &s->best[at + 1], (size_t)(--s->n - at) * sizeof *s->best);
    }
    at = s->n < s->most ? s->n : s->most;

    while (at > 0 && better(f, &s->best[at - 1]))
        at--;
    if (at == s->most)
        return;
    s->n = s->n < s->most ? s->n + 1 : s->most;
    memmove(&s->best[at + 1], &s->best[at], (size_t)(s->n - at - 1) * sizeof *s->best);
    s->best[at] = *f;
}

/* And with the vocabulary cut over all stages, where the schedule may be run so. */
static void try(struct search *s, struct sp_found f)
{
    enum sp_search_vocabulary want = s->want->vocabulary;

    if (want != SP_SEARCH_WITH)
        sp_trials_add(&s->trials, &f);
    f.vocabulary = f.stages > 1 && sp_schedule_shares_vocabulary(f.schedule);
    if (f.vocabulary && want != SP_SEARCH_WITHOUT)
        sp_trials_add(&s->trials, &f);
}

/* The best of what was tried. */
static int rank(struct search *s)
{
    const struct sp_trials *t = &s->trials;

    s->n = 0;
    if (t->lost)
        return sp_error(ENOMEM, "no memory to try %d layouts", t->n);
    for (int i = 0; i < t->n; i++) {
        if (t->err[i] == -ENOMEM)
            return sp_error(ENOMEM, "no memory to try %s on %d stages", t->layout[i].schedule,
                            t->layout[i].stages);
        if (!t->err[i] && (t->layout[i].trains || s->want->simulated))
            insert(s, &t->layout[i]);
    }
    return 0;
}

const struct sp_found *sp_search_recommended(const struct sp_found *best, int n)
{
    for (int i = 0; i < n; i++)
        if (best[i].fits && best[i].trains)
            return &best[i];
    return NULL;
}

static bool is_same(const struct sp_found *a, const struct sp_found *b)
{
    return is_alike(a, b) && a->batch == b->batch && a->micro_batches == b->micro_batches &&
           a->chunks == b->chunks && a->slices == b->slices && a->vocabulary == b->vocabulary;
}

/* Whether a layout is one of those that are told, and not predicted whole yet. */
static bool is_guessed(const struct search *s, const struct sp_found *f, const int *told, int n)
{
    const struct sp_found *recommended = sp_search_recommended(s->best, s->n);

    for (int i = 0; i < n && !f->whole; i++)
        if (is_same(&s->best[told[i]], f))
            return true;
    return recommended && !f->whole && is_same(recommended, f);
}

/* Predicts those that are told whole; others may be better then, and are told in their place. */
static int settle(struct search *s, int shown)
{
    struct sp_trials *all = &s->trials, again = {0};
    int err = 0, *from = calloc((size_t)all->n + 1, sizeof *from);
    int *told = calloc((size_t)shown + 1, sizeof *told);

    if (!from || !told) {
        free(from);
        free(told);
        return sp_error(ENOMEM, "no memory to try %d layouts", all->n);
    }
    do {
        int n = sp_found_distinct(s->best, s->n, told, shown);

        again.n = again.done = 0;
        for (int i = 0; i < all->n; i++) {
            struct sp_found whole = all->layout[i];

            if (all->err[i] || !is_guessed(s, &whole, told, n))
                continue;
            whole.whole = true;
            from[again.n] = i;
            sp_trials_add(&again, &whole);
        }
        sp_trials_run(s->want, &again);
        for (int i = 0; i < again.n && !again.lost; i++) {
            all->layout[from[i]] = again.layout[i];
            all->err[from[i]] = again.err[i];
        }
        all->lost |= again.lost;
        err = rank(s);
    } while (!err && again.n);
    sp_trials_destroy(&again);
    free(told);
    free(from);
    return err;
}

/* ---- slices ------------------------------------------------------------------------------------- */

static bool shares(const char *schedule)
{
    return sp_schedule_takes_slices(schedule) && sp_schedule_flag(schedule, "multiplex");
}

/* Numbers of slices that are tried: least .. most. */
static void range_of(const struct search *s, const struct sp_found *f, int *least, int *most)
{
    const struct sp_search *want = s->want;
    bool shared = shares(f->schedule);
    int p = f->stages, room = shared ? SP_MAX_SLICES - (p - 1) * (p - 1) : SP_MAX_SLICES;

    *least = (int)ceil((double)want->seq / SP_TOKENS_MOST);
    *most = want->seq / SP_TOKENS_LEAST;
    *most = *most > p ? *most : p;
    if (s->small) {
        *least = *most + 1;
        *most = want->seq / SMALL_TOKENS;
    } else {
        *most = *most > *least ? *most : *least;
    }
    *most = *most < want->seq ? *most : want->seq;
    *most = *most < room ? *most : room;
    if (!s->small)
        *least = *least < *most ? *least : *most;
    if (shared) { /* as policies/families/multiplexed has it */
        *least = *least > p - 1 ? *least : p - 1;
        *least = *least > 2 ? *least : 2;
    }
    if (!sp_schedule_wants_slices(f->schedule)) {
        *least = 2;
        *most = *most < MOST_TURNS ? *most : MOST_TURNS;
    }
    if (want->slices)
        *least = *most = want->slices;
}

/* Whether slices can be shared out at all. */
static bool can_be(const struct search *s, const struct sp_found *f, int slices)
{
    int p = f->stages;

    return !shares(f->schedule) ||
           (slices >= 2 && slices >= p - 1 && slices + (p - 1) * (p - 1) <= SP_MAX_SLICES &&
            s->want->seq / slices >= SP_TOKENS_OF_PART * p);
}

/* All of them, or some in equal ratios. */
static void try_slices(struct search *s, struct sp_found f)
{
    int tries = s->want->schedule    ? MANY_TRIES
                : shares(f.schedule) ? FEW_TRIES /* its plans are large */
                                     : TRIES;
    int low, high, last = 0;

    range_of(s, &f, &low, &high);
    for (int i = 0; i < tries; i++) {
        f.slices = high - low < tries
                       ? low + i
                       : (int)lround(low * pow((double)high / low, (double)i / (tries - 1)));
        if (f.slices > high || f.slices == last || !can_be(s, &f, f.slices))
            continue;
        last = f.slices;
        try(s, f);
    }
}

/* ---- schedules ---------------------------------------------------------------------------------- */

static void try_schedule(struct search *s, struct sp_found f, const char *schedule)
{
    const struct sp_schedule_def *def = sp_schedule_find(schedule);

    snprintf(f.schedule, sizeof f.schedule, "%s", schedule);
    f.slices = 1;
    f.chunks = s->want->chunks;
    if (sp_schedule_wants_slices(schedule)) {
        try_slices(s, f);
        return;
    }
    if (s->small)
        return;
    if (sp_schedule_takes_slices(schedule) && !strstr(schedule, "fold="))
        try_slices(s, f);
    if (s->want->slices > 1)
        return;
    try(s, f);
    if (!def || def->default_chunks < 1 || f.chunks || s->want->schedule)
        return;
    /* where the schedule takes any number; it refuses otherwise */
    for (f.chunks = 2 * def->default_chunks; f.chunks <= MOST_CHUNKS;
         f.chunks += def->default_chunks)
        try(s, f);
}

/* A schedule and what its options make of it. */
static void try_variants(struct search *s, struct sp_found f, const struct sp_schedule_def *def)
{
    const char *at = def->variants ? def->variants : "";
    char name[64];

    try_schedule(s, f, def->name);
    for (size_t n; *at; at += n + (at[n] == ' ')) {
        n = strcspn(at, " ");
        snprintf(name, sizeof name, "%s:%.*s", def->name, (int)n, at);
        try_schedule(s, f, name);
    }
}

/* On stages of `tensor` devices that share parameters, `context` times, with micro-batches of `batch` sequences. */
static void try_grid(struct search *s, int tensor, int context, int batch)
{
    const struct sp_search *want = s->want;
    int devices = tensor * context * sp_search_pipelines(want);
    int all = want->nodes * want->machine->devices_per_node;
    struct sp_found f = {.devices = tensor,
                         .context = context,
                         .batch = batch,
                         .micro_batches = want->sequences / batch,
                         .stages = all / devices};

    if (want->stages && want->devices)
        f.stages = want->stages;
    else if (sp_search_pipelines(want) > 1 && all % devices)
        return;
    if (f.stages < 1 || f.stages > want->model->layers ||
        (want->stages && f.stages != want->stages) || f.micro_batches > SP_MAX_SIZE ||
        (int64_t)batch * want->seq > INT32_MAX)
        return;
    if (want->schedule) {
        try_schedule(s, f, want->schedule);
        return;
    }
    for (int i = 0; sp_schedule_at(i); i++)
        if (sp_schedule_is_synchronous(sp_schedule_at(i)->name))
            try_variants(s, f, sp_schedule_at(i));
}

/* On stages of `devices` devices. */
static void try_size(struct search *s, int devices, int batch)
{
    enum sp_search_group group = s->want->group;

    for (int tensor = 1; tensor <= devices; tensor++)
        if (devices % tensor == 0 && (!s->want->tensor || tensor == s->want->tensor) &&
            (group == SP_SEARCH_BOTH || tensor == (group == SP_SEARCH_TENSOR ? devices : 1)))
            try_grid(s, tensor, devices / tensor, batch);
}

static int try_all(struct search *s)
{
    const struct sp_search *want = s->want;
    int all = want->machine->devices_per_node;

    for (int devices = 1; devices <= all; devices++) {
        if (all % devices || (want->devices && devices != want->devices))
            continue;
        for (int batch = 1; batch <= want->sequences && batch <= 8; batch *= 2)
            if (!want->batch && want->sequences % batch == 0)
                try_size(s, devices, batch);
        if (want->batch)
            try_size(s, devices, want->batch);
    }
    if (want->devices > all)
        try_size(s, want->devices, want->batch ? want->batch : 1);
    sp_trials_run(want, &s->trials);
    return rank(s);
}

int sp_search(const struct sp_search *want, struct sp_found *best, int most, int shown)
{
    struct search s = {.want = want, .best = best, .most = most};
    int err = try_all(&s);

    s.small = true;
    if (!err && s.n > 0 && !best[0].fits && !want->slices && want->schedule)
        err = try_all(&s);
    err = err ? err : settle(&s, shown);
    sp_trials_destroy(&s.trials);
    return err ? err : s.n;
}

bool sp_search_rings(const struct sp_search *want, const struct sp_found *f)
{
    int keys = want->model->kv_heads;

    return want->model->heads % f->context || (keys % f->context && f->context % keys);
}

/* ---- commands ----------------------------------------------------------------------------------- */

/* value NULL: the option has none. */
static void add(char *text, size_t n, const char *option, const char *value)
{
    size_t used = strlen(text);

    if (used < n)
        snprintf(text + used, n - used, value ? " --%s %s" : " --%s", option, value);
}

static void add_number(char *text, size_t n, const char *option, int value)
{
    char number[16];

    snprintf(number, sizeof number, "%d", value);
    add(text, n, option, number);
}

static void add_limit(const struct sp_search *want, char *text, size_t n)
{
    char bytes[32];

    snprintf(bytes, sizeof bytes, "%lld",
             (long long)(want->memory ? want->memory : want->machine->memory_bytes));
    add(text, n, "memory-limit", bytes);
}

int sp_found_processes(const struct sp_search *want, const struct sp_found *f)
{
    return f->stages * f->devices * f->context * sp_search_pipelines(want);
}

void sp_found_command(const struct sp_search *want, const struct sp_found *f,
                      const struct sp_found_names *names, char *text, size_t n)
{
    const struct sp_schedule_def *def = sp_schedule_find(f->schedule);
    int processes = sp_found_processes(want, f);
    bool limited = f->offload != SP_OFFLOAD_NONE || (def && !strcmp(def->name, "adapipe"));
    char every[24], launcher[32] = "";

    if (processes > 1)
        snprintf(launcher, sizeof launcher, "mpirun -np %d ", processes);
    snprintf(text, n, "%sstarpipe train --model %s", launcher, names->model);
    add_number(text, n, "seq", want->seq);
    add(text, n, "schedule", f->schedule);
    add_number(text, n, "stages", f->stages);
    add_number(text, n, "micro-batches", f->micro_batches);
    add_number(text, n, "micro-batch-size", f->batch);
    if (def && def->default_chunks > 0 && f->chunks != def->default_chunks)
        add_number(text, n, "chunks", f->chunks);
    if (f->slices > 1)
        add_number(text, n, "slices", f->slices);
    snprintf(every, sizeof every, "every=%d", f->every);
    if (!def || strcmp(def->name, "adapipe"))
        add(text, n, "recompute", f->every > 1 ? every : sp_recompute_name(f->recompute));
    if (limited || want->memory)
        add_limit(want, text, n); /* what it is planned within */
    if (f->offload != SP_OFFLOAD_NONE)
        add(text, n, "offload", sp_offload_name(f->offload));
    if (f->vocabulary)
        add(text, n, "vocabulary-parallel", NULL);
    if (!sp_schedule_is_synchronous(f->schedule))
        add(text, n, "clip", "0"); /* there is no gradient of all to clip */
    add(text, n, "dtype", sp_dtype_name(want->dtype));
    if (want->machine->rates.threads > 0)
        add_number(text, n, "threads", want->machine->rates.threads);
    if (f->devices > 1)
        add_number(text, n, "tensor-parallel", f->devices);
    if (f->context > 1)
        add_number(text, n, "context-parallel", f->context);
    if (f->context > 1 && sp_search_rings(want, f))
        add(text, n, "context-method", "ring");
    if (sp_search_pipelines(want) > 1)
        add_number(text, n, "data-parallel", sp_search_pipelines(want));
    if (sp_search_zero(want, f))
        add_number(text, n, "zero", 1);
    if (names->plugin)
        add(text, n, "plugin", names->plugin);
    if (names->hardware)
        add(text, n, "hardware", names->hardware);
}
