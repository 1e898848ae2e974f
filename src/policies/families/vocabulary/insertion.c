#include "policies/families/vocabulary/vocabulary.h"
#include "policies/simulation/costs.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The head of a micro-batch, or of a slice, on all stages. */
struct unit {
    int mb, slice;
    int forwards, backwards; /* stages that have not ended that op of the head */
    double input, sums;      /* times at which its input, and the statistics of all, are there */
};

/* The kinds of op that a stage can run next. */
enum next { BACKWARD_OF_HEAD, FORWARD_OF_HEAD, CHUNK, NOTHING };

struct stage {
    int op;                /* next in the program of chunks */
    int forward, backward; /* next units of the head */
    double free_at, start; /* start: of `next` */
    enum next next;
    bool changed; /* `next` must be found again */
};

/* A list simulation in which a stage takes an op of the head as soon as it can. */
struct sp_insertion {
    const struct sp_plan *plan;
    struct sp_program *chunks; /* [stages] with forwards moved ahead */
    struct sp_program *out;    /* [stages] with the head's ops */
    double *end;               /* [ids] ends of ops, -1: it has not run */
    struct unit *unit; /* [units] in the order of their backwards on the last global stage */
    int *unit_of;      /* [micro-batches][slices] */
    int units;
    struct stage *stage; /* [stages] */
    int root;            /* the stage of the ops before the head */
    const struct sp_costs *costs;
};

static struct unit *unit_of(const struct sp_insertion *w, const struct sp_op *op)
{
    return &w->unit[w->unit_of[op->mb * w->plan->layout.slices + op->slice]];
}

static bool is_last(const struct sp_insertion *w, int stage, const struct sp_op *op)
{
    return sp_vocabulary_is_last(&w->plan->layout, stage, op);
}

/* ---- what a stage can do -------------------------------------------------------------------- */

/* The time at which a chunk's op has all that it waits for; -1: not known yet. */
static double ready(const struct sp_insertion *w, int stage, const struct sp_op *op)
{
    const struct sp_layout *lay = &w->plan->layout;
    struct sp_dep deps[SP_MAX_DEPS];
    int n = w->plan->family->deps(lay, stage, op, deps);
    double at = 0;

    for (int i = 0; i < n; i++) {
        double end = w->end[w->plan->family->id(lay, deps[i].stage, &deps[i].op)];

        if (end < 0)
            return -1;
        at = fmax(at, end + (deps[i].stage != stage ? w->costs->comm : 0));
    }
    return at;
}

static void consider(struct stage *s, enum next next, double at)
{
    double start = fmax(at, s->free_at);

    if (at >= 0 && (s->next == NOTHING || start < s->start)) {
        s->next = next;
        s->start = start;
    }
}

/* Chooses the op that the stage can begin first. Among equals the head's backward comes first, then
 * its forward: others wait for them. */
static void look(const struct sp_insertion *w, int stage)
{
    const struct sp_program *prog = &w->chunks[stage];
    struct stage *s = &w->stage[stage];

    s->changed = false;
    s->next = NOTHING;
    if (s->backward < s->forward && w->unit[s->backward].forwards == 0)
        consider(s, BACKWARD_OF_HEAD, w->unit[s->backward].sums + w->costs->comm);
    if (s->forward < w->units && w->unit[s->forward].input >= 0)
        consider(s, FORWARD_OF_HEAD,
                 w->unit[s->forward].input + (stage == w->root ? 0 : w->costs->comm));
    if (s->op < prog->n) {
        const struct sp_op *op = &prog->ops[s->op];
        double at = ready(w, stage, op), other = op->overlap ? ready(w, stage, op + 1) : 0;

        consider(s, CHUNK, at < 0 || other < 0 ? -1 : fmax(at, other));
    }
}

/* ---- what it does ---------------------------------------------------------------------------- */

static void change_all(struct sp_insertion *w)
{
    for (int s = 0; s < w->plan->layout.stages; s++)
        w->stage[s].changed = true;
}

static void change(struct sp_insertion *w, int global)
{
    const struct sp_layout *lay = &w->plan->layout;

    if (global >= 0 && global < sp_globals(lay))
        w->stage[sp_chunk_owner(lay, 0, global).stage].changed = true;
}

/* Marks stages that may wait for an op: for a chunk, those of its neighbours; for the last chunk or
 * a part of a layer, all. */
static void wake(struct sp_insertion *w, int stage, const struct sp_op *op)
{
    if (w->plan->family->facts.parts || is_last(w, stage, op)) {
        change_all(w);
    } else {
        int global = sp_global_stage(&w->plan->layout, stage, op->chunk);

        change(w, global + 1);
        change(w, global - 1);
    }
}

static void run(struct sp_insertion *w, int stage, const struct sp_op *op, double end)
{
    const struct sp_layout *lay = &w->plan->layout;

    sp_program_add_op(&w->out[stage], *op);
    w->end[w->plan->family->id(lay, stage, op)] = end;
    w->stage[stage].free_at = end;
    w->stage[stage].changed = true;
}

static void run_chunk(struct sp_insertion *w, int stage)
{
    struct stage *s = &w->stage[stage];
    const struct sp_op *op = &w->chunks[stage].ops[s->op];
    int ops = op->overlap ? 2 : 1;
    double end = s->start;

    for (int i = 0; i < ops; i++)
        end += sp_op_cost(w->plan, w->costs, stage, &op[i]);
    for (int i = 0; i < ops; i++) {
        run(w, stage, &op[i], end);
        wake(w, stage, &op[i]);
        if (op[i].pass == SP_F && is_last(w, stage, &op[i]))
            unit_of(w, &op[i])->input = end;
    }
    s->op += ops;
}

