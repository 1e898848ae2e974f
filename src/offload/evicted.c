#include "offload/evicted.h"
#include "offload/host.h"
#include "offload/tensor_sums.h"
#include "sinks/starpu/cuda.h"
#include "sinks/starpu/tensor.h"
#include "sp_atomic.h"
#include "sp_error.h"
#include "starpipe/order.h"
#include <stdlib.h>

/* A piece of a buffer on its way to its place or from there. */
struct sp_transit {
    struct sp_return *move;
    struct sp_place *place;
    size_t at;
    int turn;                /* among the transfers of the place */
    struct sp_transit *next; /* in the list of transfers that wait for the place */
};

struct sp_leave {
    struct sp_mover *mover;
    bool done;
    unsigned held; /* position of the task that waits for it; 0: none */
    int users;     /* the write and the waiting task; the last one frees it */
};

/*
 * A transfer of a buffer's pieces. It starts once the buffer is acquired. A last read is preceded by
 * a gate, an acquisition of the buffer without memory, which is released once the caller wants the
 * tensor.
 */
struct sp_return {
    struct sp_evicted *evicted;
    starpu_data_handle_t buffer;
    bool writes, last; /* last: the place is free afterwards */
    bool gated, told;  /* the gate is acquired; the tensor is wanted */
    char *memory;
    uint64_t used; /* by this task, on a GPU (sinks/starpu/cuda.h) */
    struct sp_memory_count count;
    struct sp_leave *leave;
    struct sp_return *next;
    int n, left;
    struct sp_transit piece[]; /* [n] */
};

/* ---- places ------------------------------------------------------------------------------------ */

int sp_evicted_create(struct sp_evicted *a, struct sp_mover *mover, struct sp_disk *disk)
{
    int err = 0;

    *a = (struct sp_evicted){.mover = mover, .disk = disk};
    for (int i = 0; !disk && !err && i < 2; i++)
        err =
            sp_transfers_start_copies(&a->copies[i], starpu_memory_node_get_devid(mover->node), i);
    return err;
}

void sp_evicted_destroy(struct sp_evicted *a)
{
    for (int i = 0; a->mover && !a->disk && i < 2; i++)
        sp_transfers_stop(&a->copies[i]);
}

struct sp_place *sp_place_new(struct sp_evicted *a, size_t bytes, const char *name)
{
    struct sp_place *place = malloc(sizeof *place);
    void *memory = a->disk ? NULL : sp_host_take(bytes);

    SP_NEED(place && (a->disk || memory), "no memory for a tensor that is away");
    *place =
        (struct sp_place){.evicted = a,
                          .at = a->disk ? sp_disk_take(a->disk, bytes) : (off_t)(uintptr_t)memory,
                          .bytes = bytes};
    snprintf(place->name, sizeof place->name, "%s", name);
    return place;
}

static void place_free(struct sp_place *place)
{
    struct sp_evicted *a = place->evicted;

    if (a->disk)
        sp_disk_give(a->disk, place->at, place->bytes);
    else
        sp_host_give((void *)(uintptr_t)place->at, place->bytes);
    free(place);
}

void sp_place_forget(struct sp_place *place)
{
    struct sp_mover *m = place->evicted->mover;
    bool idle;

    pthread_mutex_lock(&m->mutex);
    place->forgotten = true;
    idle = place->done == place->submitted;
    pthread_mutex_unlock(&m->mutex);
    if (idle)
        place_free(place);
}

/* ---- transfers --------------------------------------------------------------------------------- */

/* The node on which buffers are acquired: the worker's own memory. If a file is behind the memory of
 * a GPU's host, main memory, from which StarPU copies on. */
static unsigned node_of(const struct sp_evicted *a)
{
    unsigned node = a->mover->node;

    return a->disk && starpu_node_get_kind(node) != STARPU_CPU_RAM ? STARPU_MAIN_RAM : node;
}

