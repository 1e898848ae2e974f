#include "graphs/count_records.h"
#include "sinks/count.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

enum pool { LOCAL, BOUNDARY, POOLS };

/* One size of a pool: how many more tensors were taken than given back, at the end and at the
 * highest. A pool with slack gets one entry per tensor. */
struct sp_record_change {
    enum pool pool;
    int shelf, taken, most;
};

/* The effect of an action on one stage. */
struct sp_record_part {
    int stage, next;    /* `next` part of the record; -1: none */
    int first, n;       /* changes */
    int64_t live, most; /* change of stashed bytes, at the end and at the highest */
    int64_t used;       /* change of the bytes of buffers in use, at the end */
    int64_t beside;     /* change of those that are not stashed, at the highest */
    int64_t sent;       /* bytes of messages */
};

struct sp_record {
    int first, last; /* parts; -1: none */
    bool known;
};

void *sp_count_grow(void *array, int n, int *room, size_t each)
{
    if (n < *room)
        return array;
    *room = *room ? 2 * *room : 256;
    array = realloc(array, (size_t)*room * each);
    SP_NEED(array, "no memory to count a step");
    return array;
}

int sp_recorder_add(struct sp_recorder *r)
{
    r->record = sp_count_grow(r->record, r->records, &r->room[0], sizeof *r->record);
    r->record[r->records] = (struct sp_record){.first = -1, .last = -1};
    return r->records++;
}

void sp_recorder_know(struct sp_recorder *r, int record)
{
    r->record[record].known = true;
}

/* ---- recorded -------------------------------------------------------------------------------- */

static struct sp_pool *pool_of(const struct sp_stage *st, enum pool pool)
{
    return pool == LOCAL ? st->local : st->boundary;
}

/* Notes that a tensor was taken or given back; in a pool with slack each gets its own entry. */
static void note(struct sp_recorder *r, enum pool pool, int shelf, bool taken)
{
    struct sp_record_part *p = r->now;
    struct sp_record_change *c, *end;
    bool slack = pool == BOUNDARY;
    int more = taken ? 1 : -1;

    if (!p)
        return;
    c = r->change + p->first;
    end = c + p->n;
    while (!slack && c < end && (c->pool != pool || c->shelf != shelf))
        c++;
    if (slack || c == end) {
        r->change = sp_count_grow(r->change, r->changes, &r->room[2], sizeof *r->change);
        c = &r->change[r->changes++];
        *c = (struct sp_record_change){.pool = pool, .shelf = shelf};
        p->n++;
    }
    c->taken += more;
    c->most = c->taken > c->most ? c->taken : c->most;
    r->used[p->stage] +=
        more * (int64_t)sp_pool_shelf_bytes(pool_of(r->graph[p->stage].stages, pool), shelf);
}

static void note_local(void *arg, int shelf, bool taken)
{
    note(arg, LOCAL, shelf, taken);
}

static void note_boundary(void *arg, int shelf, bool taken)
{
    note(arg, BOUNDARY, shelf, taken);
}

static const struct sp_meter *meter_of(const struct sp_recorder *r, int stage)
{
    struct sp_graph *g = &r->graph[stage];

    return sp_stage_meter(g, g->stages);
}

static void note_task(void *arg)
{
    struct sp_recorder *r = arg;
    struct sp_record_part *p = r->now;
    int64_t beside;

    if (!p)
        return;
    beside = r->used[p->stage] - meter_of(r, p->stage)->live_bytes;
    p->beside = beside > p->beside ? beside : p->beside;
}

void sp_recorder_begin(struct sp_recorder *r, int stage)
{
    struct sp_graph *g = &r->graph[stage];
    struct sp_meter *m = sp_stage_meter(g, g->stages);

    r->part = sp_count_grow(r->part, r->parts, &r->room[1], sizeof *r->part);
    r->now = &r->part[r->parts];
    *r->now = (struct sp_record_part){.stage = stage,
                                      .next = -1,
                                      .first = r->changes,
                                      .live = m->live_bytes,
                                      .used = r->used[stage],
                                      .beside = r->used[stage] - m->live_bytes,
                                      .sent = (int64_t)g->stages->bytes_sent[g->turn]};
    m->peak_bytes = m->live_bytes;
}

static bool is_same(const struct sp_recorder *r, const struct sp_record_part *p,
                    const struct sp_record_part *q)
{
    return p->n == q->n && p->live == q->live && p->most == q->most && p->sent == q->sent &&
           p->used == q->used && p->beside == q->beside &&
           !memcmp(r->change + p->first, r->change + q->first, (size_t)p->n * sizeof *r->change);
}

/* Compares what a stage did with its record. */
static bool is_known(const struct sp_recorder *r, const struct sp_record *record,
                     const struct sp_record_part *p)
{
    static const struct sp_record_part nothing;
    int k = record->first;

    while (k >= 0 && r->part[k].stage != p->stage)
        k = r->part[k].next;
    return is_same(r, k >= 0 ? &r->part[k] : &nothing, p);
}

