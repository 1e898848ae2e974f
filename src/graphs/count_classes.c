/*
 * The count of a plan by classes, with a process a stage. Actions that differ in their micro-batch alone take, give back and
 * send the same. So the graphs of all stages do, in the order of submission, what belongs to a few micro-batches in which every
 * class of actions occurs, and what each did to the pools is recorded. Then all actions of a step are played with these
 * records, some times over.
 */
#include "graphs/count.h"
#include "graphs/create.h"
#include "sinks/count.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

enum pool { LOCAL, BOUNDARY, POOLS };

/* A size of a pool: how many tensors more were taken than given back, in the end and at the highest. Of a pool with slack
 * each by itself. */
struct change {
    enum pool pool;
    int shelf, taken, most;
};

/* What an action did on its stage. */
struct part {
    int stage, next;    /* of the record; -1: none */
    int first, n;       /* changes */
    int64_t live, most; /* stashed bytes more, in the end and at the highest */
    int64_t sent;       /* bytes of messages */
};

struct record {
    uint64_t key;    /* of its classes */
    int first, last; /* parts; -1: none */
    bool known;
};

/* The records of what comes before the first action of a step and after the last one. */
struct edges {
    int first, last;
};

struct walk {
    struct sp_lowering *lowering;
    int stages;
    struct sp_sink *sink;   /* [stages] */
    struct sp_graph *graph; /* [stages] */
    bool *sampled;          /* [micro-batches] */

    struct record *record;
    struct part *part;
    struct change *change;
    int *action; /* records of all actions, in the order of submission */
    int records, parts, changes, actions, room[4];
    int *table; /* [mask + 1] records by key, -1: none */
    unsigned mask;

    int unit, n;         /* ops of the unit that is lowered: place in the order, how many */
    bool weights_travel; /* from stage to stage: ops have them only if those before have run */
    int at;              /* the action under way, in the order */
    struct part *now;    /* what it does; NULL: nobody asks */
};

static void *grow(void *array, int n, int *room, size_t each)
{
    if (n < *room)
        return array;
    *room = *room ? 2 * *room : 256;
    array = realloc(array, (size_t)*room * each);
    SP_NEED(array, "no memory to count a step");
    return array;
}

/* ---- micro-batches that are expanded ----------------------------------------------------------- */

static int add_record(struct walk *w, uint64_t key)
{
    w->record = grow(w->record, w->records, &w->room[0], sizeof *w->record);
    w->record[w->records] = (struct record){.key = key, .first = -1, .last = -1};
    return w->records++;
}