static int64_t bytes_of(const struct sp_return *move)
{
    int64_t sum = 0;

    for (int i = 0; i < move->n; i++)
        sum += (int64_t)move->piece[i].place->bytes;
    return sum;
}

/* The caller holds the mover's mutex. */
static void count(const struct sp_return *move, int64_t sign)
{
    int64_t bytes = sign * bytes_of(move);

    if (move->count.live)
        sp_raise(move->count.peak, __atomic_add_fetch(move->count.live, bytes, __ATOMIC_RELAXED));
}

/* All pieces of a transfer have ended. */
static void end(struct sp_return *move, unsigned held)
{
    struct sp_mover *m = move->evicted->mover;

    starpu_data_release_on_node(move->buffer, (int)node_of(move->evicted));
    /* a last read is not prefetched: later submissions may already have freed the tensor */
    if (!move->writes && !move->last && m->node != node_of(move->evicted))
        starpu_data_prefetch_on_node(move->buffer, m->node, 1);
    if (held)
        sp_order_release(m->worker, held);
    if (move->last)
        place_free(move->piece[0].place);
    free(move);
}

static void start(struct sp_transit *piece);

/* Removes and returns the transfer whose turn it is at a place, if it waits there. */
static struct sp_transit *take_next(struct sp_place *place)
{
    struct sp_transit **at = &place->waiting, *next;

    while (*at && (*at)->turn != place->done)
        at = &(*at)->next;
    next = *at;
    if (next)
        *at = next->next;
    return next;
}

/* Marks a write as done. Returns the position that waits for it, or 0. */
static unsigned end_leave(struct sp_leave *leave)
{
    unsigned held = leave->held;

    leave->done = true;
    if (--leave->users == 0)
        free(leave);
    return held;
}

static void piece_done(void *arg)
{
    struct sp_transit *piece = arg, *next;
    struct sp_return *move = piece->move;
    struct sp_mover *m = move->evicted->mover;
    struct sp_place *place = piece->place;
    unsigned held = 0;
    bool all, forgotten;

    if (move->writes)
        sp_tensor_sum_name(sp_tensor_place(place->evicted->disk ? 0 : -1, place->at), place->name);

    pthread_mutex_lock(&m->mutex);
    *(move->writes ? &m->moved.left : &m->moved.returned) += (int64_t)sp_host_round(place->bytes);
    place->done++;
    forgotten = place->forgotten && place->done == place->submitted;
    next = take_next(place);
    all = --move->left == 0;
    if (all && move->writes)
        count(move, -1);
    if (all && move->leave)
        held = end_leave(move->leave);
    pthread_mutex_unlock(&m->mutex);
    if (next)
        start(next);
    if (all)
        end(move, held);
    if (forgotten)
        place_free(place);
}

static void start(struct sp_transit *piece)
{
    struct sp_return *move = piece->move;
    struct sp_evicted *a = move->evicted;
    struct sp_transfers *queue =
        a->disk ? sp_disk_transfers(a->disk, move->writes) : &a->copies[move->writes];

    sp_transfer_post(queue,
                     (struct sp_moved_bytes){.memory = move->memory + piece->at,
                                             .at = piece->place->at,
                                             .bytes = piece->place->bytes,
                                             .used = move->used},
                     piece_done, piece);
}

static void go(struct sp_return *move)
{
    struct sp_mover *m = move->evicted->mover;

    for (int i = 0, n = move->n; i < n; i++) { /* the last piece may free `move` */
        struct sp_transit *piece = &move->piece[i];
        bool waits;

        pthread_mutex_lock(&m->mutex);
        waits = piece->place->done != piece->turn;
        if (waits) {
            piece->next = piece->place->waiting;
            piece->place->waiting = piece;
        }
        pthread_mutex_unlock(&m->mutex);
        if (!waits)
            start(piece);
    }
}

static void acquired(void *arg)
{
    struct sp_return *move = arg;

    move->memory = starpu_data_handle_to_pointer(move->buffer, node_of(move->evicted));
    if (starpu_node_get_kind(node_of(move->evicted)) == STARPU_CUDA_RAM)
        move->used = ((const struct sp_gpu_vector *)starpu_data_get_interface_on_node(
                          move->buffer, node_of(move->evicted)))
                         ->used;
    go(move);
}

