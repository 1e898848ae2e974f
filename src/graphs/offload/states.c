/* The optimizer's state on a slower tier (offload.h: --offload-optimizer). */
#include "graphs/offload/offload.h"
#include "sp_error.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 3 }; /* master weights and two moments */

/* A block comes and leaves by moves of its own, because a step submits all of them at once. */
struct block_states {
    struct sp_move come, leave;
    struct sp_move_tensor coming[MOST], leaving[MOST];
};

struct sp_states {
    struct block_states *block; /* [blocks of the stage] */
    struct sp_move put;         /* of a checkpoint */
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
    for (int i = 0; i < st->n_blocks; i++) {
        const struct sp_block *b = &st->blocks[i];
        struct block_states *block = &s->block[i];
        struct sp_tensor *all[MOST];

        block->come = (struct sp_move){
            .mover = &st->mover, .n = tensors_of(g, b, all), .tensors = block->coming};
        for (int k = 0; k < block->come.n; k++)
            block->coming[k] = (struct sp_move_tensor){.move = &block->come, .tensor = all[k]};
        block->leave = (struct sp_move){.tensors = block->leaving};
        snprintf(block->leave.name, sizeof block->leave.name, "optimizer s%d b%d", st->index, i);
    }
    return 0;
}

void sp_states_destroy(struct sp_stage *st)
{
    struct sp_states *s = st->states;

    for (int i = 0; s && s->block && i < st->n_blocks; i++)
        free(s->block[i].come.reader);
    if (s)
        free(s->block);
    free(s);
}

static struct sp_memory_count count_of(struct sp_states *s)
{
    return (struct sp_memory_count){&s->live, &s->peak};
}

void sp_states_come(struct sp_stage *st, int i)
{
    struct sp_move *move;

    if (!st->states || i >= st->n_blocks)
        return;
    move = &st->states->block[i].come;
    move->next = st->returning;
    st->returning = move;
}

void sp_states_wait(struct sp_graph *g, const struct sp_task_context *ctx, struct sp_stage *st,
                    int i)
{
    if (st->states && i > 1)
        g->cfg.sink->ops->tier->gate(&st->states->block[i - 2].leave, *ctx->order + 1);
}

void sp_states_leave(struct sp_graph *g, struct sp_stage *st, int i)
{
    struct sp_tensor *all[MOST];

    if (!st->states)
        return;
    g->cfg.sink->ops->tier->evict(&st->states->block[i].leave, &st->mover, all,
                                  tensors_of(g, &st->blocks[i], all), count_of(st->states));
}

void sp_states_put_back(struct sp_graph *g, struct sp_stage *st, int i, enum sp_state state)
{
    const struct sp_tier_ops *tier = g->cfg.sink->ops->tier;

    if (!st->states || !is_evicted(g, state))
        return;
    tier->evict(&st->states->put, &st->mover, &st->blocks[i].state[state], 1, count_of(st->states));
    tier->settle(&st->states->put);
}
