#include "graphs/weights/checkpoint.h"
#include "graphs/weights/initial.h"
#include "graphs/weights/zero.h"
#include "policies/lowering/pipelines.h"
#include "sinks/starpu/sink.h"
#include "sp_activity.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

static struct sp_tensor *field_of(struct sp_block *b, enum sp_field field)
{
    static const enum sp_state states[] = {[SP_FIELD_W] = SP_STATE_MASTER,
                                           [SP_FIELD_G] = SP_STATE_G,
                                           [SP_FIELD_M] = SP_STATE_M,
                                           [SP_FIELD_V] = SP_STATE_V};

    sp_zero_cut(b);
    return b->state[states[field]];
}

/* ---- values of a handle ---------------------------------------------------------------------- */

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
    struct sp_task_context ctx = sp_stage_context(g, st, 'I');
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

/* Copies the values of a handle to `to`. */
static void values_read(struct sp_graph *g, struct sp_stage *st, struct sp_tensor *handle,
                        float *to, size_t n)
{
    struct sp_task_context ctx = sp_stage_context(g, st, 'I');
    struct sp_tensor *host;

    if (!g->place.gpus) {
        memcpy(to, sp_tensor_acquire(handle, SP_READ), n * sizeof *to);
        sp_tensor_release(handle);
        return;
    }
    host = sp_tensor_make_at(g->cfg.sink, to, n, sizeof *to, "values");
    sp_copy_insert(&ctx, handle, host);
    sp_tensor_unmake_at(host);
}

static void clear(struct sp_graph *g, struct sp_stage *st, struct sp_tensor *handle)
{
    struct sp_task_context ctx = sp_stage_context(g, st, 'I');

    if (g->place.gpus) {
        sp_clear_insert(&ctx, handle);
        return;
    }
    memset(sp_tensor_acquire(handle, SP_WRITE), 0, sp_tensor_size(handle));
    sp_tensor_release(handle);
}

/* Fills this process's part of a block from a file, or draws it from the seed. */
static int fill(struct sp_graph *g, struct sp_stage *st, const struct sp_block *b,
                struct sp_tensor *handle, const struct sp_st_file *file)
{
    float *part = values_begin(g, handle, b->n, SP_WRITE);
    int err = sp_initial_block(g, b, file, part);

    values_end(g, st, handle, part, b->n);
    return err;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Rounds the optimizer's weights to those that products read. */
static void round_weights(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local && g->shape.dtype != SP_F32; k++) {
        struct sp_stage *st = &g->stages[k];
        struct sp_task_context ctx = sp_stage_context(g, st, 'I');

        for (int i = 0; i < st->n_blocks; i++) {
            ctx.layer = st->blocks[i].layer;
            sp_round_insert(&ctx, st->blocks[i].state[SP_STATE_MASTER], g->shape.dtype,
                            st->blocks[i].state[SP_STATE_W]);
        }
    }
}

int sp_checkpoint_init(struct sp_graph *g, const struct sp_st_file *weights)
{
    bool here = !weights && !g->place.gpus;
    int drawn = here ? sp_initial_values(g) : 0;

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
        }
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
        }
    if (field == SP_FIELD_W)
        round_weights(g);
    return 0;
}

void sp_checkpoint_clear(struct sp_graph *g, enum sp_field field)
{
    for (int k = 0; k < g->place.n_local; k++)
        for (int i = 0; i < g->stages[k].n_blocks; i++)
            clear(g, &g->stages[k], field_of(&g->stages[k].blocks[i], field));
}

/* Sends n elements of a block from a stage of a pipeline to rank 0, which puts them at `to`. */
static void fetch(struct sp_graph *g, enum sp_field field, enum sp_block_kind kind, int layer,
                  int stage, int pipeline, float *to, size_t n)
{
    int owner = sp_stage_rank_in(&g->place, stage, pipeline), rank = g->place.world.rank;
    int64_t of_layer = (int64_t)field * SP_BLOCK_KINDS + (int64_t)kind;
    int64_t of_stage = of_layer * (g->shape.model.layers + 1) + layer + 1;
    int64_t tag = sp_tag(g, SP_MSG_BLOCK, of_stage * g->place.stages + stage);
    struct sp_stage *st = sp_graph_stage(g, stage);
    struct sp_tensor *handle = st ? field_of(sp_stage_block(st, kind, layer), field) : NULL;

    if (rank == 0 && owner == 0) {
        values_read(g, st, handle, to, n);
    } else if (rank == owner) {
        sp_tensor_send_wait(handle, 0, tag);
    } else if (rank == 0) {
        handle = sp_tensor_make_at(g->cfg.sink, to, n, sizeof *to, "checkpoint");
        sp_tensor_receive_wait(handle, owner, tag);
        sp_tensor_unmake_at(handle);
    }
}

