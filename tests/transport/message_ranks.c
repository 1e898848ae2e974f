/*
 * Messages between processes over MPI, on any number of them, one core each:
 *
 *     message_ranks SEEDS MESSAGES    random messages, submitted by each process in an order of its own
 *     message_ranks overlap           64 MiB while the receiver computes, then while the sender does
 *     message_ranks ... starpu        the same through StarPU-MPI
 *     message_ranks ... serialized    the same, where MPI is initialised for one thread at a time
 *
 * Exit status 1 after a line on stderr.
 */
#define _GNU_SOURCE 1 /* affinity */
#include "config.h"
#ifdef HAVE_MPI
#include <mpi.h>
#endif
#include "draw.h"
#include "starpipe/order.h"
#include "transport/post.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct sp_world world;
static uint64_t draws;
static int arrivals;

static double clock_ms(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static void wrong(const char *what, int i)
{
    fprintf(stderr, "rank %d: message %d: %s\n", world.rank, i, what);
    sp_transport_abort(1);
}

/* ---- random messages ------------------------------------------------------------------------- */

static int value(int i, unsigned k)
{
    return (int)((unsigned)i * 2654435761u + k * 40503u);
}

static void write_cpu(void *buffers[], void *arg)
{
    int *x = (int *)STARPU_VECTOR_GET_PTR(buffers[0]), i = (int)(intptr_t)arg;

    for (unsigned k = 0; k < STARPU_VECTOR_GET_NX(buffers[0]); k++)
        x[k] = value(i, k);
}

static void read_cpu(void *buffers[], void *arg)
{
    const int *x = (const int *)STARPU_VECTOR_GET_PTR(buffers[0]);
    int i = (int)(intptr_t)arg;

    for (unsigned k = 0; k < STARPU_VECTOR_GET_NX(buffers[0]); k++)
        if (x[k] != value(i, k))
            wrong("not what was sent", i);
}

static struct starpu_codelet write_cl = {
    .cpu_funcs = {write_cpu}, .nbuffers = 1, .modes = {STARPU_W}, .name = "write"};
static struct starpu_codelet read_cl = {
    .cpu_funcs = {read_cpu}, .nbuffers = 1, .modes = {STARPU_R}, .name = "read"};

static void submit(struct starpu_codelet *cl, starpu_data_handle_t handle, intptr_t arg)
{
    struct starpu_task *task = starpu_task_create();

    task->cl = cl;
    task->handles[0] = handle;
    task->cl_arg = (void *)arg; /* a number: nothing is freed */
    if (starpu_task_submit(task))
        wrong("no worker takes its task", (int)arg);
}

static void arrived(void *arg)
{
    *(double *)arg = clock_ms(CLOCK_MONOTONIC);
    __atomic_add_fetch(&arrivals, 1, __ATOMIC_RELAXED);
}

/* From a few bytes to half a megabyte: what MPI sends at once, in one piece, and in many. Tags come back. */
static long programs(int seeds, int n)
{
    struct {
        int src, dst, words;
    } m[n];
    struct sp_transfer times[n];
    int order[n];
    double at;
    long received = 0;

    for (int seed = 1; seed <= seeds; seed++) {
        draws = (uint64_t)seed;
        for (int i = 0; i < n; i++) {
            m[i].src = draw_below(&draws, world.size);
            m[i].dst = draw_below(&draws, world.size);
            m[i].words = 1 + draw_below(&draws, 1 << (2 + draw_below(&draws, 16)));
            order[i] = i;
        }
        draws = (uint64_t)(seed * 100 + world.rank);
        for (int k = n - 1; k > 0; k--) {
            int other = draw_below(&draws, k + 1), i = order[k];

            order[k] = order[other];
            order[other] = i;
        }
        memset(times, 0, sizeof times);
        for (int k = 0; k < n; k++) {
            int i = order[k];
            starpu_data_handle_t handle;

            if (m[i].src == m[i].dst || (m[i].src != world.rank && m[i].dst != world.rank))
                continue;
            starpu_vector_data_register(&handle, -1, 0, (uint32_t)m[i].words, sizeof(int));
            if (m[i].src == world.rank) {
                submit(&write_cl, handle, i + seed);
                sp_transport_send(handle, m[i].dst, SP_TAG_FIRST + i, "", &times[i]);
            } else {
                sp_transport_recv(handle, m[i].src, SP_TAG_FIRST + i, &times[i], arrived, &at);
                submit(&read_cl, handle, i + seed);
                received++;
            }
            starpu_data_unregister_submit(handle);
        }
        sp_transport_wait_all();
        if (arrivals != received)
            wrong("not all receives said so", arrivals);
        for (int i = 0; i < n; i++)
            if (m[i].src != m[i].dst && (m[i].src == world.rank || m[i].dst == world.rank) &&
                !(times[i].ready_us > 0 && times[i].begun_us >= times[i].ready_us &&
                  times[i].ended_us >= times[i].begun_us))
                wrong("its times are out of order", i);
    }
    return received;
}

/* ---- overlap --------------------------------------------------------------------------------- */

enum { OP_MS = 600 }; /* several times what the message takes, on a busy machine too */
static double op_began, op_ended;

/* An op of so much work, not of so long a time. */
static void compute_cpu(void *buffers[], void *arg)
{
    double from = clock_ms(CLOCK_THREAD_CPUTIME_ID);

    (void)buffers, (void)arg;
    op_began = clock_ms(CLOCK_MONOTONIC);
    while (clock_ms(CLOCK_THREAD_CPUTIME_ID) - from < OP_MS)
        ;
    op_ended = clock_ms(CLOCK_MONOTONIC);
}

static struct starpu_codelet compute_cl = {
    .cpu_funcs = {compute_cpu}, .nbuffers = 1, .modes = {STARPU_RW}, .name = "compute"};

/* 64 MiB to rank 1 while rank `busy` computes for OP_MS (-1: none); how long each of both took. */
static void one(starpu_data_handle_t message, starpu_data_handle_t other, int busy, double *took,
                double *op)
{
    double from, at = 0;

    sp_transport_barrier();
    from = clock_ms(CLOCK_MONOTONIC);
    if (world.rank == busy) {
        submit(&compute_cl, other, 0);
        usleep(20000); /* the op is under way */
        from = clock_ms(CLOCK_MONOTONIC);
    } else if (busy >= 0) {
        usleep(20000);
    }
    if (world.rank == 0)
        sp_transport_send(message, 1, SP_TAG_FIRST, "", NULL);
    else if (world.rank == 1)
        sp_transport_recv(message, 0, SP_TAG_FIRST, NULL, arrived, &at);
    sp_transport_wait_all();
    *took = (world.rank == 1 ? at : clock_ms(CLOCK_MONOTONIC)) - from;
    *op = op_ended - op_began;
    if (world.rank == 1 && busy == 1 && at > op_ended)
        wrong("it waited for the op of its receiver", 0);
}

static void overlap(void)
{
    const uint32_t bytes = 64u << 20;
    starpu_data_handle_t message, other;
    char *data = malloc(bytes);
    double alone, took, op;
    int k = 0;

    if (!data)
        wrong("out of memory", 0);
    memset(data, 1, bytes);
    starpu_vector_data_register(&message, STARPU_MAIN_RAM, (uintptr_t)data, bytes, 1);
    starpu_vector_data_register(&other, STARPU_MAIN_RAM, (uintptr_t)&k, 1, sizeof k);
    one(message, other, -1, &alone, &op);
    one(message, other, -1, &alone, &op);
    for (int busy = 1; busy >= 0; busy--) {
        one(message, other, busy, &took, &op);
        if (world.rank == 1)
            printf("64 MiB alone %.1f ms; while the %s computes %.1f\n", alone,
                   busy ? "receiver" : "sender", took);
        if (world.rank == busy)
            printf("the op of %d ms takes %.1f ms longer\n", OP_MS, op - OP_MS);
        fflush(stdout);
        if (world.rank == 1 && took > OP_MS - 20)
            wrong("it waited for the op of its sender", 0);
    }
    starpu_data_unregister(message);
    starpu_data_unregister(other);
    free(data);
}

int main(int argc, char **argv)
{
    struct starpu_conf conf;
    cpu_set_t all, one;
    int skip;

#ifdef HAVE_MPI
    if (!strcmp(argv[argc - 1], "serialized"))
        MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &skip);
#endif
    if (argc < 2 || sp_transport_join(&argc, &argv, &world))
        return 1;
    if (*argv[argc - 1] == 's' && sp_transport_use_starpu(true))
        return 1;
    /* The threads of a process share a core. */
    sched_getaffinity(0, sizeof all, &all);
    skip = world.node_rank % CPU_COUNT(&all);
    CPU_ZERO(&one);
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &all) && skip-- == 0)
            CPU_SET(c, &one);
    sched_setaffinity(0, sizeof one, &one);
    starpu_conf_init(&conf);
    conf.precedence_over_environment_variables = 1;
    conf.ncpus = 1;
    conf.ncuda = conf.nopencl = conf.nhip = 0;
    conf.sched_policy = &sp_order_strict;
    sp_order_rest(5000);
    if (sp_transport_start(&conf))
        return 1;
    sp_transport_crowded(true);
    sp_transport_barrier();
    if (!strcmp(argv[1], "overlap")) {
        overlap();
    } else {
        double from = clock_ms(CLOCK_MONOTONIC);
        long n = programs(atoi(argv[1]), argc > 2 ? atoi(argv[2]) : 100);

        printf("rank %d of %d received %ld messages in %.0f ms, its thread took %.0f\n", world.rank,
               world.size, n, clock_ms(CLOCK_MONOTONIC) - from, sp_transport_polling_us() / 1e3);
    }
    sp_transport_barrier();
    sp_transport_stop();
    sp_transport_leave();
    return 0;
}
