#include "graphs/weights/checkpoint.h"
#include "graphs/offload/offload.h"
#include "graphs/step.h"
#include "graphs/weights/zero.h"
#include "policies/lowering/pipelines.h"
#include "sinks/starpu/sink.h"
#include "sp_activity.h"
#include "sp_error.h"
#include "model/files/weights.h"
#include "kernels/backend.h"
#include <stdlib.h>
#include <string.h>

/* The initial values of parameters. */

/* Fills a complete block, read from `file` or drawn. */
static int read_or_draw_block(const struct sp_graph *g, const struct sp_block *b,
                              const struct sp_st_file *file, float *whole)
{
    if (file)
        return sp_weights_read_block(file, g->cfg.params, b->kind, b->layer, whole);
    sp_block_init(g->cfg.params, b->kind, b->layer, g->cfg.seed, whole);
    return 0;
}

/*
 * part(b->n) = initial values of this process's part of a block: from `file`, or drawn from the
 * seed if that is NULL; zero past the block's end. 0 or -errno.
 */
static int initial_part(const struct sp_graph *g, const struct sp_block *b,
                        const struct sp_st_file *file, float *part)
{
    size_t all = sp_block_elements(&g->cfg.params->model, b->kind), n = 0;
    size_t held = sp_block_elements(&g->shape.held, b->kind);
    bool divided = g->shape.tensor > 1;
    float *whole = b->n == all && !divided ? part : malloc(all * sizeof *whole);
    float *own = b->n == held || !divided ? (divided ? part : whole) : malloc(held * sizeof *own);
    int err = whole && own ? read_or_draw_block(g, b, file, whole)
                           : sp_error(ENOMEM, "no memory for a block of %zu parameters", all);

    if (!err && divided)
        sp_block_take_part(&(struct sp_divided_block){g->cfg.params, &g->held, b->kind, b->layer},
                           sp_tensor_member(g), whole, own);
    if (!err && own != part) {
        n = b->first >= held ? 0 : held - b->first < b->n ? held - b->first : b->n;
        memcpy(part, own + b->first, n * sizeof *part);
        memset(part + n, 0, (b->n - n) * sizeof *part);
    }
    if (own != part && own != whole)
        free(own);
    if (whole != part)
        free(whole);
    return err;
}

/* Draws the i-th block of every local stage. */
struct drawing {
    const struct sp_graph *g;
    int i;
    int *err; /* [local stages]: workers write concurrently */
};

static void clear_cpu_values(struct sp_tensor *t)
{
    const struct sp_backend *k = sp_cpu_backend(SP_F32);

    k->clear(k, sp_tensor_size(t), sp_tensor_local(t));
}

static void draw_on_worker(void *arg)
{
    struct drawing *d = arg;

    for (int k = 0; k < d->g->place.n_local; k++) {
        const struct sp_stage *st = &d->g->stages[k];
        const struct sp_block *b = &st->blocks[d->i];

        if (st->worker != sp_worker_here() || d->i >= st->n_blocks)
            continue;
        d->err[k] = initial_part(d->g, b, NULL, sp_tensor_local(b->state[SP_STATE_MASTER]));
        clear_cpu_values(b->state[SP_STATE_G]);
        clear_cpu_values(b->state[SP_STATE_M]);
        clear_cpu_values(b->state[SP_STATE_V]);
    }
}

/* Takes one block of each stage at a time: with limited memory, other blocks may have to be
 * evicted. */
static void each_drawn_handle(const struct drawing *d, void (*act)(struct sp_tensor *handle))
{
    for (int k = 0; k < d->g->place.n_local; k++) {
        const struct sp_stage *st = &d->g->stages[k];

        for (int i = 0; i < SP_STATE_W && d->i < st->n_blocks; i++)
            act(st->blocks[d->i].state[i]);
    }
}

static void acquire_to_write(struct sp_tensor *t)
{
    sp_tensor_acquire(t, SP_WRITE);
}

/* Evicts the states of block i of a stage that are not kept in memory. */
static void put_block_back(struct sp_graph *g, struct sp_stage *st, int i)
{
    for (int state = 0; i < st->n_blocks && state < SP_BLOCK_STATE; state++)
        sp_states_put_back(g, st, i, (enum sp_state)state);
}

/*
 * Draws every local block and clears its gradients and moments, on cores. Each worker draws the
 * blocks of its stages with its team: so all cores draw, and memory is near the core that touches
 * it first. 0 or -errno.
 */