/* Puts together at `to` on rank 0 what one tensor-parallel member holds of a block, from all stages
 * and pipelines that hold parts of it. */
static void fetch_member(struct sp_graph *g, enum sp_field field, enum sp_block_kind kind,
                         int layer, int member, float *to)
{
    size_t held = sp_block_held(g->cfg.plan, &g->shape.held, kind);
    int parts = sp_block_is_sharded(g->cfg.plan, kind) ? g->place.stages : 1;
    int replicas = g->shape.zero ? sp_graph_replicas(g) : 1;

    for (int i = 0; i < parts * replicas; i++) {
        int stage = parts > 1 ? i / replicas : sp_block_owner(g, kind, layer);
        uint64_t first, count;

        sp_pipelines_part(held, i % replicas, replicas, &first, &count);
        fetch(g, field, kind, layer, stage, i % replicas * g->shape.tensor + member,
              to ? to + (size_t)(i / replicas) * held + first : NULL, count);
    }
}

static float *new_values(bool here, size_t n)
{
    float *values = here ? malloc(n * sizeof *values) : NULL;

    SP_NEED(values || !here, "no memory for a block of %zu parameters", n);
    return values;
}

/* Puts one block together on rank 0 and calls fn with it. */
static int stream(struct sp_graph *g, enum sp_field field, enum sp_block_kind kind, int layer,
                  sp_block_fn fn, void *arg)
{
    size_t n = sp_block_elements(&g->cfg.params->model, kind);
    size_t held = sp_block_held(g->cfg.plan, &g->shape.held, kind);
    int parts = sp_block_is_sharded(g->cfg.plan, kind) ? g->place.stages : 1, err = 0;
    bool here = g->place.world.rank == 0, divided = g->shape.tensor > 1;
    float *whole, *own;

    if (!n)
        return 0;
    sp_activity_touch();
    own = new_values(here, held * (size_t)parts);
    whole = divided ? new_values(here, n) : own;
    if (here && divided)
        memset(whole, 0, n * sizeof *whole);
    for (int m = 0; m < g->shape.tensor; m++) {
        fetch_member(g, field, kind, layer, m, own);
        if (here && divided)
            sp_block_put_part(&(struct sp_divided_block){g->cfg.params, &g->held, kind, layer}, m,
                              own, whole);
    }
    if (here)
        err = fn(arg, kind, layer, whole, n);
    if (divided)
        free(whole);
    free(own);
    return err;
}

int sp_checkpoint_each(struct sp_graph *g, enum sp_field field, sp_block_fn fn, void *arg)
{
    int err = 0, more;

    /* The step number changes, so that each gathering has tags of its own. Processes whose
     * parameters are replicas of the first one's do nothing, unless they hold parts. After an error
     * the rest is still received, and ignored: the owners send it anyway. */
    g->step++;
    if (sp_graph_replica(g) > 0 && !g->shape.zero)
        return 0;
#define VISIT(kind, layer)                                                                         \
    do {                                                                                           \
        more = stream(g, field, kind, layer, fn, arg);                                             \
        err = err ? err : more;                                                                    \
    } while (0)
    for (int kind = 0; kind < SP_BLOCK_NORM1; kind++)
        VISIT((enum sp_block_kind)kind, -1);
    for (int i = 0; i < SP_LAYER_BLOCKS * g->shape.model.layers; i++)
        VISIT(sp_layer_block(i), i / SP_LAYER_BLOCKS);
    for (int kind = SP_BLOCK_POST + 1; kind < SP_BLOCK_KINDS; kind++)
        VISIT((enum sp_block_kind)kind, -1);
#undef VISIT
    return err;
}
