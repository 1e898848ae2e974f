#include "transport/nccl/nccl_links.h"
#include "sp_error.h"
#include <stdio.h>
#include <stdlib.h>

/* The state of making all links. */
struct making {
    const struct sp_nccl_config *cfg;
    struct sp_wire *wire;
    struct sp_nccl_links *links;
    int depth, n; /* n: communicators that this process will have */
    int err;      /* the first error */
};

static bool used(const struct making *mk, int src, int dst)
{
    return mk->cfg->uses ? mk->cfg->uses(mk->cfg->arg, src, dst) : src != dst;
}

/* This process's place among the members of a link; -1: it is none of them. */
static int place_in(const struct sp_nccl_link *link, int rank)
{
    for (int i = 0; i < link->n_members; i++)
        if (link->members[i] == rank)
            return i;
    return -1;
}

static void name_link(const struct sp_nccl_link *link, char *name, size_t n)
{
    if (link->role == SP_NCCL_MEMBER)
        snprintf(name, n, "sum of ranks %d, %d...", link->members[0], link->members[1]);
    else
        snprintf(name, n, "rank %d to %d", link->edge[0], link->edge[1]);
}

/* Brings the id of a communicator from its first member to the others. */
static int share_id(struct making *mk, const struct sp_nccl_link *link, int place,
                    unsigned char id[SP_COMM_ID_BYTES])
{
    int err;

    if (place > 0) {
        mk->wire->take(mk->wire, link->members[0], id, SP_COMM_ID_BYTES);
        return 0;
    }
    err = sp_comm_id(id);
    for (int i = 1; i < link->n_members; i++)
        if (link->members[i] != link->members[0])
            mk->wire->give(mk->wire, link->members[i], id, SP_COMM_ID_BYTES);
    return err;
}

/* All members of a link make it together. A process that failed still makes its other links,
 * because their other ends wait for it. */
static void make(struct making *mk, struct sp_nccl_link *link)
{
    int place = place_in(link, mk->links->rank), err;
    bool edge = link->role != SP_NCCL_MEMBER, self = edge && link->edge[0] == link->edge[1];
    unsigned char id[SP_COMM_ID_BYTES] = {0};
    char name[32];

    name_link(link, name, sizeof name);
    sp_agree_init(&link->end, place == 0 ? link->n_members - 1 : -1, mk->depth, name);
    link->last = &link->flying;
    err = share_id(mk, link, place, id);
    if (!err)
        err = sp_comm_create(id, place, self ? 1 : link->n_members, edge, sp_comm_blocks(mk->n),
                             &link->comm);
    if (!err)
        mk->links->all[mk->links->n++] = link;
    else if (!mk->err)
        mk->err = err;
}

static void set_edge(struct sp_nccl_link *link, enum sp_nccl_role role, int id, int src, int dst)
{
    *link = (struct sp_nccl_link){
        .role = role, .id = id, .members = link->edge, .n_members = 2, .edge = {src, dst}};
}

static void make_edge(struct making *mk, int src, int dst)
{
    struct sp_nccl_links *links = mk->links;
    struct sp_nccl_link *to = &links->to[dst], *from = &links->from[src];
    int id = src * links->size + dst;

    if (links->rank == src) {
        set_edge(to, SP_NCCL_SENDER, id, src, dst);
        make(mk, to);
    } else {
        set_edge(from, SP_NCCL_RECEIVER, id, src, dst);
        make(mk, from);
    }
    if (src == dst) {
        set_edge(from, SP_NCCL_RECEIVER, id, src, dst);
        sp_agree_init(&from->end, -1, mk->depth, to->end.name);
        from->last = &from->flying;
        from->comm = to->comm;
        from->self = to;
        to->self = from;
    }
}

static bool is_mine(const struct sp_nccl_links *links, int src, int dst)
{
    return links->rank == src || links->rank == dst;
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
    struct sp_nccl_links *links = mk->links;
    int me = links->rank, odd = links->size - 1 + links->size % 2;

    if (used(mk, me, me))
        make_edge(mk, me, me);
    for (int round = 0; round < odd; round++) {
        int other = partner(me, round, odd), low = me < other ? me : other,
            high = me < other ? other : me;

        if (other >= links->size)
            continue;
        if (used(mk, low, high))
            make_edge(mk, low, high);
        if (used(mk, high, low))
            make_edge(mk, high, low);
    }
    for (int g = 0; g < links->n_groups; g++)
        if (place_in(&links->groups[g], me) >= 0)
            make(mk, &links->groups[g]);
}

