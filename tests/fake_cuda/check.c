/*
 * The checker: two accesses to the same bytes, one of them a write, of which neither is known to be
 * over when the other begins, end the run with status 1, whatever the timing was.
 *
 * "Known" are vector clocks, of which each stream has one, and the host. An item knows what its
 * stream knows (all queued there before, what cudaStreamWaitEvent and the default stream waited
 * for) and what the host knows then; all of that is settled when an item is queued. The host knows
 * what it waited for, or asked for and was told that it is over.
 *
 * The threads of the host are one actor: how they tell each other what they know is not seen here,
 * so they are taken to tell everything.
 */
#include "fake.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOST = 0 };

struct sp_access {
    struct sp_span span;
    bool write;
    int actor;
    uint64_t time; /* of the actor: over for those whose clock has it */
    int device;
    unsigned long number;
    const char *what;
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
    if (!sp_fake_cudart.check)
        return;
    host.at[HOST] = times[HOST]++; /* what the host does from now on, the item does not know */
    join(stream, &host);
    stream->at[actor] = ++times[actor];
    item->clock = sp_new(sizeof *item->clock);
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

/* True if an access is over for who has this clock; the host's threads are one. */
static bool known(const struct sp_access *a, int actor, const struct sp_clock *clock)
{
    return a->time <= clock->at[a->actor] || (a->actor == HOST && actor == HOST);
}

static bool meet(const struct sp_span *a, const struct sp_span *b)
{
    return a->at < b->at + b->bytes && b->at < a->at + a->bytes;
}

/* True if all of `b` is in `a`. */
static bool covers(const struct sp_span *a, const struct sp_span *b)
{
    return b->at >= a->at && b->at + b->bytes <= a->at + a->bytes;
}

static void describe(char *line, size_t n, const struct sp_access *a)
{
    if (a->actor == HOST)
        snprintf(line, n, "%s by %s", a->write ? "written" : "read", a->what);
    else
        snprintf(line, n, "%s by %s (device %d, stream %d, item %lu)",
                 a->write ? "written" : "read", a->what, a->device, a->actor, a->number);
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
 * Drops what nobody can conflict with any more: what the host knows, and all that is queued knew
 * when it was queued.
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

/* An access takes the place of those that conflict with nothing that it does not conflict with. */
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

void sp_check_access(const struct sp_item *by, struct sp_span span, bool write, const char *what)
{
    const struct sp_clock *clock = by ? by->clock : &host;
    struct sp_access a = {.span = span, .write = write, .what = what};
    struct sp_accesses *list;
    struct sp_region *r;

    if (!sp_fake_cudart.check)
        return;
    r = sp_region_of(span.at, span.bytes);
    list = r ? &r->accesses : &outside;
    a.actor = by ? by->stream : HOST;
    a.time = by ? clock->at[a.actor] : times[HOST];
    if (by) {
        a.device = by->device;
        a.number = by->number;
    }
    for (unsigned i = 0; i < list->n; i++) {
        const struct sp_access *o = &list->list[i];

        if ((write || o->write) && !known(o, a.actor, clock) && meet(&o->span, &span))
            report(o, &a);
    }
    add(list, &a, clock);
}

void sp_check_forget(struct sp_accesses *accesses)
{
    free(accesses->list);
    memset(accesses, 0, sizeof *accesses);
}