static void run_head(struct sp_insertion *w, int stage, bool backward)
{
    struct stage *s = &w->stage[stage];
    struct unit *u = &w->unit[backward ? s->backward++ : s->forward++];
    const struct sp_op op = {.pass = backward ? SP_B : SP_F,
                             .part = SP_HEAD,
                             .mb = u->mb,
                             .slice = (unsigned short)u->slice};
    double end = s->start + sp_op_cost(w->plan, w->costs, stage, &op);

    run(w, stage, &op, end);
    if (!backward) {
        u->sums = fmax(u->sums, end);
        if (--u->forwards == 0)
            change_all(w);
    } else if (--u->backwards == 0) {
        w->stage[w->root].changed = true;
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void reset(struct sp_insertion *w)
{
    const struct sp_layout *lay = &w->plan->layout;
    int ids = w->plan->family->ids(lay);

    for (int i = 0; i < ids; i++)
        w->end[i] = -1;
    for (int i = 0; i < w->units; i++) {
        w->unit[i].forwards = w->unit[i].backwards = lay->stages;
        w->unit[i].input = -1;
        w->unit[i].sums = 0;
    }
    memset(w->stage, 0, sizeof *w->stage * (size_t)lay->stages);
    change_all(w);
}

/* False: the stages wait for each other. */
static bool simulate(struct sp_insertion *w)
{
    const struct sp_layout *lay = &w->plan->layout;

    reset(w);
    for (;;) {
        int best = -1;

        for (int s = 0; s < lay->stages; s++) {
            if (w->stage[s].changed)
                look(w, s);
            if (w->stage[s].next != NOTHING &&
                (best < 0 || w->stage[s].start < w->stage[best].start))
                best = s;
        }
        if (best < 0)
            break;
        if (w->stage[best].next == CHUNK)
            run_chunk(w, best);
        else
            run_head(w, best, w->stage[best].next == BACKWARD_OF_HEAD);
    }
    for (int s = 0; s < lay->stages; s++)
        if (w->stage[s].op < w->chunks[s].n || w->stage[s].backward < w->units)
            return false;
    return true;
}

/* The next forward from place *next on, and moves *next past it; NULL: there is none. */
static const struct sp_op *next_forward(const struct sp_program *prog, int *next)
{
    while (*next < prog->n && prog->ops[*next].pass != SP_F)
        ++*next;
    return *next < prog->n ? &prog->ops[(*next)++] : NULL;
}

/* Copies a program with forwards moved ahead by `ahead`: the first ones to the start, each other to
 * an earlier forward's place. */
static void bring_forward(const struct sp_program *from, int ahead, struct sp_program *to)
{
    const struct sp_op *forward;
    int next = 0;

    to->n = 0;
    for (int k = 0; k < ahead && (forward = next_forward(from, &next)); k++) {
        sp_program_add_op(to, *forward);
        to->ops[to->n - 1].overlap = 0;
    }
    for (int k = 0; k < from->n; k++) {
        if (from->ops[k].pass != SP_F) {
            sp_program_add_op(to, from->ops[k]);
        } else if ((forward = next_forward(from, &next))) {
            sp_program_add_op(to, *forward);
            to->ops[to->n - 1].overlap = from->ops[k].overlap;
        }
    }
}

/* The head follows the order of the backwards. If these run last in, first out, so does the head,
 * and no more logits live than have to. */
static void list_units(struct sp_insertion *w)
{
    const struct sp_program *prog = &w->plan->programs[w->root];

    for (int k = 0; k < prog->n; k++) {
        const struct sp_op *op = &prog->ops[k];

        if (op->pass != SP_B || !is_last(w, w->root, op) ||
            w->units == w->plan->layout.micro_batches * w->plan->layout.slices)
            continue;
        w->unit_of[op->mb * w->plan->layout.slices + op->slice] = w->units;
        w->unit[w->units++] = (struct unit){.mb = op->mb, .slice = op->slice};
    }
}

/* ---- its life -------------------------------------------------------------------------------- */

struct sp_insertion *sp_insertion_create(const struct sp_plan *plan)
{
    const struct sp_layout *lay = &plan->layout;
    size_t stages = (size_t)lay->stages, units = (size_t)lay->micro_batches * (size_t)lay->slices;
    struct sp_insertion *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    w->plan = plan;
    w->root = sp_vocabulary_root(lay);
    w->chunks = calloc(stages, sizeof *w->chunks);
    w->end = calloc((size_t)plan->family->ids(lay), sizeof *w->end);
    w->unit = calloc(units, sizeof *w->unit);
    w->unit_of = calloc(units, sizeof *w->unit_of);
    w->stage = calloc(stages, sizeof *w->stage);
    if (!w->chunks || !w->end || !w->unit || !w->unit_of || !w->stage) {
        sp_insertion_destroy(w);
        return NULL;
    }
    list_units(w);
    return w;
}

void sp_insertion_destroy(struct sp_insertion *w)
{
    if (!w)
        return;
    sp_programs_destroy(w->chunks, w->plan->layout.stages);
    free(w->end);
    free(w->unit);
    free(w->unit_of);
    free(w->stage);
    free(w);
}

bool sp_insertion(struct sp_insertion *w, const struct sp_costs *costs, int ahead,
                  struct sp_program *out)
{
    const struct sp_layout *lay = &w->plan->layout;

    for (int s = 0; s < lay->stages; s++) {
        bring_forward(&w->plan->programs[s], ahead * lay->chunks, &w->chunks[s]);
        out[s].n = 0;
    }
    w->costs = costs;
    w->out = out;
    return simulate(w);
}
