#include "transport/nccl_run.h"
#include "draw.h"
#include "transport/fake_starpu.h"
#include "transport/fake_wire.h"
#include "transport/nccl/nccl.h"
#include "transport/poll.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_RANKS = 4, MOST_MESSAGES = 512, SIZES = 3, BUFFERS = 3 };

struct message {
    int src, dst;
    int64_t tag;
    int size; /* in floats */
    int shelf;
};

/* One rank's part: what its tasks write and read. */
struct part {
    const struct message *message;
    struct rank *rank;
    starpu_data_handle_t in, out;
};

struct rank {
    const struct nccl_run *run;
    struct sp_wire *wire;
    pthread_t thread;
    int number, n;
    struct part part[MOST_MESSAGES];
    starpu_data_handle_t shelf[SIZES][BUFFERS];
    int next[SIZES];
    int tasks, arrived; /* not ended; receives that said so */
};

static struct message messages[MOST_MESSAGES];

/* ---- tasks ---------------------------------------------------------------------------------------- */

static float value(const struct message *m, int rank, int i)
{
    return (float)((m->tag * 7 + rank * 13 + i) & 0xffff);
}

static void end_task(struct part *p, starpu_data_handle_t handle)
{
    starpu_data_release_on_node(handle, 0);
    __atomic_sub_fetch(&p->rank->tasks, 1, __ATOMIC_ACQ_REL);
}

static void write_value(void *arg)
{
    struct part *p = arg;
    float *x = starpu_data_handle_to_pointer(p->out, 0);

    for (int i = 0; i < p->message->size; i++)
        x[i] = value(p->message, p->rank->number, i);
    end_task(p, p->out);
}

static void read_value(void *arg)
{
    struct part *p = arg;
    const struct message *m = p->message;
    const float *x = starpu_data_handle_to_pointer(p->in, 0);

    for (int i = 0; i < m->size; i++) {
        float want = value(m, m->src, i);

        if (x[i] != want) {
            printf("rank %d, message %d to %d, tag %ld: %g at %d instead of %g\n", p->rank->number,
                   m->src, m->dst, (long)m->tag, x[i], i, want);
            fflush(stdout);
            _exit(NCCL_WRONG_DATA);
        }
    }
    end_task(p, p->in);
}

static void task(struct part *p, starpu_data_handle_t handle, enum starpu_data_access_mode mode,
                 void (*run)(void *))
{
    __atomic_add_fetch(&p->rank->tasks, 1, __ATOMIC_ACQ_REL);
    starpu_data_acquire_on_node_cb(handle, 0, mode, run, p);
}

/* ---- a rank --------------------------------------------------------------------------------------- */

static void arrived(void *arg)
{
    __atomic_add_fetch(&((struct rank *)arg)->arrived, 1, __ATOMIC_RELAXED);
}

static starpu_data_handle_t handle_for(struct rank *r, const struct message *m)
{
    if (r->run->any_order)
        return fake_handle((size_t)m->size * sizeof(float));
    return r->shelf[m->shelf][r->next[m->shelf]++ % BUFFERS];
}

static void submit(struct rank *r, struct sp_nccl *nccl, struct part *p)
{
    const struct message *m = p->message;

    if (m->dst == r->number) {
        p->in = handle_for(r, m);
        sp_nccl_recv(nccl, p->in, m->src, m->tag, arrived, r);
        task(p, p->in, STARPU_R, read_value);
    }
    if (m->src == r->number) {
        p->out = handle_for(r, m);
        task(p, p->out, STARPU_W, write_value);
        sp_nccl_send(nccl, p->out, m->dst, m->tag);
    }
}

static void ended(int status)
{
    (void)status;
    _exit(NCCL_FAILED);
}

/* Its parts, in the order in which it submits them. */
static void deal(struct rank *r)
{
    uint64_t draws = r->run->seed * 101 + (uint64_t)r->number;

    for (int i = 0; i < r->run->messages; i++)
        if (messages[i].src == r->number || messages[i].dst == r->number)
            r->part[r->n++] = (struct part){.message = &messages[i], .rank = r};
    for (int i = r->n - 1; r->run->any_order && i > 0; i--) {
        int k = draw_below(&draws, i + 1);
        struct part swap = r->part[i];

        r->part[i] = r->part[k];
        r->part[k] = swap;
    }
}

static void *be_rank(void *arg)
{
    struct rank *r = arg;
    struct sp_nccl_config cfg = {.device = r->number, .depth = r->run->depth, .fail = ended};
    struct sp_nccl *nccl;
    char why[256] = "";
    int receives = 0;

    deal(r);
    for (int s = 0; s < SIZES; s++)
        for (int i = 0; i < BUFFERS; i++)
            r->shelf[s][i] = fake_handle((size_t)(100 + 700 * s) * sizeof(float));
    if (sp_nccl_start(&cfg, r->wire, why, sizeof why, &nccl)) {
        printf("start: %s\n", why);
        _exit(NCCL_FAILED);
    }
    for (int i = 0; i < r->n; i++) {
        submit(r, nccl, &r->part[i]);
        receives += r->part[i].message->dst == r->number;
    }
    if (sp_nccl_wait_all(nccl))
        _exit(NCCL_FAILED);
    while (__atomic_load_n(&r->tasks, __ATOMIC_ACQUIRE))
        usleep(100);
    if (r->arrived != receives)
        _exit(NCCL_LOST);
    sp_nccl_stop(nccl);
    return NULL;
}

/* ---- all ------------------------------------------------------------------------------------------ */

static void make_messages(const struct nccl_run *run)
{
    uint64_t draws = run->seed;

    for (int i = 0; i < run->messages; i++) {
        struct message *m = &messages[i];

        *m = (struct message){.src = draw_below(&draws, run->ranks),
                              .dst = draw_below(&draws, run->ranks - 1),
                              .shelf = draw_below(&draws, SIZES)};
        m->dst += m->dst >= m->src;
        m->tag = ((int64_t)draw_below(&draws, 1 << 20) << 20) + i;
        m->size = run->any_order ? 10 + 3 * i : 100 + 700 * m->shelf;
    }
}

enum nccl_outcome nccl_run(const struct nccl_run *run)
{
    static struct rank ranks[MOST_RANKS];
    struct sp_wire *wires = fake_wires(run->ranks, run->seed);

    make_messages(run);
    fake_starpu_start(3, 200, run->seed);
    for (int r = 0; r < run->ranks; r++) {
        ranks[r] = (struct rank){.run = run, .number = r, .wire = fake_wire(wires, r)};
        if (pthread_create(&ranks[r].thread, NULL, be_rank, &ranks[r]))
            abort();
    }
    for (int r = 0; r < run->ranks; r++)
        pthread_join(ranks[r].thread, NULL);
    fake_starpu_stop();
    for (int r = 0; r < run->ranks; r++) {
        for (int s = 0; s < SIZES; s++)
            for (int i = 0; i < BUFFERS; i++)
                fake_handle_free(ranks[r].shelf[s][i]);
        for (int i = 0; run->any_order && i < ranks[r].n; i++) {
            const struct part *p = &ranks[r].part[i];

            if (p->in)
                fake_handle_free(p->in);
            if (p->out)
                fake_handle_free(p->out);
        }
    }
    fake_wires_free(wires);
    return NCCL_RIGHT;
}