void sp_recorder_end(struct sp_recorder *r, int record)
{
    struct sp_record *to = &r->record[record];
    struct sp_record_part *p = r->now;
    struct sp_graph *g = &r->graph[p->stage];
    const struct sp_meter *m = sp_stage_meter(g, g->stages);

    p->beside -= p->used - p->live;
    p->used = r->used[p->stage] - p->used;
    p->most = m->peak_bytes - p->live;
    p->live = m->live_bytes - p->live;
    p->sent = (int64_t)g->stages->bytes_sent[g->turn] - p->sent;
    r->now = NULL;
    if (to->known) {
        r->differs |= !is_known(r, to, p);
        r->changes = p->first;
        return;
    }
    if (!p->n && !p->live && !p->most && !p->sent)
        return;
    if (to->last < 0)
        to->first = r->parts;
    else
        r->part[to->last].next = r->parts;
    to->last = r->parts++;
}

void sp_recorder_start(struct sp_recorder *r, struct sp_graph *graph, int stages)
{
    *r = (struct sp_recorder){.graph = graph, .stages = stages};
    r->used = calloc((size_t)stages, sizeof *r->used);
    SP_NEED(r->used, "no memory to count a step");
    for (int s = 0; s < stages; s++) {
        sp_pool_watch(graph[s].stages->local, note_local, r);
        sp_pool_watch(graph[s].stages->boundary, note_boundary, r);
        sp_count_watch(graph[s].cfg.sink, note_task, r);
    }
}

void sp_recorder_stop(struct sp_recorder *r)
{
    free(r->record);
    free(r->part);
    free(r->change);
    free(r->used);
}

/* ---- played ---------------------------------------------------------------------------------- */

/* The tensors of one size. */
struct shelf {
    int made, idle;
};

struct played {
    struct shelf *shelf[POOLS];
    int slack[POOLS];
    int64_t live, peak, sent;
    int64_t used, beside;
    int64_t taken; /* tensors taken and not given back */
};

static void play_part(const struct sp_recorder *r, const struct sp_record_part *p,
                      struct played *of)
{
    struct played *s = &of[p->stage];

    for (const struct sp_record_change *c = r->change + p->first; c < r->change + p->first + p->n;
         c++) {
        struct shelf *at = &s->shelf[c->pool][c->shelf];
        int more = c->most + s->slack[c->pool] - at->idle; /* missing tensors */

        if (c->most > 0 && more > 0) {
            more = more < c->most ? more : c->most;
            at->made += more;
            at->idle += more;
        }
        at->idle -= c->taken;
        s->taken += c->taken;
    }
    s->peak = s->live + p->most > s->peak ? s->live + p->most : s->peak;
    if (s->used - s->live + p->beside > s->beside)
        s->beside = s->used - s->live + p->beside;
    s->used += p->used;
    s->live += p->live;
    s->sent += p->sent;
}

static void play_step(const struct sp_recorder *r, const int *step, int n, struct played *of)
{
    for (int s = 0; s < r->stages; s++)
        of[s].taken = of[s].sent = 0;
    for (int i = 0; i < n; i++)
        for (int p = r->record[step[i]].first; p >= 0; p = r->part[p].next)
            play_part(r, &r->part[p], of);
}

bool sp_recorder_play(const struct sp_recorder *r, const int *step, int n, struct sp_count *count)
{
    bool stay = false;
    struct played *of = calloc((size_t)r->stages, sizeof *of);

    SP_NEED(of, "no memory to count a step");
    for (int s = 0; s < r->stages; s++)
        for (int pool = 0; pool < POOLS; pool++) {
            struct sp_pool *p = pool_of(r->graph[s].stages, (enum pool)pool);

            of[s].shelf[pool] = calloc((size_t)sp_pool_shelves(p) + 1, sizeof(struct shelf));
            of[s].slack[pool] = sp_pool_slack(p);
            SP_NEED(of[s].shelf[pool], "no memory to count a step");
        }
    for (int k = 0; k < SP_COUNT_STEADY; k++)
        play_step(r, step, n, of);
    for (int s = 0; s < r->stages; s++) {
        const struct sp_stage *st = r->graph[s].stages;

        count[s] = sp_count_of_stage(&r->graph[s], st);
        stay |= of[s].taken != 0;
        count[s].buffers = (int64_t)st->gathered_bytes;
        count[s].sent = of[s].sent;
        count[s].stashed = of[s].peak;
        count[s].beside = of[s].beside + (int64_t)st->gathered_bytes;
        for (int pool = 0; pool < POOLS; pool++) {
            const struct sp_pool *p = pool_of(st, (enum pool)pool);

            for (int i = 0; i < sp_pool_shelves(p); i++)
                count[s].buffers += of[s].shelf[pool][i].made * (int64_t)sp_pool_shelf_bytes(p, i);
            free(of[s].shelf[pool]);
        }
    }
    free(of);
    return !stay;
}
