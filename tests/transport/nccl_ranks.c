/*
 * Messages over src/transport/nccl/nccl_messages.c between processes, with the real StarPU and MPI: tasks
 * write and read vectors in orders that cross, and every value is checked. Linked with the fake
 * CUDA and NCCL (tests/fake_cuda, fake_nccl.c), the vectors are in main memory; linked with CUDA's
 * runtime, in the GPU's, if StarPU has one.
 *
 *   mpirun -np N nccl_ranks [SEEDS [MESSAGES]]     random programs; the last line has their figures
 *   mpirun -np 2 nccl_ranks latency                a small message to and fro
 */
#include "draw.h"
#include "transport/nccl/nccl.h"
#include <mpi.h>
#include <starpu_mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 1024, SIZES = 3, BUFFERS = 3 };

static int rank, size, arrivals;
static struct sp_nccl *nccl;

static uint64_t draws;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- tasks ------------------------------------------------------------------------------------------ */

/* The values of a message that `rank` writes. */
struct values {
    int message, rank;
};

static float value(int message, int of, size_t i)
{
    return (float)((size_t)(message * 7 + of * 1013) % 8191 + i % 4096);
}

static void write_cpu(void *buffers[], void *arg)
{
    const struct values *v = arg;
    float *x = (float *)STARPU_VECTOR_GET_PTR((struct starpu_vector_interface *)buffers[0]);

    for (size_t i = 0; i < STARPU_VECTOR_GET_NX((struct starpu_vector_interface *)buffers[0]); i++)
        x[i] = value(v->message, v->rank, i);
}

