#include "trace/fxt/rewrite.h"
#include "sp_error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The container of a rank's messages, as StarPU-MPI made it. */
struct threads {
    int n;
    char (*alias)[32];
};

/* True for events of StarPU-MPI's own thread: its states, and with --transport starpu its messages,
 * which are added again on the clock of all ranks. */
static bool is_of_starpu(const char *type)
{
    return !strcmp(type, "CtS") || !strcmp(type, "MPIL") || !strcmp(type, "bwo_mpi") ||
           !strcmp(type, "bwi_mpi");
}

/* Finds the containers, and removes what is_of_starpu. */
static int find_threads(struct sp_paje *p, struct threads *t)
{
    struct sp_paje_words w = {0};

    for (size_t i = 0; i < p->n; i++) {
        struct sp_paje_event *e = &p->events[i];
        int type, rank;

        if (!e->rest || e->code < SP_PAJE_CREATE)
            continue;
        type = sp_paje_field(p, e->code, "Type");
        sp_paje_split(e->rest, &w);
        if (type < 0 || type >= w.n)
            continue;
        rank = sp_fxt_container_rank(w.at[0], t->n);
        if (e->code == SP_PAJE_CREATE && rank >= 0 && !strcmp(w.at[type], "MPICt"))
            snprintf(t->alias[rank], sizeof *t->alias, "%s", w.at[0]);
        else if (is_of_starpu(w.at[type]))
            sp_paje_remove(e);
    }
    sp_paje_words_free(&w);
    for (int r = 0; r < t->n; r++)
        if (!*t->alias[r])
            return sp_error(EINVAL, "trace: StarPU-MPI is not in the trace of rank %d", r);
    return 0;
}

/* The change at one end of a message, on one of its sides. */
struct change {
    int rank, sending, receiving;
    double ms, out, in; /* MB/s */
};

static int in_turn(const void *a, const void *b)
{
    const struct change *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->ms != y->ms)
        return x->ms < y->ms ? -1 : 1;
    return y->sending + y->receiving - x->sending - x->receiving; /* begins come before ends */
}

static void add_state(struct sp_paje *p, const char *alias, const struct change *now, double ms)
{
    static const char *const states[] = {"Sl", "Se", "Re", "SR"};

    sp_paje_add(p, SP_PAJE_SET_STATE, ms, "%s\tCtS\t%s", alias,
                states[(now->sending > 0) + 2 * (now->receiving > 0)]);
    sp_paje_add(p, SP_PAJE_SET_VARIABLE, ms, "%s\tbwo_mpi\t%.3f", alias, now->out);
    sp_paje_add(p, SP_PAJE_SET_VARIABLE, ms, "%s\tbwi_mpi\t%.3f", alias, now->in);
}

static void add_states(struct sp_paje *p, const struct threads *t, struct change *c, int n)
{
    struct change now = {.rank = -1};

    qsort(c, (size_t)n, sizeof *c, in_turn);
    for (int i = 0; i < n; i++) {
        const char *alias = t->alias[c[i].rank];

        if (c[i].rank != now.rank)
            now = (struct change){.rank = c[i].rank};
        now.sending += c[i].sending;
        now.receiving += c[i].receiving;
        now.out = now.sending ? now.out + c[i].out : 0;
        now.in = now.receiving ? now.in + c[i].in : 0;
        if (i + 1 < n && c[i + 1].rank == c[i].rank && c[i + 1].ms == c[i].ms)
            continue;
        add_state(p, alias, &now, c[i].ms);
    }
}

/* Adds the link of message i, and lists the changes it makes. */
static void add_link(struct sp_paje *p, const struct threads *t, const struct sp_fxt_message *m,
                     int i, double zero_ns, struct change c[4])
{
    double start = (m->start_ns - zero_ns) / 1e6, end = (m->end_ns - zero_ns) / 1e6;
    char name[sizeof m->tensor];
    double rate = end > start ? 1e-3 * (double)m->bytes / (end - start) : 0;

    if (*m->tensor)
        snprintf(name, sizeof name, "%s", m->tensor);
    else
        snprintf(name, sizeof name, "%llx", (unsigned long long)m->handle[0]);
    sp_paje_add(p, SP_PAJE_MESSAGE_START, start,
                "MPIL\tMPIroot\t%lld\t%s\tmpicom_%d\t%lld\tPointToPoint\t0\t%s",
                (long long)m->bytes, t->alias[m->src], i, (long long)m->tag, name);
    sp_paje_add(p, SP_PAJE_END_LINK, end, "MPIL\tMPIroot\t%lld\t%s\tmpicom_%d", (long long)m->bytes,
                t->alias[m->dst], i);
    c[0] = (struct change){.rank = m->src, .sending = 1, .ms = start, .out = rate};
    c[1] = (struct change){.rank = m->src, .sending = -1, .ms = end, .out = -rate};
    c[2] = (struct change){.rank = m->dst, .receiving = 1, .ms = start, .in = rate};
    c[3] = (struct change){.rank = m->dst, .receiving = -1, .ms = end, .in = -rate};
}

int sp_fxt_add_messages(struct sp_paje *p, const struct sp_fxt_messages *m, double zero_ns)
{
    struct threads t = {m->ranks, calloc((size_t)m->ranks, sizeof *t.alias)};
    struct change *c = calloc(4 * (size_t)m->n + 1, sizeof *c);
    int err = 0;

    if (!t.alias || !c)
        err = sp_error(ENOMEM, "trace: no memory for %d messages", m->n);
    if (!err && m->ranks > 1)
        err = find_threads(p, &t);
    if (!err && m->n) {
        /* the columns that StarVZ reads, without StarPU's three further ones */
        sp_paje_define(
            p, SP_PAJE_MESSAGE_START, "PajeStartLink",
            "Time Type Container Value StartContainer Key MPITAG MPIType Priority Handle");
        sp_paje_add(p, SP_PAJE_DEFINE_VALUE, 0, "Se\tCtS\tSending\t\"0.90 0.55 0.20\"");
        sp_paje_add(p, SP_PAJE_DEFINE_VALUE, 0, "Re\tCtS\tReceiving\t\"0.30 0.55 0.80\"");
        sp_paje_add(p, SP_PAJE_DEFINE_VALUE, 0,
                    "SR\tCtS\t\"Sending and receiving\"\t\"0.60 0.40 0.60\"");
        for (int r = 0; r < m->ranks; r++)
            add_state(p, t.alias[r], &(struct change){0}, 0);
        for (int i = 0; i < m->n; i++)
            add_link(p, &t, &m->message[i], i, zero_ns, &c[4 * i]);
        add_states(p, &t, c, 4 * m->n);
    }
    free(c);
    free(t.alias);
    return err;
}
