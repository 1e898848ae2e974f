#include "plan/offload/part_units.h"
#include "plan/offload/pages.h"
#include "policies/families/attention_parallel/attention_parallel.h"

double sp_part_unit_seconds(struct sp_units_builder *b, const struct sp_op *op)
{
    bool again = op->part == SP_ATTN ? !sp_stash_keeps(b->want->recompute, SP_STASH_O)
                                     : !sp_stash_keeps(b->want->recompute, SP_STASH_PRE);
    double whole, layer, flops;
    const struct sp_shape *part = sp_units_shape(b, op);

    layer = b->sh->batch * b->flops.token * part->seq;
    whole = b->sh->batch * sp_slice_cost(&b->flops, part->first, part->seq);
    flops = op->part == SP_ATTN ? whole - layer : layer;
    return op->pass == SP_F ? flops * b->speed.fwd_s
                            : flops * (b->speed.bwd_s + (again ? b->speed.fwd_s : 0));
}

/* The slot of the op that a part's forward, or its backward, is. */
static int slot_of(const struct sp_units_builder *b, const int *ops, const struct sp_op *op)
{
    return sp_units_slot(b, ops[sp_units_activations(b, op)], 0);
}

/* What the block and the attention before it keep together leaves and returns with the block, whose backward comes
 * first; it is there since the attention, and until its backward. */
static int64_t shared(struct sp_units_builder *b, const struct sp_op *block,
                      const struct sp_shape *part)
{
    struct sp_op attention = *block;
    int64_t bytes = sp_pages(
        (int64_t)(sp_shape_elem(part) * sp_stash_elements(part, SP_RECOMPUTE_NONE, SP_STASH_O)));

    attention.part = SP_ATTN;
    attention.chunk = block->chunk - 1;
    sp_units_also(b, slot_of(b, b->forward, &attention), slot_of(b, b->forward, block) - 1, bytes);
    sp_units_also(b, slot_of(b, b->release, block) + 1, slot_of(b, b->release, &attention), bytes);
    return bytes;
}

void sp_part_unit(struct sp_units_builder *b, int op, int next, struct sp_unit *u)
{
    enum { AHEAD = 4 }; /* ops under which it may be read */
    const struct sp_op *o = &b->prog->ops[op];
    int64_t elements[SP_STASH_TENSORS];
    int then = next < 0 ? -1 : sp_units_next_forward(b, next);
    const struct sp_shape *part = sp_units_shape(b, o);

    sp_parts_stash_tensors(b->plan, b->sh, b->want->recompute, b->stage, o, elements);
    *u = (struct sp_unit){.made = sp_units_slot(b, op, 0),
                          .gone = then >= 0 ? sp_units_slot(b, then, 0) : -1,
                          .used = slot_of(b, b->use, o),
                          .freed = slot_of(b, b->release, o)};
    u->ahead = u->used > AHEAD ? u->used - AHEAD : 0;
    for (int t = 0; t < SP_STASH_TENSORS; t++)
        u->bytes[t] = sp_pages((int64_t)sp_shape_elem(part) * elements[t]);
    if (b->plan->layout.slices > 1) { /* later slices read them */
        u->stays = u->bytes[SP_STASH_KV];
        u->bytes[SP_STASH_KV] = 0;
    }
    if (!sp_shares_output(b->plan, b->sh, b->want->recompute, b->stage, o))
        return;
    u->bytes[SP_STASH_O] = 0;
    if (o->part == SP_BLOCK)
        u->bytes[SP_STASH_O] = shared(b, o, part);
}
