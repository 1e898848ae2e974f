#include "transport/nccl/nccl_links.h"
#include "sp_error.h"
#include <stdio.h>
#include <stdlib.h>

/* The state of making all links. */
struct making {
    struct sp_wire *wire;
    struct sp_nccl_links *links;
    int depth;
    int err; /* the first error */
};

/* Brings the id of a communicator from the sender to the receiver. */
static int share_id(struct making *mk, const struct sp_nccl_link *link,
                    unsigned char id[SP_COMM_ID_BYTES])
{
    int err = 0;

    if (link->sends) {
        err = sp_comm_id(id);
        mk->wire->give(mk->wire, link->peer, id, SP_COMM_ID_BYTES);
    } else {
        mk->wire->take(mk->wire, link->peer, id, SP_COMM_ID_BYTES);
    }
    return err;
}

/* Both ends of an edge make it together. A process that failed still makes its other links, because
 * their other ends wait for it. */
static void make_edge(struct making *mk, int src, int dst)
{
    struct sp_nccl_links *links = mk->links;
    bool sends = links->rank == src;
    struct sp_nccl_link *link = sends ? &links->to[dst] : &links->from[src];
    unsigned char id[SP_COMM_ID_BYTES] = {0};
    char name[32];
    int err;

    *link = (struct sp_nccl_link){
        .sends = sends, .id = src * links->size + dst, .peer = sends ? dst : src};
    snprintf(name, sizeof name, "rank %d to %d", src, dst);
    sp_agree_init(&link->end, sends ? 1 : -1, mk->depth, name);
    link->last = &link->flying;
    err = share_id(mk, link, id);
    if (!err)
        err = sp_comm_create(id, sends, sp_comm_blocks(2 * (links->size - 1)), &link->comm);
    if (!err)
        links->all[links->n++] = link;
    else if (!mk->err)
        mk->err = err;
}

/*
 * The process that `rank` pairs with in a round: rounds 0..odd - 1 pair any two of 0..odd once. A
 * number beyond the last process means nobody.
 */
static int partner(int rank, int round, int odd)
{
    int i = (round - rank + 2 * odd) % odd;

    if (rank == odd)
        return round * ((odd + 1) / 2) % odd; /* this one would be paired with itself */
    return i == rank ? odd : i;
}

/* Works in rounds, so that as many pairs as possible come together at once and none waits in a
 * circle. */
static void make_all(struct making *mk)
{
    int me = mk->links->rank, size = mk->links->size, odd = size - 1 + size % 2;

    for (int round = 0; round < odd; round++) {
        int other = partner(me, round, odd), low = me < other ? me : other,
            high = me < other ? other : me;

        if (other >= size)
            continue;
        make_edge(mk, low, high);
        make_edge(mk, high, low);
    }
}

static int depth_of(const struct sp_nccl_config *cfg)
{
    const char *depth = getenv("SP_NCCL_DEPTH");
    int n = cfg->depth ? cfg->depth : depth ? atoi(depth) : 1;

    return n < 1 ? 1 : n > SP_COMM_DEPTH ? SP_COMM_DEPTH : n;
}

static int make_room(const struct sp_wire *wire, struct sp_nccl_links *links)
{
    size_t size = (size_t)wire->size;

    *links = (struct sp_nccl_links){.rank = wire->rank,
                                    .size = wire->size,
                                    .to = calloc(size, sizeof *links->to),
                                    .from = calloc(size, sizeof *links->from),
                                    .all = calloc(2 * size, sizeof *links->all)};
    if (!links->to || !links->from || !links->all)
        return sp_error(ENOMEM, "out of memory for messages between %d processes", links->size);
    links->to[links->rank].peer = links->from[links->rank].peer = links->rank;
    return 0;
}

int sp_nccl_links_create(const struct sp_nccl_config *cfg, struct sp_wire *wire,
                         struct sp_nccl_links *links)
{
    struct making mk = {.wire = wire, .links = links, .depth = depth_of(cfg)};

    mk.err = make_room(wire, links);
    mk.err = mk.err ? mk.err : sp_comm_use(cfg->device);
    mk.err = wire->least(wire, mk.err);
    if (!mk.err) {
        make_all(&mk);
        mk.err = wire->least(wire, mk.err);
    }
    if (mk.err) {
        sp_nccl_links_abort(links);
        sp_nccl_links_destroy(links);
    }
    return mk.err;
}

void sp_nccl_links_abort(struct sp_nccl_links *links)
{
    for (int i = 0; i < links->n; i++)
        sp_comm_abort(links->all[i]->comm);
}

void sp_nccl_links_destroy(struct sp_nccl_links *links)
{
    for (int i = 0; i < links->n; i++) {
        sp_agree_clear(&links->all[i]->end);
        sp_comm_destroy(links->all[i]->comm);
    }
    free(links->to);
    free(links->from);
    free(links->all);
    *links = (struct sp_nccl_links){0};
}

struct sp_nccl_link *sp_nccl_links_of(struct sp_nccl_links *links, const struct sp_agree_note *note)
{
    int n = links->size, id = note->link;
    struct sp_nccl_link *link = NULL;

    if (id >= 0 && id < n * n)
        link = note->go ? &links->from[id / n] : &links->to[id % n];
    return link && link->comm && link->id == id ? link : NULL;
}