static void read_cpu(void *buffers[], void *arg)
{
    const struct values *v = arg;
    const float *x = (float *)STARPU_VECTOR_GET_PTR((struct starpu_vector_interface *)buffers[0]);

    for (size_t i = 0; i < STARPU_VECTOR_GET_NX((struct starpu_vector_interface *)buffers[0]);
         i++) {
        float want = value(v->message, v->rank, i);

        if (x[i] != want) {
            fprintf(stderr, "rank %d: message %d: %g at %zu instead of %g\n", rank, v->message,
                    x[i], i, want);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

static struct starpu_codelet write_cl = {
    .cpu_funcs = {write_cpu}, .nbuffers = 1, .modes = {STARPU_W}, .name = "write"};
static struct starpu_codelet read_cl = {
    .cpu_funcs = {read_cpu}, .nbuffers = 1, .modes = {STARPU_R}, .name = "read"};

static void submit(struct starpu_codelet *cl, starpu_data_handle_t handle, struct values v)
{
    struct starpu_task *t = starpu_task_create();
    struct values *arg = malloc(sizeof *arg);

    *arg = v;
    t->cl = cl;
    t->handles[0] = handle;
    t->cl_arg = arg;
    t->cl_arg_size = sizeof *arg;
    t->cl_arg_free = 1;
    if (starpu_task_submit(t))
        MPI_Abort(MPI_COMM_WORLD, 1);
}

/* ---- random programs ---------------------------------------------------------------------------------- */

struct message {
    int src, dst;
    int floats, shelf;
};

static struct message messages[MOST];
static starpu_data_handle_t shelves[SIZES][BUFFERS], own[2 * MOST];
static int next[SIZES], n_own;

static starpu_data_handle_t vector(int floats)
{
    starpu_data_handle_t handle;

    starpu_vector_data_register(&handle, -1, 0, (uint32_t)floats, sizeof(float));
    return handle;
}

static starpu_data_handle_t handle_for(const struct message *m, bool any_order)
{
    if (!any_order)
        return shelves[m->shelf][next[m->shelf]++ % BUFFERS];
    return own[n_own++] = vector(m->floats);
}

static void arrived(void *arg)
{
    (void)arg;
    __atomic_add_fetch(&arrivals, 1, __ATOMIC_RELAXED);
}

/* This rank's part of message i. Returns the receives. */
static int submit_part(int i, bool any_order)
{
    const struct message *m = &messages[i];
    int64_t tag = ((int64_t)1 << 45) + (int64_t)(MOST - i) * 1000003;
    starpu_data_handle_t handle;

    if (m->dst == rank) {
        handle = handle_for(m, any_order);
        sp_nccl_recv(nccl, handle, m->src, tag, arrived, NULL);
        submit(&read_cl, handle, (struct values){i, m->src});
    }
    if (m->src == rank) {
        handle = handle_for(m, any_order);
        submit(&write_cl, handle, (struct values){i, rank});
        sp_nccl_send(nccl, handle, m->dst, tag);
    }
    return m->dst == rank;
}

/* The same on all ranks. */
static void make_messages(int n, bool any_order)
{
    for (int i = 0; i < n; i++) {
        struct message *m = &messages[i];

        *m = (struct message){draw_below(&draws, size), draw_below(&draws, size - 1), 0,
                              draw_below(&draws, SIZES)};
        m->dst += m->dst >= m->src;
        m->floats = any_order ? 1 + 37 * i + draw_below(&draws, 30) : 500 + 7000 * m->shelf;
    }
}

/* Every rank in an order of its own, or all in one order with few buffers. Returns this rank's messages. */
static int run(int seed, int n)
{
    bool any_order = seed & 1;
    int order[MOST], receives = 0, mine = 0;

    draws = (uint64_t)seed;
    make_messages(n, any_order);
    draws = (uint64_t)(seed * 100 + rank);
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; any_order && i > 0; i--) {
        int k = draw_below(&draws, i + 1), swap = order[i];

        order[i] = order[k];
        order[k] = swap;
    }
    arrivals = 0;
    for (int i = 0; i < n; i++) {
        const struct message *m = &messages[order[i]];

        receives += submit_part(order[i], any_order);
        mine += m->src == rank || m->dst == rank;
    }
    if (sp_nccl_wait_all(nccl))
        MPI_Abort(MPI_COMM_WORLD, 1);
    starpu_mpi_wait_for_all(MPI_COMM_WORLD);
    if (arrivals != receives) {
        fprintf(stderr, "rank %d: %d of %d receives said so\n", rank, arrivals, receives);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    while (n_own > 0)
        starpu_data_unregister_no_coherency(own[--n_own]);
    return mine;
}

/* Submits messages over StarPU-MPI, whose own thread runs beside the transport. */
static void other_messages(int seed)
{
    starpu_data_handle_t handle = vector(1000);

    if (rank == 0) {
        submit(&write_cl, handle, (struct values){seed, 0});
        for (int r = 1; r < size; r++)
            starpu_mpi_isend_detached(handle, r, seed, MPI_COMM_WORLD, NULL, NULL);
    } else {
        starpu_mpi_irecv_detached(handle, 0, seed, MPI_COMM_WORLD, NULL, NULL);
        submit(&read_cl, handle, (struct values){seed, 0});
    }
    starpu_data_unregister_submit(handle);
}

static void programs(int seeds, int n)
{
    double from = now(), cpu;
    long mine = 0, all;

    for (int s = 0; s < SIZES; s++)
        for (int i = 0; i < BUFFERS; i++)
            shelves[s][i] = vector(500 + 7000 * s);
    for (int seed = 1; seed <= seeds; seed++) {
        other_messages(seed);
        mine += run(seed, n);
    }
    for (int s = 0; s < SIZES; s++)
        for (int i = 0; i < BUFFERS; i++)
            starpu_data_unregister_no_coherency(shelves[s][i]);
    all = mine;
    cpu = sp_nccl_polling_us(nccl) * 1e-6;
    if (rank == 0)
        printf("rank 0 of %d: %d programs, %ld messages in %.2f s, its thread took %.2f s\n", size,
               seeds, all, now() - from, cpu);
}

/* ---- latency ------------------------------------------------------------------------------------------ */

static void latency(void)
{
    enum { TURNS = 2000 };
    starpu_data_handle_t handle = vector(1);
    double from, cpu;

    if (rank == 0)
        submit(&write_cl, handle, (struct values){0, 0});
    from = now();
    cpu = sp_nccl_polling_us(nccl);
    for (int i = 0; i < TURNS; i++) {
        if (i % 2 == rank)
            sp_nccl_send(nccl, handle, !rank, i);
        else
            sp_nccl_recv(nccl, handle, !rank, i, NULL, NULL);
    }
    sp_nccl_wait_all(nccl);
    starpu_mpi_wait_for_all(MPI_COMM_WORLD);
    if (rank == 0)
        printf("a message to and fro: %.1f us each way, of which the thread works %.1f\n",
               (now() - from) * 1e6 / TURNS, (sp_nccl_polling_us(nccl) - cpu) / TURNS);
    submit(&read_cl, handle, (struct values){0, 0});
    starpu_data_unregister(handle);
}

/* ---- start and end -------------------------------------------------------------------------------------- */

static void fail(int status)
{
    MPI_Abort(MPI_COMM_WORLD, status);
}

static void start(void)
{
    struct sp_nccl_config cfg = {.node = STARPU_MAIN_RAM, .fail = fail};
    struct sp_wire *wire;
    char why[256] = "";
    double from = now();
    int gpu;

    if (starpu_worker_get_ids_by_type(STARPU_CUDA_WORKER, &gpu, 1) > 0) {
        cfg.node = starpu_worker_get_memory_node((unsigned)gpu);
        cfg.device = starpu_worker_get_devid(gpu);
    }
    if (sp_wire_mpi(&wire, why, sizeof why) || sp_nccl_start(&cfg, wire, why, sizeof why, &nccl)) {
        if (*why)
            fprintf(stderr, "rank %d: %s\n", rank, why);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (rank == 0)
        printf("NCCL %d, started in %.2f s\n", sp_nccl_version(nccl), now() - from);
}

int main(int argc, char **argv)
{
    struct starpu_conf conf;
    int level;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    starpu_conf_init(&conf);
    conf.nopencl = conf.nhip = 0;
    if (starpu_mpi_init_conf(NULL, NULL, 0, MPI_COMM_WORLD, &conf))
        MPI_Abort(MPI_COMM_WORLD, 1);
    start();
    if (argc > 1 && !strcmp(argv[1], "latency"))
        latency();
    else
        programs(argc > 1 ? atoi(argv[1]) : 4,
                 argc > 2 && atoi(argv[2]) < MOST ? atoi(argv[2]) : 200);
    sp_nccl_stop(nccl);
    starpu_mpi_shutdown();
    MPI_Finalize();
    return 0;
}
