#include "graphs/families/gathered_unit.h"
#include "policies/families/ownership.h"
#include "sp_error.h"
#include <stdlib.h>

static void layers_of(const struct sp_graph *g, int chunk, int *first, int *count)
{
    sp_chunk_layers(g->cfg.plan, g->shape.model.layers, 0, chunk, first, count);
}

static size_t held(const struct sp_graph *g, enum sp_block_kind kind)
{
    return sp_block_held(g->cfg.plan, &g->shape.held, kind);
}

int sp_unit_blocks(const struct sp_graph *g, int chunk)
{
    int first, count;

    if (chunk == SP_SHARDS_ENDS)
        return SP_BLOCK_KINDS;
    layers_of(g, chunk, &first, &count);
    return SP_LAYER_BLOCKS * count;
}

bool sp_unit_block(const struct sp_graph *g, int chunk, int i, struct sp_unit_block *block)
{
    int first, count;

    if (chunk == SP_SHARDS_ENDS) {
        *block = (struct sp_unit_block){(enum sp_block_kind)i, -1};
        return !sp_block_is_of_layer(block->kind) &&
               sp_block_is_gathered(g->cfg.plan, block->kind) &&
               sp_block_elements(&g->shape.held, block->kind) > 0;
    }
    layers_of(g, chunk, &first, &count);
    *block = (struct sp_unit_block){sp_layer_block(i), first + i / SP_LAYER_BLOCKS};
    return true;
}

int sp_unit_create(struct sp_graph *g, struct sp_stage *st, struct sp_gathered_unit *unit,
                   int chunk, size_t elem)
{
    int n = sp_unit_blocks(g, chunk), err = 0;
    struct sp_unit_block b;

    *unit = (struct sp_gathered_unit){.n = n};
    unit->block = calloc((size_t)n, sizeof *unit->block);
    unit->handle = calloc((size_t)n, sizeof(struct sp_tensor *));
    if (!unit->block || !unit->handle)
        return -ENOMEM;
    for (int i = 0; !err && i < n; i++) {
        if (!sp_unit_block(g, chunk, i, &b))
            continue;
        if (held(g, b.kind) * (size_t)g->place.stages > UINT32_MAX)
            return sp_error(EINVAL, "a block of %zu parameters cannot be gathered, %u are most",
                            held(g, b.kind) * (size_t)g->place.stages, UINT32_MAX);
        err = sp_gathered_create(g->cfg.sink, &unit->block[i],
                                 held(g, b.kind) * (size_t)g->place.stages, g->place.stages, elem);
        unit->handle[i] = unit->block[i].whole;
        st->gathered_bytes += sp_gathered_bytes(&unit->block[i]);
    }
    return err;
}

void sp_unit_destroy(struct sp_gathered_unit *unit)
{
    for (int i = 0; unit->block && i < unit->n; i++)
        sp_gathered_destroy(&unit->block[i]);
    free(unit->block);
    free(unit->handle);
}

void sp_unit_clear(struct sp_graph *g, const struct sp_task_context *ctx,
                   struct sp_gathered_unit *unit, int chunk)
{
    struct sp_task_context clear = *ctx;
    struct sp_unit_block b;

    for (int i = 0; i < sp_unit_blocks(g, chunk); i++) {
        if (!sp_unit_block(g, chunk, i, &b))
            continue;
        clear.layer = b.layer;
        sp_gathered_join(&unit->block[i]);
        sp_clear_insert(&clear, unit->handle[i]);
    }
}