static int draw_blocks(struct sp_graph *g)
{
    struct drawing d = {.g = g, .err = calloc((size_t)g->place.n_local, sizeof *d.err)};
    int blocks = 0, err = 0;

    if (!d.err)
        return sp_error(ENOMEM, "no memory for %d stages", g->place.n_local);
    for (int k = 0; k < g->place.n_local; k++)
        blocks = g->stages[k].n_blocks > blocks ? g->stages[k].n_blocks : blocks;
    for (; d.i < blocks && !err; d.i++) {
        each_drawn_handle(&d, acquire_to_write);
        sp_workers_run(draw_on_worker, &d);
        each_drawn_handle(&d, sp_tensor_release);
        for (int k = 0; k < g->place.n_local && !err; k++)
            err = d.err[k];
        for (int k = 0; k < g->place.n_local; k++)
            put_block_back(g, &g->stages[k], d.i);
    }
    free(d.err);
    return err;
}

static const enum sp_state state_of[] = {[SP_FIELD_W] = SP_STATE_MASTER,
                                         [SP_FIELD_G] = SP_STATE_G,
                                         [SP_FIELD_M] = SP_STATE_M,
                                         [SP_FIELD_V] = SP_STATE_V};

static struct sp_tensor *field_of(struct sp_block *b, enum sp_field field)
{
    sp_zero_cut(b);
    return b->state[state_of[field]];
}

/* ---- values of a handle ---------------------------------------------------------------------- */

/* A context for tasks on one tensor of a block's state: where the optimizer's are kept. */
static struct sp_task_context context_of(struct sp_graph *g, struct sp_stage *st,
                                         const struct sp_tensor *handle)
{
    bool kept = false;

    for (int i = 0; i < st->n_blocks; i++) {
        struct sp_tensor *const *state = st->blocks[i].state;

        kept |= handle == state[SP_STATE_M] || handle == state[SP_STATE_V] ||
                (handle == state[SP_STATE_MASTER] && handle != state[SP_STATE_W]);
    }
    return kept ? sp_update_context(g, st, 'I') : sp_stage_context(g, st, 'I');
}

/*
 * On cores a block's handle is read and written in place. Blocks on GPUs are copied by tasks from
 * and to a temporary buffer; otherwise StarPU would keep a copy of each in main memory for the
 * whole run.
 */
static float *values_begin(const struct sp_graph *g, struct sp_tensor *handle, size_t n,
                           enum sp_access mode)
{
    float *values;

    if (!g->place.gpus) {
        return sp_tensor_acquire(handle, mode);
    }
    values = malloc(n * sizeof *values);
    SP_NEED(values, "no memory for a block of %zu parameters", n);
    return values;
}

static void values_end(struct sp_graph *g, struct sp_stage *st, struct sp_tensor *handle,
                       float *values, size_t n)
{
    struct sp_task_context ctx = context_of(g, st, handle);
    struct sp_tensor *host;

    if (!g->place.gpus) {
        sp_tensor_release(handle);
        return;
    }
    host = sp_tensor_make_at(g->cfg.sink, values, n, sizeof *values, "values");
    sp_copy_insert(&ctx, host, handle);
    sp_tensor_unmake_at(host);
    free(values);
}

static void clear(struct sp_graph *g, struct sp_stage *st, struct sp_tensor *handle)
{
    struct sp_task_context ctx = context_of(g, st, handle);

    if (g->place.gpus) {
        sp_clear_insert(&ctx, handle);
        return;
    }
    memset(sp_tensor_acquire(handle, SP_WRITE), 0, sp_tensor_size(handle));
    sp_tensor_release(handle);
}

/* A gradient is about to start anew: its matrices need no value. */
static void restart(const struct sp_graph *g, const struct sp_block *b)
{
    b->state[SP_STATE_G]->stale = (unsigned char)sp_block_restarts(g, b);
}

/* Copies the values of a handle to `to`; matrices without one are 0. */
static void values_read(struct sp_graph *g, struct sp_stage *st, struct sp_tensor *handle,
                        float *to, size_t n)
{
    struct sp_task_context ctx = context_of(g, st, handle);
    struct sp_tensor *host;
    unsigned char stale = handle->stale;

    if (stale)
        clear(g, st, handle);
    if (!g->place.gpus) {
        memcpy(to, sp_tensor_acquire(handle, SP_READ), n * sizeof *to);
        sp_tensor_release(handle);
    } else {
        host = sp_tensor_make_at(g->cfg.sink, to, n, sizeof *to, "values");
        sp_copy_insert(&ctx, handle, host);
        sp_tensor_unmake_at(host);
    }
    handle->stale = stale;
}

