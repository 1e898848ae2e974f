#include "graphs/part.h"
#include "graphs/message.h"

static int64_t tag_of(const struct sp_part_op *c, struct sp_receiver to, int tensor)
{
    int64_t op = 2 * to.k + (to.part == SP_ATTN);

    return sp_tag(c->g, to.pass == SP_F ? SP_MSG_FORWARD : SP_MSG_BACKWARD, c->mb,
                  op * SP_PART_MESSAGE_TENSORS + tensor);
}

int sp_part_receiver_stage(const struct sp_part_op *c, struct sp_receiver to)
{
    return to.part == SP_ATTN ? sp_part_attention_stage(c, to.k) : sp_part_block_stage(c, to.k);
}

void sp_part_hand_over(struct sp_part_op *c, starpu_data_handle_t tensor, struct sp_receiver to,
                       int which, starpu_data_handle_t *slot)
{
    struct sp_op op = {
        .pass = (unsigned char)to.pass, .part = (unsigned char)to.part, .mb = c->mb, .chunk = to.k};
    int stage = sp_part_receiver_stage(c, to);

    if (sp_graph_stage(c->g, stage))
        *slot = tensor;
    else
        sp_message_send(c->g, c->st, tensor, stage, tag_of(c, to, which),
                        sp_op_position(c->g, stage, &op));
}

starpu_data_handle_t sp_part_take_over(struct sp_part_op *c, starpu_data_handle_t *slot, int from,
                                       struct sp_receiver self, int which, size_t elements,
                                       const char *name)
{
    starpu_data_handle_t tensor = *slot;

    *slot = NULL;
    if (tensor)
        return tensor;
    tensor = sp_part_take_for(c, c->st->index, elements, name);
    sp_message_receive(c->g, &c->lane, tensor, from, tag_of(c, self, which));
    return tensor;
}

void sp_part_send_weights(struct sp_part_op *c)
{
    struct sp_receiver to = {SP_F, SP_ATTN, c->k};
    int stage = sp_part_receiver_stage(c, to);

    if (!sp_graph_stage(c->g, stage))
        sp_message_send_block(c->g, c->st, sp_part_weight(c, SP_BLOCK_QKV, c->k), stage,
                              tag_of(c, to, SP_PART_SECOND));
}

starpu_data_handle_t sp_part_receive_weights(struct sp_part_op *c)
{
    struct sp_stage *owner = sp_graph_stage(c->g, sp_part_block_stage(c, c->k));
    struct sp_shipped *shipped = &c->st->shipped[c->k];
    starpu_data_handle_t none = NULL, w;

    if (owner)
        return sp_stage_block(owner, SP_BLOCK_QKV, c->k)->w;
    w = sp_part_take_over(c, &none, sp_part_block_stage(c, c->k),
                          (struct sp_receiver){SP_F, SP_ATTN, c->k}, SP_PART_SECOND,
                          sp_part_weights(c), "qkv weights");
    shipped->users++;
    if (!shipped->w)
        shipped->w = sp_part_hold(w);
    return w;
}

void sp_part_release_weights(struct sp_part_op *c, starpu_data_handle_t w)
{
    if (!sp_graph_stage(c->g, sp_part_block_stage(c, c->k)))
        sp_drop(&w);
}

starpu_data_handle_t sp_part_kept_weights(struct sp_part_op *c)
{
    struct sp_stage *owner = sp_graph_stage(c->g, sp_part_block_stage(c, c->k));

    return owner ? sp_stage_block(owner, SP_BLOCK_QKV, c->k)->w : c->st->shipped[c->k].w;
}

void sp_part_drop_weights(struct sp_part_op *c)
{
    struct sp_shipped *shipped = &c->st->shipped[c->k];

    if (!sp_graph_stage(c->g, sp_part_block_stage(c, c->k)) && --shipped->users == 0)
        sp_drop(&shipped->w);
}
