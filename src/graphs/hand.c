#include "graphs/hand.h"
#include "graphs/message.h"
#include <stdlib.h>
#include <string.h>

starpu_data_handle_t *sp_hands_create(const struct sp_graph *g, struct sp_hand *hands, size_t n)
{
    size_t most = 0;
    starpu_data_handle_t *blocks;

    for (int c = 0, first, count; c < sp_graph_workers(g); c++) {
        sp_ring_layers(g, c, &first, &count);
        most = 3 * (size_t)count > most ? 3 * (size_t)count : most;
    }
    blocks = calloc(n * most, sizeof(starpu_data_handle_t));
    for (size_t i = 0; blocks && i < n; i++)
        hands[i] = (struct sp_hand){.block = blocks + i * most};
    return blocks;
}

void sp_ring_layers(const struct sp_graph *g, int chunk, int *first, int *count)
{
    sp_part_layers(g->cfg.plan, g->shape.model.layers, sp_graph_workers(g), chunk, first, count);
}

static enum sp_block_kind kind_of(int block)
{
    return (enum sp_block_kind)(SP_BLOCK_NORM1 + block % 3);
}

struct sp_block *sp_ring_block(const struct sp_graph *g, struct sp_stage *owner, int chunk, int i)
{
    int first, count;

    sp_ring_layers(g, chunk, &first, &count);
    return sp_stage_block(owner, kind_of(i), first + i / 3);
}

/* A hand for the blocks of a chunk; *first: its first layer. */
static void open_hand(const struct sp_graph *g, struct sp_hand *hand, int chunk, bool pooled,
                      int *first)
{
    int count;

    sp_ring_layers(g, chunk, first, &count);
    hand->n = 3 * count;
    hand->pooled = pooled;
}

void sp_hand_own(const struct sp_graph *g, struct sp_stage *owner, int chunk, bool gradient,
                 struct sp_hand *hand)
{
    int first;

    open_hand(g, hand, chunk, false, &first);
    for (int i = 0; i < hand->n; i++) {
        struct sp_block *b = sp_ring_block(g, owner, chunk, i);

        hand->block[i] = gradient ? b->g : b->w;
    }
}

/* Of weights as products read them, or of gradients. */
static starpu_data_handle_t buffer(const struct sp_graph *g, struct sp_stage *st, int block,
                                   bool gradient)
{
    return sp_pool_get(st->boundary, sp_block_elements(&g->shape.model, kind_of(block)),
                       gradient ? sizeof(float) : sp_shape_elem(&g->shape), "chunk");
}

void sp_hand_clear(struct sp_graph *g, struct sp_stage *st, int chunk, struct sp_hand *hand)
{
    struct sp_lane lane = sp_stage_lane(g, st, 'D');
    int first;

    open_hand(g, hand, chunk, true, &first);
    for (int i = 0; i < hand->n; i++) {
        lane.layer = first + i / 3;
        hand->block[i] = buffer(g, st, i, true);
        sp_clear_insert(&lane, hand->block[i]);
    }
}

void sp_hand_share(const struct sp_hand *from, struct sp_hand *to)
{
    memcpy(to->block, from->block, (size_t)from->n * sizeof(starpu_data_handle_t));
    to->n = from->n;
    to->pooled = from->pooled;
}

void sp_hand_hold(const struct sp_hand *hand)
{
    for (int i = 0; hand->pooled && i < hand->n; i++)
        sp_pool_hold(hand->block[i]);
}

void sp_hand_put(struct sp_hand *hand)
{
    for (int i = 0; hand->pooled && i < hand->n; i++)
        sp_pool_put(hand->block[i]);
    hand->n = 0;
}

static int64_t tag_of(const struct sp_graph *g, int turn, int from, int which, int block)
{
    int64_t all = 3 * (int64_t)g->shape.model.layers;

    return sp_tag(g, SP_MSG_RING, turn + 2, ((int64_t)from * SP_RING_ITEMS + which) * all + block);
}

void sp_hand_send(struct sp_graph *g, struct sp_stage *st, const struct sp_hand *hand, int to,
                  int turn, int which, int until)
{
    for (int i = 0; i < hand->n; i++) {
        int64_t tag = tag_of(g, turn, st->index, which, i);

        if (hand->pooled)
            sp_message_send(g, st, hand->block[i], to, tag, until);
        else
            sp_message_send_block(g, st, hand->block[i], to, tag);
    }
}

void sp_hand_receive(struct sp_graph *g, struct sp_stage *st, struct sp_hand *hand, int chunk,
                     int from, int turn, int which, enum sp_hand_for what)
{
    struct sp_lane lane = sp_stage_lane(g, st, 'D');
    int first;

    if (what == SP_HAND_HOME)
        sp_hand_own(g, st, chunk, true, hand);
    else
        open_hand(g, hand, chunk, true, &first);
    for (int i = 0; i < hand->n; i++) {
        if (what != SP_HAND_HOME)
            hand->block[i] = buffer(g, st, i, what == SP_HAND_GRADIENTS);
        sp_message_receive(g, &lane, hand->block[i], from, tag_of(g, turn, from, which, i));
    }
}
