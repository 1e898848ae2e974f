#include "policies/families/weight_ring/ring.h"
#include "policies/families/weight_ring/flow.h"
#include "policies/refuse.h"
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* F, B, W of (round, chunk), then the head of a round. */
static int slot_of(const struct sp_ring *ring, const struct sp_op *op, int round)
{
    int each = ring->rounds * ring->chunks, pass = op->pass == SP_F ? 0 : op->pass == SP_B ? 1 : 2;

    if (round < 0 || round >= ring->rounds || op->slice != 0 || op->pass == SP_R)
        return -1;
    if (op->part == SP_HEAD)
        return op->pass == SP_F && op->chunk == 0 ? 3 * each + round : -1;
    if (op->part != SP_CHUNK || op->chunk < 0 || op->chunk >= ring->chunks)
        return -1;
    return (pass * ring->rounds + round) * ring->chunks + op->chunk;
}

int sp_ring_turn(const struct sp_ring *ring, const struct sp_op *op, int round)
{
    int slot = slot_of(ring, op, round);

    return slot < 0 ? -1 : ring->turn_of[slot];
}

int sp_ring_forward(int workers, int r, int t)
{
    return ((t - r) % workers + workers) % workers;
}

struct sp_ring_item sp_ring_item(const struct sp_ring *ring, int r, int t, int item)
{
    int P = ring->chunks, at = sp_ring_forward(P, r, t);

    if (item == 0)
        return (struct sp_ring_item){SP_RING_FORWARD, at};
    if (ring->layout != SP_RING_PAIRS)
        return (struct sp_ring_item){(enum sp_ring_payload)item, P - 1 - at};
    return (struct sp_ring_item){at % 2 ? SP_RING_GRADIENT : SP_RING_BACKWARD,
                                 (item == 1 ? P : P / 2) - 1 - at / 2};
}

bool sp_ring_returns(const struct sp_ring *ring)
{
    return ring->layout == SP_RING_REVERSED;
}

int sp_ring_last_forward(const struct sp_ring *ring)
{
    return ring->forward_turns + ring->chunks - 2;
}

int sp_ring_last_backward(const struct sp_ring *ring)
{
    return ring->turns + ring->chunks - (sp_ring_returns(ring) ? 1 : 3);
}

/* True if worker 0 has the weights of an op in turn k; the head has its own. */
static bool has_weights(const struct sp_ring *ring, const struct sp_op *op, int k)
{
    if (op->part == SP_HEAD || ring->layout == SP_RING_LINE)
        return true;
    if (op->pass == SP_F)
        return op->chunk == sp_ring_forward(ring->chunks, 0, k);
    for (int i = 1; i < SP_RING_ITEMS && k >= ring->chunks; i++) {
        struct sp_ring_item item = sp_ring_item(ring, 0, k, i);
        enum sp_ring_payload want = op->pass == SP_W ? SP_RING_GRADIENT : SP_RING_BACKWARD;

        if (item.chunk == op->chunk && item.payload == want)
            return true;
    }
    return false;
}

static int add_turn(struct sp_ring *ring, const struct sp_op *ops, int n, char *why, size_t size)
{
    int k = ring->turns++;

    if (n > SP_TURN_OPS) {
        snprintf(why, size, "has %d ops in turn %d, at most %d", n, k, SP_TURN_OPS);
        return -EINVAL;
    }
    for (int i = 0; i < n; i++) {
        int slot = slot_of(ring, &ops[i], ops[i].mb);
        char text[SP_OP_TEXT];

        sp_op_print(&ops[i], 0, text);
        if (slot < 0 || ring->turn_of[slot] >= 0 || !has_weights(ring, &ops[i], k)) {
            snprintf(why, size, "has %s of worker 0 in turn %d: %s", text, k,
                     slot < 0                   ? "there is no such op"
                     : ring->turn_of[slot] >= 0 ? "it comes twice"
                                                : "its weights are elsewhere");
            return -EINVAL;
        }
        ring->turn_of[slot] = k;
        ring->ops[ring->first[k] + i] = ops[i];
        if (ops[i].pass == SP_F && ops[i].part == SP_CHUNK)
            ring->forward_turns = k + 1;
    }
    ring->first[k + 1] = ring->first[k] + n;
    return 0;
}

