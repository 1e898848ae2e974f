#include "sinks/count.h"
#include "codelets/task/codelet.h"
#include "offload/evicted.h"
#include "sp_error.h"
#include <stdlib.h>

/* ---- tensors ----------------------------------------------------------------------------------- */

static void make(struct sp_tensor *t, void *memory, const char *name)
{
    (void)t, (void)memory, (void)name;
}

static void unmake(struct sp_tensor *t, bool value)
{
    (void)t, (void)value;
}

static void forget(struct sp_tensor *t, enum sp_pool_dead dead)
{
    (void)t, (void)dead;
}

static void cut(struct sp_tensor *whole, int n, struct sp_tensor **part)
{
    (void)whole, (void)n, (void)part;
}

static void view(struct sp_tensor *whole, int n, struct sp_tensor **part, bool parts)
{
    (void)whole, (void)n, (void)part, (void)parts;
}

/* ---- submissions
 * ------------------------------------------------------------------------------- */

static void insert(const struct sp_task_context *ctx, struct sp_task *task, double flops)
{
    const struct sp_task_args *a = task->args;
    struct sp_meter *m = ctx->meter;

    (void)flops;
    if (m) {
        m->live_bytes += a->acquire_bytes;
        m->peak_bytes = m->live_bytes > m->peak_bytes ? m->live_bytes : m->peak_bytes;
        if (ctx->sink->told)
            ctx->sink->told(ctx->sink->told_arg);
        m->live_bytes -= a->release_bytes;
    }
    sp_task_free(task, true);
}

static void send(struct sp_tensor *t, int rank, int64_t tag, const char *name,
                 struct sp_transfer *times)
{
    (void)t, (void)rank, (void)tag, (void)name, (void)times;
}

static void receive(struct sp_tensor *t, int rank, int64_t tag, struct sp_transfer *times,
                    void (*arrived)(void *arg), void *arg)
{
    (void)t, (void)rank, (void)tag, (void)times, (void)arrived, (void)arg;
}

static bool no(void)
{
    return false;
}

static void step(unsigned long number)
{
    (void)number;
}

static void wait(void)
{
}

static void bound(int worker, int64_t bytes)
{
    (void)worker, (void)bytes;
}

static void discard(int worker)
{
    (void)worker;
}

static double now_us(void)
{
    return 0;
}

/* ---- offloading
 * -------------------------------------------------------------------------------- */

static void start_mover(struct sp_mover *m, unsigned node, int worker)
{
    *m = (struct sp_mover){.tier = node, .worker = worker};
}

static void stop_mover(struct sp_mover *m, struct sp_move *moves, size_t n)
{
    (void)m, (void)moves, (void)n;
}

static void evict(struct sp_move *move, struct sp_mover *m, struct sp_tensor *const *tensors, int n,
                  struct sp_memory_count count)
{
    (void)move, (void)m, (void)tensors, (void)n, (void)count;
}

static void gate(struct sp_move *move, unsigned position)
{
    (void)move, (void)position;
}

static int start_away(struct sp_evicted *a, struct sp_mover *m, struct sp_disk *disk)
{
    *a = (struct sp_evicted){.mover = m, .disk = disk};
    return 0;
}

static void stop_away(struct sp_evicted *a)
{
    (void)a;
}

static struct sp_place *new_place(struct sp_evicted *a, size_t bytes, const char *name)
{
    struct sp_place *place = malloc(sizeof *place);

    (void)name;
    SP_NEED(place, "no memory for a tensor that is away");
    *place = (struct sp_place){.evicted = a, .bytes = bytes};
    return place;
}

static void write_away(struct sp_evicted *a, struct sp_tensor *buffer, const struct sp_piece *piece,
                       int n, struct sp_leave **leave, struct sp_memory_count count)
{
    (void)a, (void)buffer;
    for (int i = 0; count.live && i < n; i++)
        *count.live -= (int64_t)piece[i].place->bytes;
    if (leave)
        *leave = NULL;
}

static void wait_away(struct sp_leave *leave, unsigned position)
{
    (void)leave, (void)position;
}

static void read_away(struct sp_evicted *a, struct sp_tensor *buffer, const struct sp_piece *piece,
                      int n)
{
    (void)a, (void)buffer, (void)piece, (void)n;
}

static struct sp_return *fetch(struct sp_evicted *a, struct sp_tensor *buffer,
                               struct sp_place *place, struct sp_memory_count count,
                               struct sp_return *next)
{
    (void)a, (void)buffer;
    if (count.live)
        *count.live += (int64_t)place->bytes;
    free(place);
    return next;
}

static void forget_away(struct sp_place *place)
{
    free(place);
}

static const struct sp_tier_ops tier = {.start = start_mover,
                                        .stop = stop_mover,
                                        .evict = evict,
                                        .gate = gate,
                                        .evicted_start = start_away,
                                        .evicted_stop = stop_away,
                                        .place = new_place,
                                        .write = write_away,
                                        .wait = wait_away,
                                        .read = read_away,
                                        .fetch = fetch,
                                        .forget = forget_away};

static const struct sp_sink_ops ops = {.make = make,
                                       .unmake = unmake,
                                       .forget = forget,
                                       .cut = cut,
                                       .uncut = cut,
                                       .view = view,
                                       .insert = insert,
                                       .send = send,
                                       .receive = receive,
                                       .names_messages = no,
                                       .counts_in_int = no,
                                       .step = step,
                                       .wait = wait,
                                       .bound = bound,
                                       .discard = discard,
                                       .now_us = now_us,
                                       .tier = &tier};

void sp_count_begin(struct sp_sink *s)
{
    *s = (struct sp_sink){.ops = &ops};
}

void sp_count_watch(struct sp_sink *s, void (*told)(void *arg), void *arg)
{
    s->told = told;
    s->told_arg = arg;
}

size_t sp_count_scratch(const struct sp_sink *s)
{
    size_t sum = 0;

    for (int i = 0; i < s->n_scratch; i++)
        sum += sp_tensor_size(s->scratch[i]);
    return sum;
}
