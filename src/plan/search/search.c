#include "plan/search/search.h"
#include "plan/search/bounds.h"
#include "plan/search/distinct.h"
#include "plan/search/moves.h"
#include "plan/search/trial.h"
#include "policies/order_book.h"
#include "policies/registry.h"
#include "sp_error.h"
#include "sp_grow.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The schedule that compares grids. */
static const char PROBE[] = "1f1b";
/* A layout is skipped if it is sure to be slower than so many of the best rows. */
enum { ROWS = 12 };
/* A line continues from so many of its layouts at a time. */
enum { BEAM = 2 };
/* Every schedule begins from so many layouts of the probe. */
enum { STARTS = 3 };
/* A variant is tried if its schedule takes at most so many times the best step. */
static const double VARIANTS = 1.15;
/* A line skips layouts that take so many times its best step. */
static const double LINE = 1.15;
/* A line continues while it takes at most so many times the best step. */
static const double NEAR = 1.08;
/* From one grid to the next, a step's time beyond the bound shrinks at most to this part. */
static const double SHRINKS = 0.4;

/* The search of one schedule, with its options. */
struct line {
    char schedule[64];
    int of;       /* the line of which this is a variant; -1: none */
    int best;     /* candidate; -1: there is none with a plan */
    bool started; /* its first layouts have been added */
    int in_vain;  /* layouts it continued from that do not fit although others do */
};

struct search {
    const struct sp_search *want;
    struct sp_found *best;
    int n, most, shown;
    struct line *line;
    int lines;
    size_t room;
    struct sp_grid *grid;
    int grids;
    bool any_fits; /* the parameters fit on some grid */
    struct sp_trials trials;
};

/* The limit of the largest device. */
static int64_t most_of_all(const struct sp_search *want)
{
    int64_t most = sp_search_limit(want);

    for (int k = 0; k < want->machine->kinds; k++) {
        int64_t has = sp_search_limit_of(want, want->machine->kind[k].machine);

        most = has > most ? has : most;
    }
    return most;
}

/* ---- the best -------------------------------------------------------------------------------- */

/* Rates within a thousandth are equal: no model is more precise. */
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
    if (a->balanced != b->balanced)
        return b->balanced;
    return a->slices < b->slices;
}

/* The result has one row for each schedule on a grid in a type: the best of its micro-batches,
 * chunks and slices. */
