#include "plan/search/moves.h"
#include "plan/search/bounds.h"
#include "policies/registry.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many numbers of slices are tried in a range. */
enum { FEW_TRIES = 3, TRIES = 8, MANY_TRIES = 24 };

/* The most chunks of a stage that are tried: more would halve again what is left of a bubble. */
enum { MOST_CHUNKS = 4 };
/* The most slices that only alternate so that messages overlap: more gain nothing. */
enum { MOST_TURNS = 4 };
/* The least tokens of a slice if only more slices could fit into memory. */
enum { SMALL_TOKENS = 32 };
/* The most sequences of a micro-batch. */
enum { MOST_BATCH = 8 };
/* Layers are dealt out by time only if that may shorten the slowest stage to so much of its
 * time. */
static const double WORTH = 0.98;

struct moves {
    const struct sp_search *want;
    bool small; /* also slices that only save memory */
    sp_move_fn fn;
    void *arg;
};

/* ---- slices ---------------------------------------------------------------------------------- */

static bool shares(const char *schedule)
{
    return sp_schedule_takes_slices(schedule) && sp_schedule_flag(schedule, "multiplex");
}

/* Sets the range of numbers of slices; `small`: including numbers that only save memory. */
static void range_of(const struct sp_search *want, const struct sp_found *f, bool small, int *least,
                     int *most)
{
    bool shared = shares(f->schedule);
    int p = f->stages, room = shared ? SP_MAX_SLICES - (p - 1) * (p - 1) : SP_MAX_SLICES;

    *least = (int)ceil((double)want->seq / SP_TOKENS_MOST);
    *most = want->seq / SP_TOKENS_LEAST;
    *most = *most > p ? *most : p;
    *most = *most > *least ? *most : *least;
    if (small)
        *most = *most > want->seq / SMALL_TOKENS ? *most : want->seq / SMALL_TOKENS;
    *most = *most < want->seq ? *most : want->seq;
    *most = *most < room ? *most : room;
    *least = *least < *most ? *least : *most;
    if (shared) { /* the condition of policies/families/multiplexed */
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

/* True if stages can share so many slices. */
static bool can_be(const struct sp_search *want, const struct sp_found *f, int slices)
{
    int p = f->stages;

    return !shares(f->schedule) ||
           (slices >= 2 && slices >= p - 1 && slices + (p - 1) * (p - 1) <= SP_MAX_SLICES &&
            want->seq / slices >= SP_TOKENS_OF_PART * p);
}

/* Lists the numbers of slices to try for a schedule, ascending, into number[MANY_TRIES + 1]: all of
 * a range, or some in equal ratios; 1 if it has whole sequences. Returns how many. */
static int list_slices(const struct sp_search *want, const struct sp_found *f, bool small,
                       int *number)
{
    int tries = want->schedule        ? MANY_TRIES
                : shares(f->schedule) ? FEW_TRIES /* its plans are large */
                                      : TRIES;
    bool wants = sp_schedule_wants_slices(f->schedule);
    bool takes = wants || (sp_schedule_takes_slices(f->schedule) && !strstr(f->schedule, "fold="));
    int low, high, n = 0, last = 0;

    if (!wants && want->slices <= 1)
        number[n++] = last = 1;
    if (!takes)
        return n;
    range_of(want, f, small, &low, &high);
    for (int i = 0; i < tries; i++) {
        int slices = high - low < tries
                         ? low + i
                         : (int)lround(low * pow((double)high / low, (double)i / (tries - 1)));

        if (slices > high || slices <= last || !can_be(want, f, slices))
            continue;
        last = number[n++] = slices;
    }
    return n;
}

/* ---- layouts --------------------------------------------------------------------------------- */

static void tell(const struct moves *m, struct sp_found f)
{
    f.micro_batches = m->want->sequences / f.data / f.batch;
    m->fn(m->arg, &f);
}

static bool is_batch(const struct sp_search *want, int data, int batch)
{
    if (want->batch)
        return batch == want->batch;
    return batch >= 1 && batch <= MOST_BATCH && want->sequences / data % batch == 0;
}

/* The element of `number[n]` that is nearest to `wanted`. */
static int nearest(const int *number, int n, int wanted)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if (abs(number[i] - wanted) < abs(number[best] - wanted))
            best = i;
    return number[best];
}

static bool may_share_vocabulary(const struct sp_found *f)
{
    return f->stages > 1 && sp_schedule_shares_vocabulary(f->schedule);
}

static bool may_balance(const struct sp_search *want, const struct sp_found *f)
{
    return want->balanced != SP_SEARCH_WITHOUT && f->stages > 1 &&
           sp_schedule_deals_layers(f->schedule);
}

/* ---- where a search begins ------------------------------------------------------------------- */

void sp_moves_begin(const struct sp_search *want, const char *schedule, const struct sp_grid *grid,
                    int batch, sp_move_fn fn, void *arg)
{
    const struct moves m = {.want = want, .fn = fn, .arg = arg};
    const struct sp_schedule_def *def = sp_schedule_find(schedule);
    struct sp_found f = {.batch = batch,
                         .dtype = want->dtype,
                         .chunks = want->chunks ? want->chunks
                                   : def        ? def->default_chunks
                                                : 0};
    int number[MANY_TRIES + 1], n, stages;

    snprintf(f.schedule, sizeof f.schedule, "%s", schedule);
    sp_grid_take(want, grid, &f);
    f.vocabulary = want->vocabulary == SP_SEARCH_WITH;
    f.balanced =
        (want->balanced == SP_SEARCH_WITH || want->machine->kinds > 1) && may_balance(want, &f);
    n = list_slices(want, &f, false, number);
    if (!n || !is_batch(want, grid->data, batch) || (f.vocabulary && !may_share_vocabulary(&f)))
        return;
    stages = nearest(number, n, f.stages);
    f.slices = number[0];
    tell(&m, f);
    f.slices = stages;
    if (stages != number[0] && number[0] > 1)
        tell(&m, f);
}

/* ---- neighbours ------------------------------------------------------------------------------ */

static void move_batch(const struct moves *m, struct sp_found f)
{
    int batch = f.batch;

    f.batch = 2 * batch;
    if (is_batch(m->want, f.data, f.batch))
        tell(m, f);
    f.batch = batch / 2;
    if (batch % 2 == 0 && is_batch(m->want, f.data, f.batch))
        tell(m, f);
}

/* Moves to any number of slices if it decides the bubble, which has several minima; otherwise to
 * the next smaller and the next larger. */
static void move_slices(const struct moves *m, struct sp_found f)
{
    int number[MANY_TRIES + 1], n = list_slices(m->want, &f, m->small, number), now = f.slices;
    bool any = sp_schedule_wants_slices(f.schedule);

    for (int i = 0; i < n; i++) {
        bool next = (i + 1 < n && number[i + 1] == now) || (i > 0 && number[i - 1] == now);

        f.slices = number[i];
        if (number[i] != now && (any || next))
            tell(m, f);
    }
}

/* The schedule refuses numbers of chunks that it does not take. */
static void move_chunks(const struct moves *m, struct sp_found f)
{
    const struct sp_schedule_def *def = sp_schedule_find(f.schedule);
    int step = def ? def->default_chunks : 0, chunks = f.chunks;

    if (step < 1 || m->want->chunks || m->want->schedule || f.slices > 1)
        return;
    f.chunks = chunks + step;
    if (f.chunks <= MOST_CHUNKS)
        tell(m, f);
    f.chunks = chunks - step;
    if (f.chunks >= step)
        tell(m, f);
}

static void move_vocabulary(const struct moves *m, struct sp_found f)
{
    f.vocabulary = !f.vocabulary;
    if (m->want->vocabulary == SP_SEARCH_EITHER && (!f.vocabulary || may_share_vocabulary(&f)))
        tell(m, f);
}

static void move_layers(const struct moves *m, struct sp_found f)
{
    f.balanced = !f.balanced;
    if (m->want->balanced == SP_SEARCH_EITHER &&
        (!f.balanced || (may_balance(m->want, &f) && sp_bound_balanced(m->want, &f) < WORTH)))
        tell(m, f);
}

/* Moves to all other orders of the kinds of nodes. */
static void move_order(const struct moves *m, struct sp_found f)
{
    int now = f.order;

    for (f.order = 0; f.order < m->want->orders; f.order++)
        if (f.order != now)
            tell(m, f);
}

static void move_dtype(const struct moves *m, struct sp_found f)
{
    f.dtype = f.dtype == SP_F32 ? SP_BF16 : SP_F32;
    if (m->want->any_dtype)
        tell(m, f);
}

static void move_zero(const struct moves *m, struct sp_found f)
{
    f.zero = !f.zero;
    if (m->want->zero == SP_SEARCH_ZERO && f.context * f.data > 1)
        tell(m, f);
}

/* Moves to another grid, keeping slices and other dependent sizes as near as possible. */
static void move_to(const struct moves *m, struct sp_found f, const struct sp_grid *grid)
{
    int number[MANY_TRIES + 1], n;

    if (!sp_grid_is_one(m->want, grid) || !is_batch(m->want, grid->data, f.batch))
        return;
    sp_grid_take(m->want, grid, &f);
    f.vocabulary = f.vocabulary && may_share_vocabulary(&f);
    f.balanced = f.balanced && may_balance(m->want, &f);
    if (m->want->vocabulary == SP_SEARCH_WITH && !f.vocabulary)
        return;
    n = list_slices(m->want, &f, m->small, number);
    if (!n)
        return;
    f.slices = nearest(number, n, f.slices);
    tell(m, f);
}

/* Moves a prime factor of one of the four sizes to another one. */
static void move_grid(const struct moves *m, const struct sp_found *f)
{
    static const int primes[] = {2, 3, 5, 7};
    const int now[] = {f->stages, f->devices, f->context, f->data};

    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++)
            for (int k = 0; k < 4; k++) {
                int size[] = {now[0], now[1], now[2], now[3]};

                if (from == to || size[from] % primes[k])
                    continue;
                size[from] /= primes[k];
                size[to] *= primes[k];
                move_to(m, *f, &(struct sp_grid){size[0], size[1], size[2], size[3]});
            }
}

void sp_moves_from(const struct sp_search *want, const struct sp_found *f, bool small,
                   sp_move_fn fn, void *arg)
{
    const struct moves m = {.want = want, .small = small, .fn = fn, .arg = arg};

    move_batch(&m, *f);
    move_slices(&m, *f);
    move_chunks(&m, *f);
    move_vocabulary(&m, *f);
    move_layers(&m, *f);
    move_order(&m, *f);
    move_zero(&m, *f);
    move_dtype(&m, *f);
    move_grid(&m, f);
}