/* Tabulates the owner of each chunk. */
static int own(struct sp_ring *ring, const struct sp_layout *lay,
               const struct sp_weight_ring_def *def, char *why, size_t n)
{
    for (int c = 0; c < ring->chunks; c++) {
        ring->owner[c] = def->owner ? def->owner(lay, c) : (c + 1) % lay->stages;
        if (ring->owner[c] >= 0 && ring->owner[c] < lay->stages)
            continue;
        snprintf(why, n, "gives chunk %d to worker %d, not in 0 .. %d", c, ring->owner[c],
                 lay->stages - 1);
        return -EINVAL;
    }
    if (def->owner && def->layout == SP_RING_REVERSED) {
        snprintf(why, n, "says who owns a chunk, but in its layout chunks come home by themselves");
        return -EINVAL;
    }
    return 0;
}

/* The turns must be whole rounds of the ring, or gradients do not return to their owners. */
static int check_turns(const struct sp_ring *ring, size_t most, char *why, size_t n)
{
    if (ring->turns == 0)
        snprintf(why, n, "has no turns of a ring");
    else if ((size_t)ring->turns == most)
        snprintf(why, n, "has no end of turns");
    else if (ring->turns % ring->chunks && ring->layout != SP_RING_LINE)
        snprintf(why, n,
                 "has turns that are no whole number of rounds of the ring: gradients do "
                 "not come home");
    else
        return 0;
    return -EINVAL;
}

/* Reads how many workers in a row are in the same turn. */
static int gather(struct sp_ring *ring, const struct sp_layout *lay,
                  const struct sp_weight_ring_def *def, char *why, size_t n)
{
    ring->node = def->node ? def->node(lay) : 1;
    if (ring->node == 1 ||
        (ring->node > 1 && ring->layout == SP_RING_LINE && lay->stages % ring->node == 0))
        return 0;
    if (ring->layout != SP_RING_LINE)
        snprintf(why, n, "has nodes of %d workers, which a ring has no use for; use flow=line",
                 ring->node);
    else
        snprintf(why, n, "has %d workers, which are no whole number of nodes of %d", lay->stages,
                 ring->node);
    return -EINVAL;
}

/* Around the ring a worker has one chunk of each kind at a time, and every chunk needs one turn to
 * the next worker. */
static int refuse_chunks(const struct sp_ring *ring, const struct sp_layout *lay, char *why,
                         size_t n)
{
    struct sp_layout fit = *lay;

    fit.chunks = 1;
    return ring->layout == SP_RING_LINE ? 0 : sp_refuse_chunks(lay, &fit, why, n);
}

int sp_ring_create(const struct sp_layout *lay, const struct sp_weight_ring_def *def,
                   struct sp_ring **out, char *why, size_t n)
{
    int rounds = (lay->micro_batches + lay->stages - 1) / lay->stages, chunks = sp_globals(lay);
    size_t slots = (size_t)rounds * (3 * (size_t)chunks + 1), most = 2 * slots + 64;
    struct sp_ring *ring = calloc(1, sizeof *ring);
    struct sp_op ops[SP_TURN_OPS];
    int ret = -ENOMEM, count;

    if (!ring)
        return ret;
    ring->rounds = rounds;
    ring->chunks = chunks;
    ring->layout = sp_flow_layout(lay, def->layout);
    ring->first = calloc(most + 1, sizeof *ring->first);
    ring->ops = calloc(slots + SP_TURN_OPS, sizeof *ring->ops);
    ring->turn_of = malloc(slots * sizeof *ring->turn_of);
    ring->owner = calloc((size_t)ring->chunks, sizeof *ring->owner);
    if (!ring->first || !ring->ops || !ring->turn_of || !ring->owner)
        goto err_ring;
    memset(ring->turn_of, -1, slots * sizeof *ring->turn_of);
    ret = refuse_chunks(ring, lay, why, n);
    ret = ret ? ret : gather(ring, lay, def, why, n);
    ret = ret ? ret : own(ring, lay, def, why, n);
    while (!ret && def->turn && (size_t)ring->turns < most &&
           (count = def->turn(lay, ring->turns, ops)) >= 0)
        ret = add_turn(ring, ops, count, why, n);
    ret = ret ? ret : check_turns(ring, most, why, n);
    if (ret)
        goto err_ring;
    *out = ring;
    return 0;

err_ring:
    sp_ring_destroy(ring);
    return ret;
}

void sp_ring_destroy(void *arg)
{
    struct sp_ring *ring = arg;

    if (!ring)
        return;
    free(ring->first);
    free(ring->ops);
    free(ring->turn_of);
    free(ring->owner);
    free(ring);
}

void sp_ring_emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    const struct sp_ring *ring = sp_ring_of(lay);

    for (int i = 0; i < ring->first[ring->turns]; i++) {
        struct sp_op op = ring->ops[i];

        op.mb = op.mb * lay->stages + stage;
        if (op.mb < lay->micro_batches)
            sp_program_add_op(prog, op);
    }
}