static int check_groups(const struct sp_nccl_config *cfg, int size)
{
    for (int g = 0; g < cfg->n_groups; g++)
        for (int i = 0; i < cfg->groups[g].n; i++) {
            bool wrong = cfg->groups[g].n < 2 || cfg->groups[g].ranks[i] < 0 ||
                         cfg->groups[g].ranks[i] >= size;

            for (int k = 0; k < i; k++)
                wrong |= cfg->groups[g].ranks[k] == cfg->groups[g].ranks[i];
            if (wrong)
                return sp_error(EINVAL, "internal: group %d: %d ranks, rank %d of %d", g,
                                cfg->groups[g].n, cfg->groups[g].ranks[i], size);
        }
    return 0;
}

static int depth_of(const struct sp_nccl_config *cfg)
{
    const char *depth = getenv("SP_NCCL_DEPTH");
    int n = cfg->depth ? cfg->depth : depth ? atoi(depth) : 1;

    return n < 1 ? 1 : n > SP_COMM_DEPTH ? SP_COMM_DEPTH : n;
}

/* How many communicators this process will have. */
static int count(const struct making *mk)
{
    int n = 0;

    for (int src = 0; src < mk->links->size; src++)
        for (int dst = 0; dst < mk->links->size; dst++)
            n += is_mine(mk->links, src, dst) && used(mk, src, dst);
    for (int g = 0; g < mk->links->n_groups; g++)
        n += place_in(&mk->links->groups[g], mk->links->rank) >= 0;
    return n;
}

/* Makes room for the links, and tells those of groups their members. */
static int make_room(struct making *mk)
{
    const struct sp_nccl_config *cfg = mk->cfg;
    struct sp_nccl_links *links = mk->links;
    size_t size = (size_t)mk->wire->size;

    *links =
        (struct sp_nccl_links){.rank = mk->wire->rank,
                               .size = mk->wire->size,
                               .to = calloc(size, sizeof *links->to),
                               .from = calloc(size, sizeof *links->from),
                               .groups = calloc((size_t)cfg->n_groups + 1, sizeof *links->groups)};
    for (int g = 0; links->groups && g < cfg->n_groups; g++)
        links->groups[g] = (struct sp_nccl_link){.role = SP_NCCL_MEMBER,
                                                 .id = links->size * links->size + g,
                                                 .members = cfg->groups[g].ranks,
                                                 .n_members = cfg->groups[g].n};
    links->n_groups = links->groups ? cfg->n_groups : 0;
    mk->n = count(mk);
    links->all = calloc((size_t)mk->n + 1, sizeof *links->all);
    if (links->to && links->from && links->groups && links->all)
        return 0;
    return sp_error(ENOMEM, "out of memory for messages between %d processes", links->size);
}

int sp_nccl_links_create(const struct sp_nccl_config *cfg, struct sp_wire *wire,
                         struct sp_nccl_links *links)
{
    struct making mk = {.cfg = cfg, .wire = wire, .links = links, .depth = depth_of(cfg)};

    mk.err = make_room(&mk);
    mk.err = mk.err ? mk.err : check_groups(cfg, wire->size);
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
        struct sp_nccl_link *link = links->all[i];

        sp_agree_clear(&link->end);
        if (link->self)
            sp_agree_clear(&link->self->end);
        sp_comm_destroy(link->comm);
    }
    free(links->to);
    free(links->from);
    free(links->groups);
    free(links->all);
    *links = (struct sp_nccl_links){0};
}

struct sp_nccl_link *sp_nccl_links_of(struct sp_nccl_links *links, const struct sp_agree_note *note)
{
    int n = links->size, id = note->link;
    struct sp_nccl_link *link = NULL;

    if (id >= 0 && id < n * n)
        link = note->go ? &links->from[id / n] : &links->to[id % n];
    else if (id >= n * n && id < n * n + links->n_groups)
        link = &links->groups[id - n * n];
    return link && link->comm && link->id == id ? link : NULL;
}