static uint64_t mix(uint64_t hash, uint64_t more)
{
    hash = (hash ^ more) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static bool runs_op(const struct sp_action *a)
{
    return a->kind == SP_ACTION_RUN && a->index >= 0;
}

/* The micro-batch that an action belongs to; -1: none. */
static int mb_of(const struct sp_action *a)
{
    return runs_op(a) ? a->op.mb : a->tensor.mb;
}

/* The class of the op of a micro-batch in the unit that is lowered, by which messages that belong to it differ. */
static uint64_t unit_class(const struct walk *w, int mb)
{
    const struct sp_lowering *l = w->lowering;

    for (int k = w->unit; k < w->unit + w->n; k++)
        if (sp_lowering_op(l, k)->mb == mb)
            return (uint64_t)sp_op_classes_of(&l->plan->classes,
                                              l->order[k].stage)[l->order[k].index] +
                   1;
    return 0;
}

static uint64_t key_of(const struct walk *w, const struct sp_action *a)
{
    const struct sp_tensor_id *t = &a->tensor;
    uint64_t key = mix(0xcbf29ce484222325u, (uint64_t)a->kind << 32 | (uint64_t)a->stage);

    if (runs_op(a)) {
        const int *of = sp_op_classes_of(&w->lowering->plan->classes, a->stage);

        key = mix(key, (uint64_t)of[a->index] << 32 | (uint64_t)a->leg);
        return a->op.overlap ? mix(key, (uint64_t)of[a->index + 1]) : key;
    }
    key = mix(key, (uint64_t)t->kind << 32 | (uint64_t)t->block << 16 | (uint64_t)a->home);
    key = mix(key, (uint64_t)t->slice << 32 | (uint64_t)(unsigned)t->at);
    return mix(mix(key, (uint64_t)(unsigned)a->peer), unit_class(w, t->mb));
}

static int *place_of(struct walk *w, uint64_t key)
{
    unsigned at = (unsigned)(key ^ key >> 32) & w->mask;

    while (w->table[at] >= 0 && w->record[w->table[at]].key != key)
        at = (at + 1) & w->mask;
    return &w->table[at];
}

/* Twice as large, before it is half full. */
static void grow_table(struct walk *w)
{
    if (2 * (unsigned)w->records <= w->mask)
        return;
    w->mask = 2 * w->mask + 1;
    free(w->table);
    w->table = malloc(((size_t)w->mask + 1) * sizeof *w->table);
    SP_NEED(w->table, "no memory to count a step");
    memset(w->table, -1, ((size_t)w->mask + 1) * sizeof *w->table);
    for (int i = 0; i < w->records; i++)
        if (w->record[i].key)
            *place_of(w, w->record[i].key) = i;
}

/* What belongs to no micro-batch is of no class: it happens once. */
static int record_of(struct walk *w, const struct sp_action *a)
{
    uint64_t key;
    int *at;

    if (mb_of(a) < 0)
        return add_record(w, 0);
    grow_table(w);
    key = key_of(w, a);
    at = place_of(w, key);
    if (*at < 0) {
        *at = add_record(w, key);
        w->sampled[mb_of(a)] = true;
    }
    return *at;
}

static void look(void *arg, const struct sp_action *a)
{
    struct walk *w = arg;

    if (a->kind == SP_ACTION_EXCHANGE)
        return;
    w->action = grow(w->action, w->actions, &w->room[3], sizeof *w->action);
    w->action[w->actions++] = record_of(w, a);
    w->weights_travel |= a->kind == SP_ACTION_SEND &&
                         (a->tensor.mb < 0 ||
                          (a->tensor.kind >= SP_TENSOR_WOUT && a->tensor.kind <= SP_TENSOR_BLOCK));
}

static void look_at_step(struct walk *w)
{
    struct sp_lowering *l = w->lowering;

    SP_NEED(!sp_lower_begin(l, look, w), "no memory to count a step");
    for (w->unit = 0; w->unit < l->n; w->unit += w->n) {
        w->n = sp_lowering_unit(l, w->unit);
        sp_lower_ops(l, w->unit);
    }
    w->n = 0;
    sp_lower_end(l);
}

/* ---- recorded ---------------------------------------------------------------------------------- */

static void note(struct walk *w, enum pool pool, int shelf, bool taken, bool slack)
{
    struct part *p = w->now;
    struct change *c = w->change + p->first, *end = c + p->n;

    while (!slack && c < end && (c->pool != pool || c->shelf != shelf))
        c++;
    if (slack || c == end) {
        w->change = grow(w->change, w->changes, &w->room[2], sizeof *w->change);
        c = &w->change[w->changes++];
        *c = (struct change){.pool = pool, .shelf = shelf};
        p->n++;
    }
    c->taken += taken ? 1 : -1;
    c->most = c->taken > c->most ? c->taken : c->most;
}

static void note_local(void *arg, int shelf, bool taken)
{
    if (((struct walk *)arg)->now)
        note(arg, LOCAL, shelf, taken, false);
}

static void note_boundary(void *arg, int shelf, bool taken)
{
    if (((struct walk *)arg)->now)
        note(arg, BOUNDARY, shelf, taken, true);
}

/* From here on a stage does what is to be recorded; and, where it has done something, that goes to a record. */
static void begin_part(struct walk *w, int stage)
{
    struct sp_graph *g = &w->graph[stage];
    struct sp_meter *m = sp_stage_meter(g, g->stages);

    w->part = grow(w->part, w->parts, &w->room[1], sizeof *w->part);
    w->now = &w->part[w->parts];
    *w->now = (struct part){.stage = stage,
                            .next = -1,
                            .first = w->changes,
                            .live = m->live_bytes,
                            .sent = (int64_t)g->stages->bytes_sent[g->turn]};
    m->peak_bytes = m->live_bytes;
}

static void end_part(struct walk *w, struct record *to)
{
    struct part *p = w->now;
    struct sp_graph *g = &w->graph[p->stage];
    const struct sp_meter *m = sp_stage_meter(g, g->stages);

    p->most = m->peak_bytes - p->live;
    p->live = m->live_bytes - p->live;
    p->sent = (int64_t)g->stages->bytes_sent[g->turn] - p->sent;
    w->now = NULL;
    if (!p->n && !p->live && !p->most && !p->sent)
        return;
    if (to->last < 0)
        to->first = w->parts;
    else
        w->part[to->last].next = w->parts;
    to->last = w->parts++;
}

static void act(void *arg, const struct sp_action *a)
{
    struct walk *w = arg;
    bool all = a->kind == SP_ACTION_GATHER || a->kind == SP_ACTION_SCATTER;
    int mb = mb_of(a);
    struct record *to;

    if (a->kind == SP_ACTION_EXCHANGE)
        return;
    to = &w->record[w->action[w->at++]];
    if (mb >= 0 && !w->sampled[mb])
        return;
    for (int s = all ? 0 : a->stage; s < (all ? w->stages : a->stage + 1); s++) {
        if (!to->known)
            begin_part(w, s);
        sp_step_act(&w->graph[s], a);
        if (!to->known)
            end_part(w, to);
    }
    to->known = true;
}

/* What all stages do outside the actions; returns the record. */
static int each_stage(struct walk *w, void (*f)(struct sp_graph *g))
{
    int record = add_record(w, 0);

    for (int s = 0; s < w->stages; s++) {
        begin_part(w, s);
        f(&w->graph[s]);
        end_part(w, &w->record[record]);
    }
    return record;
}

static void prepare(struct sp_graph *g)
{
    sp_step_prepare(g, NULL, 0);
}

static struct edges record_step(struct walk *w)
{
    struct edges e;

    /* the turn of a step begins with it, and so do its meters */
    for (int s = 0; s < w->stages; s++)
        w->graph[s].turn = 0;
    e.first = each_stage(w, prepare);
    SP_NEED(!sp_lower_step(w->lowering, act, w), "no memory to count a step");
    e.last = each_stage(w, sp_step_conclude);
    return e;
}

/* ---- played ------------------------------------------------------------------------------------ */

/* Tensors of a size. */
struct shelf {
    int made, idle;
};

struct played {
    struct shelf *shelf[POOLS];
    int slack[POOLS];
    int64_t live, peak, sent;
    int64_t used; /* tensors that were taken and not given back */
};

static void play_part(const struct walk *w, const struct part *p, struct played *of)
{
    struct played *s = &of[p->stage];

    for (const struct change *c = w->change + p->first; c < w->change + p->first + p->n; c++) {
        struct shelf *at = &s->shelf[c->pool][c->shelf];
        int more = c->most + s->slack[c->pool] - at->idle; /* of which none are there */

        if (c->most > 0 && more > 0) {
            more = more < c->most ? more : c->most;
            at->made += more;
            at->idle += more;
        }
        at->idle -= c->taken;
        s->used += c->taken;
    }
    s->peak = s->live + p->most > s->peak ? s->live + p->most : s->peak;
    s->live += p->live;
    s->sent += p->sent;
}

static void play(const struct walk *w, int record, struct played *of)
{
    for (int p = w->record[record].first; p >= 0; p = w->part[p].next)
        play_part(w, &w->part[p], of);
}

static void play_step(const struct walk *w, struct edges e, struct played *of)
{
    for (int s = 0; s < w->stages; s++)
        of[s].used = of[s].sent = 0;
    play(w, e.first, of);
    for (int i = 0; i < w->actions; i++)
        play(w, w->action[i], of);
    play(w, e.last, of);
}

static struct sp_pool *pool_of(const struct sp_stage *st, enum pool pool)
{
    return pool == LOCAL ? st->local : st->boundary;
}

/* False where tensors stay from step to step: ops that were not submitted would have given them back. */
static bool play_all(const struct walk *w, struct edges e, struct sp_count *count)
{
    bool stay = false;
    struct played *of = calloc((size_t)w->stages, sizeof *of);

    SP_NEED(of, "no memory to count a step");
    for (int s = 0; s < w->stages; s++)
        for (int pool = 0; pool < POOLS; pool++) {
            struct sp_pool *p = pool_of(w->graph[s].stages, (enum pool)pool);

            of[s].shelf[pool] = calloc((size_t)sp_pool_shelves(p) + 1, sizeof(struct shelf));
            of[s].slack[pool] = sp_pool_slack(p);
            SP_NEED(of[s].shelf[pool], "no memory to count a step");
        }
    for (int k = 0; k < SP_COUNT_STEADY; k++)
        play_step(w, e, of);
    for (int s = 0; s < w->stages; s++) {
        const struct sp_stage *st = w->graph[s].stages;

        count[s] = sp_count_of_stage(&w->graph[s], st);
        stay |= of[s].used != 0;
        count[s].buffers = (int64_t)st->gathered_bytes;
        count[s].sent = of[s].sent;
        count[s].stashed = of[s].peak;
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

/* ---- all of it --------------------------------------------------------------------------------- */

static int create_graphs(struct walk *w, const struct sp_graph_config *cfg,
                         const struct sp_placement *place)
{
    int err = 0;

    for (int s = 0; !err && s < w->stages; s++) {
        struct sp_placement p = sp_count_place(place, w->stages, s);
        struct sp_graph_config own = *cfg;

        sp_count_begin(&w->sink[s]);
        own.sink = &w->sink[s];
        own.lowering = w->lowering;
        err = sp_graph_create(&own, &p, &w->graph[s]);
        if (err)
            break;
        sp_pool_watch(w->graph[s].stages->local, note_local, w);
        sp_pool_watch(w->graph[s].stages->boundary, note_boundary, w);
    }
    return err;
}

static void destroy(struct walk *w)
{
    w->now = NULL;
    for (int s = 0; w->graph && s < w->stages; s++)
        if (w->graph[s].cfg.sink)
            sp_graph_destroy(&w->graph[s]);
    free(w->sink);
    free(w->graph);
    free(w->sampled);
    free(w->record);
    free(w->part);
    free(w->change);
    free(w->action);
    free(w->table);
}

/* Shards are gathered for ops that run; two ops that overlap are submitted together, so that no micro-batch can be left
 * out; what leaves memory is planned op by op; a step that updates after each micro-batch must be given the updates. */
static bool has_classes(const struct sp_plan *plan)
{
    return !plan->family->sharded && !plan->paired && !plan->evictions &&
           !plan->family->updates_each;
}

/* 0 or -errno after one line; 1: what an op makes does not depend on its class alone. */
static int count_by_classes(const struct sp_graph_config *cfg, const struct sp_placement *place,
                            struct sp_lowering *lowering, struct sp_count *count)
{
    size_t stages = (size_t)place->stages;
    struct walk w = {.lowering = lowering, .stages = place->stages, .mask = 1023};
    int err;

    w.sink = calloc(stages, sizeof *w.sink);
    w.graph = calloc(stages, sizeof *w.graph);
    w.sampled = calloc((size_t)cfg->plan->layout.micro_batches, sizeof *w.sampled);
    w.table = malloc(((size_t)w.mask + 1) * sizeof *w.table);
    SP_NEED(w.sink && w.graph && w.sampled && w.table, "no memory to count a step");
    memset(w.table, -1, ((size_t)w.mask + 1) * sizeof *w.table);
    err = create_graphs(&w, cfg, place);
    if (!err) {
        lowering->shape = &w.graph->shape;
        look_at_step(&w);
    }
    err = err ? err : w.weights_travel;
    err = err ? err : !play_all(&w, record_step(&w), count);
    destroy(&w);
    return err;
}

int sp_count_by_classes(const struct sp_graph_config *cfg, const struct sp_placement *place,
                        struct sp_count *count)
{
    struct sp_lowering lowering;
    int err;

    if (!has_classes(cfg->plan))
        return 1;
    if (sp_lowering_create(cfg->plan, NULL, place->stages, &lowering))
        return sp_error(ENOMEM, "no memory to count a step");
    err = count_by_classes(cfg, place, &lowering, count);
    sp_lowering_destroy(&lowering);
    return err;
}
