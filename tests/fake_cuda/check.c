/*
 * The checker ends the run with status 1 on a race: two accesses to the same bytes, one of them a
 * write, neither known to be over when the other begins. It finds races whatever the timing was.
 *
 * "Known" is by vector clocks: each stream has one, and the host. A queued item knows what its
 * stream knows (all items queued there before, all that cudaStreamWaitEvent and the default stream
 * waited for) and what the host knows; this is settled when the item is queued. The host knows the
 * items it waited for, or asked about and was told are done.
 *
 * The threads of the host are one actor: the checker does not see how they synchronise, so it
 * assumes that each knows what the others know.
 */
#include "fake.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOST = 0 };

struct sp_access {
    struct sp_span span;
    bool write;
    int actor;
    uint64_t time; /* of the actor; over for actors whose clock has it */
    int device;
    unsigned long number;
    const char *what;
    cudaHostFn_t function; /* of a kernel without a name */
};

static struct sp_clock host;
static uint64_t times[SP_ACTORS];  /* the last of each */
static struct sp_accesses outside; /* of memory that is in no region */

/* ---- who knows what -------------------------------------------------------------------------- */

static void join(struct sp_clock *clock, const struct sp_clock *other)
{
    for (int i = 0; i < SP_ACTORS; i++)
        if (clock->at[i] < other->at[i])
            clock->at[i] = other->at[i];
}

void sp_check_queue(struct sp_clock *stream, int actor, struct sp_item *item)
{
    if (!sp_settings()->check)
        return;
    host.at[HOST] = times[HOST]++; /* the item does not know what the host does from now on */
    join(stream, &host);
    stream->at[actor] = ++times[actor];
    item->clock = malloc(sizeof *item->clock);
    if (!item->clock)
        sp_refuse("no host memory for a clock");
    *item->clock = *stream;
}

void sp_check_order(struct sp_clock *stream, const struct sp_item *earlier)
{
    if (earlier->clock)
        join(stream, earlier->clock);
}

void sp_check_seen(const struct sp_item *item)
{
    if (item->clock)
        join(&host, item->clock);
}

/* ---- accesses -------------------------------------------------------------------------------- */

/* True if a row of `s` overlaps [at, at + bytes). */
static bool row_meets(const struct sp_span *s, const char *at, size_t bytes)
{
    size_t row;

    if (s->at >= at + bytes || at >= s->at + sp_span_length(s))
        return false;
    if (at <= s->at)
        return true;
    row = (size_t)(at - s->at) / s->pitch;
    return (size_t)(at - s->at) - row * s->pitch < s->bytes ||
           (row + 1 < s->rows && s->at + (row + 1) * s->pitch < at + bytes);
}

/* True if an actor with this clock knows that the access is over; the host's threads are one
 * actor. */
static bool known(const struct sp_access *a, int actor, const struct sp_clock *clock)
{
    return a->time <= clock->at[a->actor] || (a->actor == HOST && actor == HOST);
}

static bool meet(const struct sp_span *a, const struct sp_span *b)
{
    if (a->at >= b->at + sp_span_length(b) || b->at >= a->at + sp_span_length(a))
        return false;
    for (size_t y = 0; y < a->rows; y++)
        if (row_meets(b, a->at + y * a->pitch, a->bytes))
            return true;
    return false;
}

/* True if `a` clearly covers all of `b`; false if that is not easily told. */
static bool covers(const struct sp_span *a, const struct sp_span *b)
{
    if (a->at == b->at && a->bytes == b->bytes && a->pitch == b->pitch && a->rows == b->rows)
        return true;
    return a->rows == 1 && b->at >= a->at && b->at + sp_span_length(b) <= a->at + a->bytes;
}

static void describe(char *line, size_t n, const struct sp_access *a)
{
    const char *what = a->what;
    Dl_info info;

    if (a->function && dladdr((void *)(uintptr_t)a->function, &info) && info.dli_sname)
        what = info.dli_sname;
    if (a->actor == HOST)
        snprintf(line, n, "%s by %s", a->write ? "written" : "read", what);
    else
        snprintf(line, n, "%s by %s (device %d, stream %d, item %lu)",
                 a->write ? "written" : "read", what, a->device, a->actor, a->number);
}

static void __attribute__((noreturn))
report(const struct sp_access *earlier, const struct sp_access *later)
{
    char first[200], second[200];
    const char *at = earlier->span.at > later->span.at ? earlier->span.at : later->span.at;

    describe(first, sizeof first, earlier);
    describe(second, sizeof second, later);
    fprintf(stderr, "fake cuda: race at %s:\n  %s\n  %s\n  and nothing orders them\n", sp_where(at),
            first, second);
    _exit(1);
}

/*
 * Drops accesses that nothing can conflict with any more: the host and all queued items know them
 * to be over.
 */
static void collect(struct sp_accesses *list)
{
    struct sp_clock floor = host;
    unsigned kept = 0;

    for (const struct CUstream_st *s = sp_streams; s; s = s->next)
        for (const struct sp_item *i = s->running ? s->running : s->first; i;
             i = i == s->running ? s->first : i->next)
            for (int k = 0; k < SP_ACTORS; k++)
                if (floor.at[k] > i->clock->at[k])
                    floor.at[k] = i->clock->at[k];
    for (unsigned k = 0; k < list->n; k++)
        if (list->list[k].time > floor.at[list->list[k].actor])
            list->list[kept++] = list->list[k];
    list->n = kept;
    list->collect_at = 2 * kept + 64;
}

/* A new access replaces those whose conflicts it all shares. */
static void add(struct sp_accesses *list, const struct sp_access *a, const struct sp_clock *clock)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < list->n; i++) {
        const struct sp_access *o = &list->list[i];

        if (!known(o, a->actor, clock) || (o->write && !a->write) || !covers(&a->span, &o->span))
            list->list[kept++] = *o;
    }
    list->n = kept;
    if (list->n > list->collect_at)
        collect(list);
    if (list->n == list->room) {
        list->room = list->room ? 2 * list->room : 8;
        list->list = realloc(list->list, list->room * sizeof *list->list);
        if (!list->list)
            sp_refuse("no host memory for accesses");
    }
    list->list[list->n++] = *a;
}

void sp_check_access(const struct sp_item *by, const struct sp_span *span, bool write,
                     const char *what)
{
    const struct sp_clock *clock = by ? by->clock : &host;
    struct sp_access a = {.span = *span, .write = write, .what = what};
    struct sp_accesses *list;
    struct sp_region *r;

    if (!sp_settings()->check)
        return;
    r = sp_region_of(span->at, sp_span_length(span));
    list = r ? &r->accesses : &outside;
    a.actor = by ? by->stream : HOST;
    a.time = by ? clock->at[a.actor] : times[HOST];
    if (by) {
        a.device = by->device;
        a.number = by->number;
        if (by == sp_kernel && !strcmp(what, "kernel"))
            a.function = by->kernel.function;
    }
    for (unsigned i = 0; i < list->n; i++) {
        const struct sp_access *o = &list->list[i];

        if ((write || o->write) && !known(o, a.actor, clock) && meet(&o->span, span))
            report(o, &a);
    }
    add(list, &a, clock);
}

void sp_check_forget(struct sp_accesses *accesses)
{
    free(accesses->list);
    memset(accesses, 0, sizeof *accesses);
}