/* Fills this process's part of a block from a file, or draws it from the seed. */
static int fill(struct sp_graph *g, struct sp_stage *st, const struct sp_block *b,
                struct sp_tensor *handle, const struct sp_st_file *file)
{
    float *part = values_begin(g, handle, b->n, SP_WRITE);
    int err = initial_part(g, b, file, part);

    values_end(g, st, handle, part, b->n);
    return err;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Rounds the optimizer's weights to those that products read. */
static void round_weights(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local && g->shape.dtype != SP_F32; k++) {
        struct sp_stage *st = &g->stages[k];
        struct sp_task_context ctx = sp_update_context(g, st, 'I');

        for (int i = 0; i < st->n_blocks; i++) {
            ctx.layer = st->blocks[i].layer;
            sp_round_insert(&ctx, st->blocks[i].state[SP_STATE_MASTER], g->shape.dtype,
                            st->blocks[i].state[SP_STATE_W]);
            sp_states_put_back(g, st, i, SP_STATE_MASTER);
        }
    }
}

int sp_checkpoint_init(struct sp_graph *g, const struct sp_st_file *weights)
{
    bool here = !weights && !g->place.gpus;
    int drawn = here ? draw_blocks(g) : 0;

    if (drawn)
        return drawn;
    for (int k = 0; k < g->place.n_local && !here; k++)
        for (int i = 0; i < g->stages[k].n_blocks; i++) {
            struct sp_stage *st = &g->stages[k];
            struct sp_block *b = &st->blocks[i];
            int err = fill(g, st, b, b->state[SP_STATE_MASTER], weights);

            if (err)
                return err;
            clear(g, st, b->state[SP_STATE_G]);
            clear(g, st, b->state[SP_STATE_M]);
            clear(g, st, b->state[SP_STATE_V]);
            put_block_back(g, st, i);
        }
    for (int k = 0; k < g->place.n_local; k++)
        for (int i = 0; i < g->stages[k].n_blocks; i++)
            restart(g, &g->stages[k].blocks[i]);
    round_weights(g);
    return 0;
}

int sp_checkpoint_read(struct sp_graph *g, enum sp_field field, const struct sp_st_file *st)
{
    for (int k = 0; k < g->place.n_local; k++)
        for (int i = 0; i < g->stages[k].n_blocks; i++) {
            struct sp_block *b = &g->stages[k].blocks[i];
            int err = fill(g, &g->stages[k], b, field_of(b, field), st);

            if (err)
                return err;
            sp_states_put_back(g, &g->stages[k], i, state_of[field]);
        }
    if (field == SP_FIELD_W)
        round_weights(g);
    return 0;
}

void sp_checkpoint_clear(struct sp_graph *g, enum sp_field field)
{
    for (int k = 0; k < g->place.n_local; k++)
        for (int i = 0; i < g->stages[k].n_blocks; i++) {
            struct sp_block *b = &g->stages[k].blocks[i];

            clear(g, &g->stages[k], field_of(b, field));
            if (field == SP_FIELD_G)
                restart(g, b);
            sp_states_put_back(g, &g->stages[k], i, state_of[field]);
        }
}

/* One field of a block of the model. */
struct block_field {
    enum sp_field field;
    enum sp_block_kind kind;
    int layer;
};

/* Sends n elements of a block from a stage of a pipeline to rank 0, which puts them at `to`. */
static void fetch_from_stage(struct sp_graph *g, const struct block_field *b, int stage,
                             int pipeline, float *to, size_t n)
{
    int owner = sp_stage_rank_in(&g->place, stage, pipeline), rank = g->place.world.rank;
    int64_t of_layer = (int64_t)b->field * SP_BLOCK_KINDS + (int64_t)b->kind;
    int64_t of_stage = of_layer * (g->shape.model.layers + 1) + b->layer + 1;
    int64_t tag = sp_tag(g, SP_MSG_BLOCK, of_stage * g->place.stages + stage);
    struct sp_stage *st = sp_graph_stage(g, stage);
    struct sp_block *block = st ? sp_stage_block(st, b->kind, b->layer) : NULL;
    struct sp_tensor *handle = st ? field_of(block, b->field) : NULL;

    if (rank == 0 && owner == 0) {
        values_read(g, st, handle, to, n);
    } else if (rank == owner) {
        sp_tensor_send_wait(handle, 0, tag);
    } else if (rank == 0) {
        handle = sp_tensor_make_at(g->cfg.sink, to, n, sizeof *to, "checkpoint");
        sp_tensor_receive_wait(handle, owner, tag);
        sp_tensor_unmake_at(handle);
    }
    if (st && rank == owner)
        sp_states_put_back(g, st, (int)(block - st->blocks), state_of[b->field]);
}

