/* The members of a stage, which split the tokens of sequences, or heads and parameters, and the
 * tensors that they send each other. */
#ifndef SP_MEMBERS_H
#define SP_MEMBERS_H

#include "graphs/message.h"
#include "graphs/op.h"

/* Tags repeat after this many exchanges; fewer than that are ever on their way. */
enum { SP_EXCHANGES = 1 << 16 };

/* The tag of the next exchange; members submit the same exchanges in the same order. */
static inline int64_t sp_exchange_tag(struct sp_graph *g)
{
    return sp_tag(g, SP_MSG_EXCHANGE, g->exchanges++ % SP_EXCHANGES);
}

/* The pipeline of a context-parallel member, and of a tensor-parallel one. */
static inline int sp_context_pipeline(const struct sp_graph *g, int member)
{
    return g->place.pipeline + (member - sp_graph_member(g)) * g->shape.tensor;
}

static inline int sp_tensor_pipeline(const struct sp_graph *g, int member)
{
    return g->place.pipeline + member - sp_tensor_member(g);
}

/* Send and receive a tensor of the layer that is being expanded. */
static inline void sp_member_send(struct sp_op_ctx *c, enum sp_tensor_kind kind,
                                  struct sp_tensor *handle, int pipeline, int64_t tag)
{
    struct sp_tensor_id t = {.kind = (unsigned char)kind,
                             .slice = (unsigned short)c->slice,
                             .mb = c->mb,
                             .at = c->ctx.layer};

    sp_message_share(c->g, c->st, &t, handle, pipeline, tag);
}

static inline void sp_member_receive(struct sp_op_ctx *c, struct sp_tensor *handle, int pipeline,
                                     int64_t tag)
{
    sp_message_take(c->g, c->st, handle, pipeline, tag);
}

#endif