static struct sp_return *new_move(struct sp_evicted *a, struct sp_tensor *buffer, bool writes,
                                  const struct sp_piece *piece, int n)
{
    struct sp_return *move = malloc(sizeof *move + sizeof *move->piece * (size_t)n);

    SP_NEED(move, "no memory to move a tensor");
    *move = (struct sp_return){
        .evicted = a, .buffer = sp_handle(buffer), .writes = writes, .n = n, .left = n};
    for (int i = 0; i < n; i++) {
        struct sp_place *place = piece[i].place;

        move->piece[i] = (struct sp_transit){
            .move = move, .place = place, .at = piece[i].at, .turn = place->submitted++};
    }
    return move;
}

static void acquire(struct sp_return *move, int node, void (*then)(void *move))
{
    int err = starpu_data_acquire_on_node_cb(move->buffer, node, move->writes ? STARPU_R : STARPU_W,
                                             then, move);

    STARPU_ASSERT_MSG(!err, "starpipe: a tensor cannot be moved");
}

static void submit(struct sp_return *move)
{
    acquire(move, (int)node_of(move->evicted), acquired);
}

/* Opens the gate once it is acquired and the tensor is wanted, whichever comes last. */
static void pass_gate(struct sp_return *move, bool *came)
{
    pthread_mutex_t *mutex = &move->evicted->mover->mutex;
    bool opens;

    pthread_mutex_lock(mutex);
    *came = true;
    opens = move->gated && move->told;
    pthread_mutex_unlock(mutex);
    if (opens)
        starpu_data_release_on_node(move->buffer, STARPU_ACQUIRE_NO_NODE);
}

static void gated(void *arg)
{
    struct sp_return *move = arg;

    pass_gate(move, &move->gated);
}

/* ---- interface
 * ---------------------------------------------------------------------------------- */

void sp_evicted_write(struct sp_evicted *a, struct sp_tensor *buffer, const struct sp_piece *piece,
                      int n, struct sp_leave **leave, struct sp_memory_count count)
{
    struct sp_return *move = new_move(a, buffer, true, piece, n);

    move->count = count;
    if (leave) {
        *leave = malloc(sizeof **leave);
        SP_NEED(*leave, "no memory to move a tensor");
        **leave = (struct sp_leave){.mover = a->mover, .users = 2};
        move->leave = *leave;
    }
    submit(move);
}

void sp_leave_wait(struct sp_leave *leave, unsigned position)
{
    struct sp_mover *m = leave->mover;

    pthread_mutex_lock(&m->mutex);
    if (!leave->done) {
        leave->held = position;
        sp_order_hold(m->worker, position);
    }
    if (--leave->users == 0)
        free(leave);
    pthread_mutex_unlock(&m->mutex);
}

void sp_evicted_read(struct sp_evicted *a, struct sp_tensor *buffer, const struct sp_piece *piece,
                     int n)
{
    submit(new_move(a, buffer, false, piece, n));
}

struct sp_return *sp_evicted_return(struct sp_evicted *a, struct sp_tensor *buffer,
                                    struct sp_place *place, struct sp_memory_count count,
                                    struct sp_return *next)
{
    struct sp_return *move = new_move(a, buffer, false, &(struct sp_piece){.place = place}, 1);

    move->last = true;
    move->count = count;
    move->next = next;
    acquire(move, STARPU_ACQUIRE_NO_NODE, gated);
    submit(move);
    return move;
}

void sp_return_begin(struct sp_return *first)
{
    for (struct sp_return *move = first, *next; move; move = next) {
        pthread_mutex_t *mutex = &move->evicted->mover->mutex;

        next = move->next;
        pthread_mutex_lock(mutex);
        count(move, 1);
        pthread_mutex_unlock(mutex);
        pass_gate(move, &move->told);
    }
}
