/* The optimizer's state on a slower tier (offload.h: --offload-optimizer). */
#include "graphs/offload/offload.h"
#include "sp_error.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 3 }; /* master weights and two moments */

/* A block comes and leaves by moves of its own, because a step submits all of them at once. If cores
 * update beside a GPU, `come` takes its gradient to them, and `leave` its weights to the GPU. */
struct block_states {
    struct sp_move come, leave;
    struct sp_move_tensor coming[MOST], leaving[MOST];
};

struct sp_states {
    struct block_states *block; /* [blocks of the stage] */
    bool on_cores;
    struct sp_mover cores; /* takes gradients to them */
    struct sp_move put;    /* of a checkpoint */
    struct sp_move_tensor one;
    int64_t live, peak; /* bytes of them in memory; not counted with activations */
};

static bool is_evicted(const struct sp_graph *g, enum sp_state state)
{
    return state == SP_STATE_M || state == SP_STATE_V ||
           (state == SP_STATE_MASTER && g->shape.dtype != SP_F32);
}

static int tensors_of(const struct sp_graph *g, const struct sp_block *b,
                      struct sp_tensor *out[MOST])
{
    int n = 0;

    for (int i = 0; i < SP_BLOCK_STATE; i++)
        if (is_evicted(g, (enum sp_state)i))
            out[n++] = b->state[i];
    return n;
}

/* The state that leaves is that which comes. */
static void follow_states(const struct sp_graph *g, struct sp_stage *st, int i)
{
    struct block_states *block = &st->states->block[i];
    struct sp_tensor *all[MOST];

    block->come.n = tensors_of(g, &st->blocks[i], all);
    for (int k = 0; k < block->come.n; k++)
        block->coming[k] = (struct sp_move_tensor){.move = &block->come, .tensor = all[k]};
    snprintf(block->leave.name, sizeof block->leave.name, "optimizer s%d b%d", st->index, i);
}

static void follow_gradient(struct sp_stage *st, int i)
{
    struct block_states *block = &st->states->block[i];

    block->come.mover = &st->states->cores;
    block->leave.mover = &st->mover;
    block->come.n = block->leave.n = 1;
    block->coming[0] =
        (struct sp_move_tensor){.move = &block->come, .tensor = st->blocks[i].state[SP_STATE_G]};
    block->leaving[0] =
        (struct sp_move_tensor){.move = &block->leave, .tensor = st->blocks[i].state[SP_STATE_W]};
}

int sp_states_create(struct sp_graph *g, struct sp_stage *st)
{
    struct sp_states *s;

    if (!g->cfg.plan->states_evicted)
        return 0;
    st->states = s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->block = calloc((size_t)st->n_blocks + 1, sizeof *s->block);
    if (!s->block)
        return -ENOMEM;
    s->put.tensors = &s->one;
    s->on_cores = g->cfg.plan->updates_on_cores;
    if (s->on_cores)
        g->cfg.sink->ops->tier->start(&s->cores, g->cfg.tier, sp_update_worker(&g->place));
    for (int i = 0; i < st->n_blocks; i++) {
        s->block[i].come = (struct sp_move){.mover = &st->mover, .tensors = s->block[i].coming};
        s->block[i].leave = (struct sp_move){.tensors = s->block[i].leaving};
        if (s->on_cores)
            follow_gradient(st, i);
        else
            follow_states(g, st, i);
    }
    return 0;
}

void sp_states_destroy(struct sp_graph *g, struct sp_stage *st)
{
    struct sp_states *s = st->states;

    if (!s)
        return;
    for (int i = 0; s->block && i < st->n_blocks; i++) {
        free(s->block[i].come.reader);
        if (s->on_cores)
            free(s->block[i].leave.reader);
    }
    if (s->block && s->on_cores)
        g->cfg.sink->ops->tier->stop(&s->cores, NULL, 0);
    free(s->block);
    free(s);
}

int64_t sp_states_sent(struct sp_stage *st)
{
    int64_t bytes = st->states ? st->states->cores.moved.returned : 0;

    if (bytes)
        st->states->cores.moved = (struct sp_moved){0};
    return bytes;
}

static struct sp_memory_count count_of(struct sp_states *s)
{
    return (struct sp_memory_count){&s->live, &s->peak};
}

static void fetch_next(struct sp_move **list, struct sp_move *move)
{
    move->next = *list;
    *list = move;
}

void sp_states_come(struct sp_stage *st, int i)
{
    struct sp_states *s = st->states;

    if (!s || i >= st->n_blocks)
        return;
    if (!s->on_cores || (i == 0 && st->blocks[i].counted))
        fetch_next(&st->returning, &s->block[i].come);
    else if (i >
             0) /* the first one, unless the task of its norm knows that it is complete, waits */
        fetch_next(&st->gradients, &s->block[i].come);
}

void sp_states_wait(struct sp_graph *g, const struct sp_task_context *ctx, struct sp_stage *st,
                    int i)
{
    if (st->states && !st->states->on_cores && i > 1)
        g->cfg.sink->ops->tier->gate(&st->states->block[i - 2].leave, *ctx->order + 1);
}

void sp_states_leave(struct sp_graph *g, struct sp_stage *st, int i)
{
    struct sp_tensor *all[MOST];

    if (!st->states)
        return;
    if (st->states->on_cores) {
        fetch_next(&st->returning, &st->states->block[i].leave);
        return;
    }
    g->cfg.sink->ops->tier->evict(&st->states->block[i].leave, &st->mover, all,
                                  tensors_of(g, &st->blocks[i], all), count_of(st->states));
}

void sp_states_put_back(struct sp_graph *g, struct sp_stage *st, int i, enum sp_state state)
{
    const struct sp_tier_ops *tier = g->cfg.sink->ops->tier;

    if (!st->states || st->states->on_cores || !is_evicted(g, state))
        return;
    tier->evict(&st->states->put, &st->mover, &st->blocks[i].state[state], 1, count_of(st->states));
    tier->settle(&st->states->put);
}
