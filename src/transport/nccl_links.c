#include "config.h"
#ifdef HAVE_NCCL
#include "transport/nccl_links.h"
#include "sp_error.h"
#include <stdio.h>
#include <stdlib.h>

/* What is being made. */
struct making {
    const struct sp_nccl_config *cfg;
    struct sp_wire *wire;
    struct sp_nccl_links *links;
    int depth, n; /* communicators of this process */
    int err;      /* the first */
};

static bool used(const struct making *mk, int src, int dst)
{
    return mk->cfg->uses ? mk->cfg->uses(mk->cfg->arg, src, dst) : src != dst;
}

/* This process's place in a link; -1: none. */
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

/*
 * All members come here for the same link at the same place of one order of all links, so that none waits
 * in a circle. A process that failed goes on with the others' links: they wait for it.
 */
static void make(struct making *mk, struct sp_nccl_link *link)
{
    int place = place_in(link, mk->links->rank);
    unsigned char id[SP_COMM_ID_BYTES] = {0};
    char name[32];
    int err = 0;

    if (place > 0)
        mk->wire->take(mk->wire, link->members[0], id, sizeof id);
    else
        err = sp_comm_id(id);
    for (int i = 1; place == 0 && i < link->n_members; i++)
        if (link->members[i] != link->members[0])
            mk->wire->give(mk->wire, link->members[i], id, sizeof id);
    name_link(link, name, sizeof name);
    sp_agree_init(&link->end,
                  link->role == SP_NCCL_RECEIVER ? -1
                  : place == 0                   ? link->n_members - 1
                                                 : -1,
                  mk->depth, name);
    link->last = &link->flying;
    if (!err)
        err = sp_comm_create(
            id, place, link->members[0] == link->members[link->n_members - 1] ? 1 : link->n_members,
            link->role != SP_NCCL_MEMBER, mk->n, &link->comm);
    if (err && !mk->err)
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

static void make_all(struct making *mk)
{
    struct sp_nccl_links *links = mk->links;

    for (int src = 0; src < links->size; src++)
        for (int dst = 0; dst < links->size; dst++)
            if (is_mine(links, src, dst) && used(mk, src, dst))
                make_edge(mk, src, dst);
    for (int g = 0; g < links->n_groups; g++)
        if (place_in(&links->groups[g], links->rank) >= 0)
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

int sp_nccl_links_create(const struct sp_nccl_config *cfg, struct sp_wire *wire,
                         struct sp_nccl_links *links)
{
    struct making mk = {.cfg = cfg, .wire = wire, .links = links, .depth = depth_of(cfg)};
    size_t size = (size_t)wire->size, groups = (size_t)cfg->n_groups;

    *links = (struct sp_nccl_links){.rank = wire->rank,
                                    .size = wire->size,
                                    .n_groups = cfg->n_groups,
                                    .to = calloc(size, sizeof *links->to),
                                    .from = calloc(size, sizeof *links->from),
                                    .groups = calloc(groups + 1, sizeof *links->groups)};
    if (!links->to || !links->from || !links->groups)
        mk.err = sp_error(ENOMEM, "out of memory for %d processes", wire->size);
    if (!mk.err)
        mk.err = check_groups(cfg, wire->size);
    mk.err = wire->least(wire, mk.err);
    if (mk.err)
        goto err_free;
    for (int g = 0; g < cfg->n_groups; g++)
        links->groups[g] = (struct sp_nccl_link){.role = SP_NCCL_MEMBER,
                                                 .id = wire->size * wire->size + g,
                                                 .members = cfg->groups[g].ranks,
                                                 .n_members = cfg->groups[g].n};
    mk.n = count(&mk);
    mk.err = sp_comm_use(cfg->device);
    make_all(&mk);
    mk.err = wire->least(wire, mk.err);
    if (!mk.err)
        return 0;
    sp_nccl_links_abort(links);
err_free:
    sp_nccl_links_destroy(links);
    return mk.err;
}

int sp_nccl_links_each(struct sp_nccl_links *links, int (*fn)(void *arg, struct sp_nccl_link *link),
                       void *arg)
{
    int ret = 0, n = links->size;

    for (int id = 0; !ret && id < n * n; id++) {
        struct sp_nccl_link *to = &links->to[id % n], *from = &links->from[id / n];

        if (links->rank == id / n && to->comm)
            ret = fn(arg, to);
        else if (links->rank == id % n && from->comm)
            ret = fn(arg, from);
    }
    for (int g = 0; !ret && g < links->n_groups; g++)
        if (links->groups[g].comm)
            ret = fn(arg, &links->groups[g]);
    return ret;
}

static int abort_link(void *arg, struct sp_nccl_link *link)
{
    (void)arg;
    sp_comm_abort(link->comm);
    return 0;
}

void sp_nccl_links_abort(struct sp_nccl_links *links)
{
    sp_nccl_links_each(links, abort_link, NULL);
}

static int destroy_link(void *arg, struct sp_nccl_link *link)
{
    (void)arg;
    sp_agree_clear(&link->end);
    if (link->self)
        sp_agree_clear(&link->self->end);
    sp_comm_destroy(link->comm);
    return 0;
}

void sp_nccl_links_destroy(struct sp_nccl_links *links)
{
    if (links->to && links->from && links->groups)
        sp_nccl_links_each(links, destroy_link, NULL);
    free(links->to);
    free(links->from);
    free(links->groups);
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
#endif
