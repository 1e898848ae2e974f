#include "graphs/weights/blocks.h"
#include "graphs/weights/zero.h"
#include "sp_error.h"
#include <stdlib.h>

struct owner {
    struct sp_graph *g;
    struct sp_stage *st;
};

/* Weights, gradient, and what the optimizer keeps. */
static int add_state(struct sp_graph *g, struct sp_block *b)
{
    struct sp_sink *s = g->cfg.sink;
    int err = 0;

    if (g->shape.zero) {
        err = sp_zero_create(g, b);
    } else {
        b->w = b->state[SP_STATE_W] = sp_tensor_make(s, b->n, sp_shape_elem(&g->shape), "w");
        b->g = b->state[SP_STATE_G] = sp_tensor_make(s, b->n, sizeof(float), "g");
    }
    if (err)
        return err;
    b->state[SP_STATE_MASTER] = g->shape.dtype == SP_F32
                                    ? b->state[SP_STATE_W]
                                    : sp_tensor_make(s, b->n, sizeof(float), "master");
    b->state[SP_STATE_M] = sp_tensor_make(s, b->n, sizeof(float), "m");
    b->state[SP_STATE_V] = sp_tensor_make(s, b->n, sizeof(float), "v");
    return 0;
}

static void destroy_state(struct sp_block *b)
{
    for (int i = 0; i < SP_BLOCK_STATE; i++) {
        bool part = b->shared && (i == SP_STATE_W || i == SP_STATE_G);
        bool twice = i == SP_STATE_MASTER && b->state[i] == b->state[SP_STATE_W];

        if (b->state[i] && !part && !twice)
            sp_tensor_unmake(b->state[i]);
        sp_tensor_unmake(b->spare[i]);
    }
    if (b->shared)
        sp_zero_destroy(b);
}

static int add_block(void *arg, enum sp_block_kind kind, int layer)
{
    struct sp_graph *g = ((struct owner *)arg)->g;
    struct sp_stage *st = ((struct owner *)arg)->st;
    size_t n = sp_block_held(g->cfg.plan, &g->shape.held, kind);
    int owners[SP_MAX_OWNERS];
    int n_owners = sp_block_owners(g->cfg.plan, &g->shape.held, kind, layer, owners);
    struct sp_block *more, *b;

    if (n_owners > 2)
        return sp_error(EINVAL, "the placement keeps %d replicas of a block, at most 2 are summed",
                        n_owners);

    more = realloc(st->blocks, (size_t)(st->n_blocks + 1) * sizeof *more);
    if (!more)
        return -ENOMEM;
    st->blocks = more;
    b = &st->blocks[st->n_blocks++];
    *b = (struct sp_block){
        .kind = kind,
        .layer = layer,
        .first = sp_block_first(g->cfg.plan, &g->shape.held, kind, st->index),
        .n = n,
        .counted = owners[0] == st->index || sp_block_is_sharded(g->cfg.plan, kind),
    };
    return add_state(g, b);
}

int sp_blocks_create(struct sp_graph *g, struct sp_stage *st)
{
    struct owner owner = {.g = g, .st = st};

    return sp_stage_each_block(g->cfg.plan, &g->shape.held, st->index, add_block, &owner);
}

void sp_blocks_destroy(struct sp_stage *st)
{
    for (int i = 0; i < st->n_blocks; i++)
        destroy_state(&st->blocks[i]);
    free(st->blocks);
}