static bool is_alike(const struct sp_found *a, const struct sp_found *b)
{
    return !strcmp(a->schedule, b->schedule) && sp_found_same_grid(a, b) && a->dtype == b->dtype;
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

/* True if a candidate may be a result. */
static bool is_found(const struct search *s, const struct sp_candidate *c)
{
    return !c->err && (c->f.trains || s->want->simulated);
}

/* Ranks all candidates tried so far. */
static int rank(struct search *s)
{
    struct sp_trials *t = &s->trials;

    s->n = 0;
    if (t->lost)
        return sp_error(ENOMEM, "no memory to try %d layouts", t->n);
    for (int i = 0; i < s->lines; i++)
        s->line[i].best = -1;
    for (int i = 0; i < t->n; i++) {
        const struct sp_candidate *c = &t->candidate[i];
        struct line *line = &s->line[c->line];

        if (c->err == -ENOMEM)
            return sp_error(ENOMEM, "no memory to try %s on %d stages", c->f.schedule, c->f.stages);
        if (!is_found(s, c))
            continue;
        insert(s, &c->f);
        if (line->best < 0 || better(&c->f, &t->candidate[line->best].f))
            line->best = i;
    }
    return 0;
}

/* ---- proposals ------------------------------------------------------------------------------- */

static bool is_same(const struct sp_found *a, const struct sp_found *b)
{
    return is_alike(a, b) && a->zero == b->zero && a->batch == b->batch &&
           a->micro_batches == b->micro_batches && a->chunks == b->chunks &&
           a->slices == b->slices && a->vocabulary == b->vocabulary && a->balanced == b->balanced &&
           a->order == b->order;
}

/* The longest step of interest to a line. */
static double beat_ms(const struct search *s, int line)
{
    int best = s->line[line].best;
    double ms = INFINITY;

    if (best >= 0 && s->trials.candidate[best].f.fits)
        ms = LINE * s->trials.candidate[best].f.step_ms;
    if (s->n >= ROWS && s->best[ROWS - 1].fits && line > 0)
        ms = fmin(ms, s->best[ROWS - 1].step_ms);
    return ms;
}

struct proposal {
    struct search *s;
    int line;
    const struct sp_found *from; /* their neighbour; NULL: they begin the line */
    double from_bound_ms;
};

/* True if a layout is sure to take longer than `beat_ms`, or, on another grid than `from`, most
 * likely does. */
static bool is_too_long(const struct proposal *p, const struct sp_found *f, double beat_ms)
{
    const struct sp_found *from = p->from;
    double bound_ms, beyond;

    if (!isfinite(beat_ms))
        return false;
    bound_ms = sp_bound_step(p->s->want, f);
    if (bound_ms > beat_ms)
        return true;
    if (p->line == 0 || !from || !from->fits || sp_found_same_grid(from, f))
        return false;
    beyond = fmax(0, from->step_ms / p->from_bound_ms - 1);
    return bound_ms * (1 + SHRINKS * beyond) > from->step_ms;
}

/* Adds a layout to the trials, unless it is known or cannot be good. */
static void propose(void *arg, const struct sp_found *f)
{
    struct proposal *p = arg;
    struct search *s = p->s;
    struct sp_candidate c = {.f = *f, .line = p->line, .beat_ms = beat_ms(s, p->line)};

    if (f->stages == 1 && p->line > 0) /* nothing to schedule */
        return;
    if (f->micro_batches < 1 || f->micro_batches > SP_MAX_SIZE ||
        (int64_t)f->batch * s->want->seq > INT32_MAX)
        return;
    for (int i = 0; i < s->trials.n; i++)
        if (is_same(&s->trials.candidate[i].f, f))
            return;
    if (s->any_fits && sp_bound_memory(s->want, f) > most_of_all(s->want))
        return;
    if (is_too_long(p, f, c.beat_ms))
        return;
    c.f.whole = false;
    sp_trials_add(&s->trials, &c);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void add_line(struct search *s, const char *schedule, int of)
{
    if (!sp_grow(&s->line, (size_t)s->lines + 1, &s->room, sizeof *s->line)) {
        s->trials.lost = true;
        return;
    }
    s->line[s->lines] = (struct line){.of = of, .best = -1};
    snprintf(s->line[s->lines++].schedule, sizeof s->line->schedule, "%s", schedule);
}

/* Lists every schedule, then the variants that its options make. */
static void list_lines(struct search *s)
{
    const struct sp_schedule_def *def;
    char name[256];

    if (s->want->schedule) {
        add_line(s, s->want->schedule, -1);
        return;
    }
    add_line(s, PROBE, -1);
    for (int i = 0; (def = sp_schedule_at(i)); i++)
        if (sp_schedule_is_synchronous(def->name) && strcmp(def->name, PROBE))
            add_line(s, def->name, -1);
    for (int of = 0, bases = s->lines; of < bases; of++) {
        const char *at = sp_schedule_find(s->line[of].schedule)->variants;

        for (size_t n; at && *at; at += n + (at[n] == ' ')) {
            n = strcspn(at, " ");
            snprintf(name, sizeof name, "%s:%.*s", s->line[of].schedule, (int)(n < 128 ? n : 128),
                     at);
            add_line(s, name, of);
        }
    }
}

/* Begins on all grids, with the smallest possible micro-batches. */
static void start_anywhere(struct search *s, int line)
{
    struct proposal p = {.s = s, .line = line};

    for (int i = 0; i < s->grids; i++)
        for (int batch = 1; batch <= s->want->sequences; batch++) {
            int before = s->trials.n;

            if (s->want->batch)
                batch = s->want->batch;
            sp_moves_begin(s->want, s->line[line].schedule, &s->grid[i], batch, propose, &p);
            if (s->want->batch || s->trials.n > before || batch >= 8)
                break;
        }
    s->line[line].started = true;
}

/* The best candidate of a line, on `least` stages or more, that is like none of taken[n]; -1: none. */
static int best_but(const struct search *s, int line, int least, const int *taken, int n,
                    bool (*is_like)(const struct sp_found *a, const struct sp_found *b))
{
    const struct sp_candidate *all = s->trials.candidate;
    int best = -1;

    for (int i = 0; i < s->trials.n; i++) {
        bool out = all[i].line != line || all[i].f.stages < least || !is_found(s, &all[i]);

        for (int k = 0; k < n && !out; k++)
            out = is_like(&all[taken[k]].f, &all[i].f);
        if (!out && (best < 0 || better(&all[i].f, &all[best].f)))
            best = i;
    }
    return best;
}

static bool has_as_many_stages(const struct sp_found *a, const struct sp_found *b)
{
    return a->stages == b->stages;
}

/* Begins from the best layouts of another line, each with another number of stages, and on the most
 * stages possible. */
static void start_like(struct search *s, int line, int other)
{
    struct proposal p = {.s = s, .line = line};
    struct sp_found copy[STARTS];
    int from[STARTS], n = 0, longest = 0;

    for (; n < STARTS; n++) {
        from[n] = best_but(s, other, 2, from, n, has_as_many_stages);
        if (from[n] < 0)
            break;
        copy[n] = s->trials.candidate[from[n]].f;
    }
    for (int k = 0; k < n; k++) {
        const struct sp_found *f = &copy[k];
        const struct sp_grid grid = {f->stages, f->devices, f->context, f->data};

        sp_moves_begin(s->want, s->line[line].schedule, &grid, f->batch, propose, &p);
    }
    for (int i = 1; i < s->grids; i++)
        if (s->grid[i].stages > s->grid[longest].stages)
            longest = i;
    if (s->grids)
        sp_moves_begin(s->want, s->line[line].schedule, &s->grid[longest],
                       s->want->batch ? s->want->batch : 1, propose, &p);
    s->line[line].started = true;
}

/* The best candidate of a line that it has not continued from; -1: none. */
static int next_of(const struct search *s, int line)
{
    int best[BEAM];

    for (int n = 0; n < BEAM; n++) {
        best[n] = best_but(s, line, 1, best, n, sp_found_same_grid);
        if (best[n] < 0 || !s->trials.candidate[best[n]].expanded)
            return best[n];
    }
    return -1;
}

/* True if the neighbours of a layout may beat the best. */
static bool goes_on_from(struct search *s, int line, const struct sp_found *f)
{
    if (!s->best[0].fits)
        return true;
    return f->fits ? f->step_ms <= NEAR * s->best[0].step_ms : s->line[line].in_vain++ < BEAM;
}

/* Tries the proposals, then the neighbours of the best of each line, until no line has anything
 * new. 0 or -errno. */
static int follow_lines(struct search *s)
{
    int err;

    do {
        sp_trials_run(s->want, &s->trials, s->best, s->n);
        err = rank(s);
        for (int line = 0; !err && line < s->lines; line++) {
            struct proposal p = {.s = s, .line = line};

            for (int k = 0; k < BEAM && s->line[line].started; k++) {
                int i = next_of(s, line);
                struct sp_found f;

                if (i < 0)
                    break;
                s->trials.candidate[i].expanded = true;
                f = s->trials.candidate[i].f;
                if (!goes_on_from(s, line, &f))
                    continue;
                p.from = &f;
                p.from_bound_ms = sp_bound_step(s->want, &f);
                sp_moves_from(s->want, &f, !s->best[0].fits, propose, &p);
            }
        }
    } while (!err && !s->trials.stopped && s->trials.done < s->trials.n);
    return err;
}

/* True if a variant may beat the best. */
static bool is_worth_it(const struct search *s, const struct line *line)
{
    int base = s->line[line->of].best;
    const struct sp_found *f = base < 0 ? NULL : &s->trials.candidate[base].f;

    return !s->n || !s->best[0].fits ||
           (f && f->fits && f->step_ms < VARIANTS * s->best[0].step_ms);
}

static int follow_all(struct search *s)
{
    int err;

    start_anywhere(s, 0);
    err = follow_lines(s);
    for (int i = 1; !err && i < s->lines; i++)
        if (s->line[i].of < 0)
            start_like(s, i, 0);
    err = err ? err : follow_lines(s);
    for (int i = 1; !err && i < s->lines; i++)
        if (s->line[i].of >= 0 && is_worth_it(s, &s->line[i]))
            start_like(s, i, s->line[s->line[i].of].best >= 0 ? s->line[i].of : 0);
    return err ? err : follow_lines(s);
}

/* ---- whole steps ----------------------------------------------------------------------------- */

/* True if a layout will be shown but has not been predicted whole. */
static bool is_guessed(const struct search *s, const struct sp_found *f, const int *told, int n)
{
    const struct sp_found *recommended = sp_search_recommended(s->best, s->n);

    for (int i = 0; i < n && !f->whole; i++)
        if (is_same(&s->best[told[i]], f))
            return true;
    return recommended && !f->whole && is_same(recommended, f);
}

/* Predicts the layouts to be shown whole; others may then rank higher and take their place. A
 * search that was stopped predicts only the best. */
static int settle(struct search *s)
{
    struct sp_trials *all = &s->trials, again = {.book = all->book};
    bool stopped = all->stopped;
    int err = 0, *from = calloc((size_t)(all->n + s->shown) + 1, sizeof *from), *told;

    if (!from)
        return sp_error(ENOMEM, "no memory to try %d layouts", all->n);
    told = from + all->n;
    if (stopped)
        s->shown = 1;
    do {
        int n = sp_found_distinct(s->best, s->n, told, s->shown);

        again.n = again.done = 0;
        for (int i = 0; i < all->n; i++) {
            struct sp_candidate whole = all->candidate[i];

            if (whole.err || !is_guessed(s, &whole.f, told, n))
                continue;
            whole.f.whole = true;
            whole.beat_ms = INFINITY;
            from[again.n] = i;
            sp_trials_add(&again, &whole);
        }
        again.stopped = false;
        sp_trials_run(s->want, &again, s->best, s->n);
        for (int i = 0; i < again.n && !again.lost; i++)
            if (again.candidate[i].err != -EINTR)
                all->candidate[from[i]] = again.candidate[i];
        all->lost |= again.lost;
        stopped |= again.stopped;
        err = rank(s);
    } while (!err && again.n && !again.stopped);
    if (stopped && !err) { /* layouts that are not predicted whole are dropped */
        int n = 0;

        for (int i = 0; i < s->n; i++)
            if (s->best[i].whole)
                s->best[n++] = s->best[i];
        s->n = n;
    }
    sp_trials_destroy(&again);
    free(from);
    return err;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* True if the parameters fit on some grid; otherwise the search looks for the layout that needs
 * least. */
static bool any_fits(const struct search *s)
{
    for (int i = 0; i < s->grids; i++) {
        struct sp_found f = {.batch = 1, .dtype = s->want->dtype, .micro_batches = 1};

        sp_grid_take(s->want, &s->grid[i], &f);
        if (sp_bound_memory(s->want, &f) <= most_of_all(s->want))
            return true;
    }
    return false;
}

int sp_search(const struct sp_search *want, struct sp_found *best, int most, int shown)
{
    struct search s = {.want = want, .best = best, .most = most, .shown = shown};
    int err = 0;

    s.trials.book = sp_order_book_create();
    s.grid = sp_grids(want, &s.grids);
    if (!s.grid)
        err = sp_error(ENOMEM, "no memory for the grids of %d devices",
                       want->nodes * want->machine->devices_per_node);
    s.any_fits = !err && any_fits(&s);
    list_lines(&s);
    err = err ? err : follow_all(&s);
    err = err ? err : settle(&s);
    sp_order_book_destroy(s.trials.book);
    sp_trials_destroy(&s.trials);
    free(s.grid);
    free(s.line);
    return err ? err : s.n;
}