/* Puts together at `to` on rank 0 what one tensor-parallel member holds of a block, from all stages
 * and pipelines that hold parts of it. */
static void fetch_member(struct sp_graph *g, const struct block_field *b, int member, float *to)
{
    size_t held = sp_block_held(g->cfg.plan, &g->shape.held, b->kind);
    int parts = sp_block_is_sharded(g->cfg.plan, b->kind) ? g->place.stages : 1;
    int replicas = g->shape.zero ? sp_graph_replicas(g) : 1;

    for (int i = 0; i < parts * replicas; i++) {
        int stage = parts > 1 ? i / replicas : sp_block_owner(g, b->kind, b->layer);
        uint64_t first, count;

        sp_pipelines_part(held, i % replicas, replicas, &first, &count);
        fetch_from_stage(g, b, stage, i % replicas * g->shape.tensor + member,
                         to ? to + (size_t)(i / replicas) * held + first : NULL, count);
    }
}

static float *new_values(bool here, size_t n)
{
    float *values = here ? malloc(n * sizeof *values) : NULL;

    SP_NEED(values || !here, "no memory for a block of %zu parameters", n);
    return values;
}

/* Blocks on their way to the caller of sp_checkpoint_each. */
struct streaming {
    struct sp_graph *g;
    enum sp_field field;
    sp_block_fn fn;
    void *arg;
    int err; /* the first that fn returned */
};

/* Puts one block together on rank 0 and calls fn with it. */
static void stream_block(struct streaming *s, enum sp_block_kind kind, int layer)
{
    struct sp_graph *g = s->g;
    const struct block_field b = {.field = s->field, .kind = kind, .layer = layer};
    size_t n = sp_block_elements(&g->cfg.params->model, kind);
    size_t held = sp_block_held(g->cfg.plan, &g->shape.held, kind);
    int parts = sp_block_is_sharded(g->cfg.plan, kind) ? g->place.stages : 1, err = 0;
    bool here = g->place.world.rank == 0, divided = g->shape.tensor > 1;
    float *whole, *own;

    if (!n)
        return;
    sp_activity_touch();
    own = new_values(here, held * (size_t)parts);
    whole = divided ? new_values(here, n) : own;
    if (here && divided)
        memset(whole, 0, n * sizeof *whole);
    for (int m = 0; m < g->shape.tensor; m++) {
        fetch_member(g, &b, m, own);
        if (here && divided)
            sp_block_put_part(&(struct sp_divided_block){g->cfg.params, &g->held, kind, layer}, m,
                              own, whole);
    }
    if (here)
        err = s->fn(s->arg, kind, layer, whole, n);
    s->err = s->err ? s->err : err;
    if (divided)
        free(whole);
    free(own);
}

int sp_checkpoint_each(struct sp_graph *g, enum sp_field field, sp_block_fn fn, void *arg)
{
    struct streaming s = {.g = g, .field = field, .fn = fn, .arg = arg};

    /* The step number changes, so that each gathering has tags of its own. Processes whose
     * parameters are replicas of the first one's do nothing, unless they hold parts. After an error
     * the rest is still received, and ignored: the owners send it anyway. */
    g->step++;
    if (sp_graph_replica(g) > 0 && !g->shape.zero)
        return 0;
    for (int kind = 0; kind < SP_BLOCK_NORM1; kind++)
        stream_block(&s, (enum sp_block_kind)kind, -1);
    for (int i = 0; i < SP_LAYER_BLOCKS * g->shape.model.layers; i++)
        stream_block(&s, sp_layer_block(i), i / SP_LAYER_BLOCKS);
    for (int kind = SP_BLOCK_POST + 1; kind < SP_BLOCK_KINDS; kind++)
        stream_block(&s, (enum sp_block_kind)kind, -1);
    return s.err;
}
