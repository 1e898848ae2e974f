#include "transport/fake_wire.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8, ROOM = 1 << 12 };

struct channel {
    struct sp_agree_note notes[ROOM];
    unsigned told, heard;
    unsigned char bytes[256]; /* of the set-up: one thing at a time */
    size_t n_bytes;
};

struct all;

struct end {
    struct sp_wire wire;
    struct all *all;
    unsigned seed;
};

struct all {
    struct end ends[MOST]; /* first */
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    struct channel channel[MOST][MOST];
    int size, came, left, worst, result;
};

static struct end *end_of(struct sp_wire *wire)
{
    return (struct end *)wire;
}

static void give(struct sp_wire *wire, int to, const void *data, size_t bytes)
{
    struct all *all = end_of(wire)->all;
    struct channel *ch = &all->channel[wire->rank][to];

    if (bytes > sizeof ch->bytes)
        abort();
    pthread_mutex_lock(&all->mutex);
    while (ch->n_bytes)
        pthread_cond_wait(&all->moved, &all->mutex);
    memcpy(ch->bytes, data, bytes);
    ch->n_bytes = bytes;
    pthread_cond_broadcast(&all->moved);
    pthread_mutex_unlock(&all->mutex);
}

static void take(struct sp_wire *wire, int from, void *data, size_t bytes)
{
    struct all *all = end_of(wire)->all;
    struct channel *ch = &all->channel[from][wire->rank];

    pthread_mutex_lock(&all->mutex);
    while (!ch->n_bytes)
        pthread_cond_wait(&all->moved, &all->mutex);
    if (ch->n_bytes != bytes)
        abort();
    memcpy(data, ch->bytes, bytes);
    ch->n_bytes = 0;
    pthread_cond_broadcast(&all->moved);
    pthread_mutex_unlock(&all->mutex);
}

static int least(struct sp_wire *wire, int status)
{
    struct all *all = end_of(wire)->all;
    int result;

    pthread_mutex_lock(&all->mutex);
    while (all->left) /* of the call before */
        pthread_cond_wait(&all->moved, &all->mutex);
    all->worst = all->came == 0 || status < all->worst ? status : all->worst;
    if (++all->came == all->size) {
        all->left = all->size;
        all->came = 0;
        all->result = all->worst;
        pthread_cond_broadcast(&all->moved);
    }
    while (!all->left)
        pthread_cond_wait(&all->moved, &all->mutex);
    result = all->result;
    all->left--;
    pthread_cond_broadcast(&all->moved);
    pthread_mutex_unlock(&all->mutex);
    return result;
}

static void tell(struct sp_wire *wire, int to, const struct sp_agree_note *note)
{
    struct all *all = end_of(wire)->all;
    struct channel *ch = &all->channel[wire->rank][to];

    pthread_mutex_lock(&all->mutex);
    if (ch->told - ch->heard == ROOM)
        abort();
    ch->notes[ch->told++ % ROOM] = *note;
    pthread_mutex_unlock(&all->mutex);
}

static bool hear(struct sp_wire *wire, struct sp_agree_note *note)
{
    struct end *end = end_of(wire);
    struct all *all = end->all;
    bool there = false;
    int first;

    if (rand_r(&end->seed) % 3 == 0)
        return false;
    pthread_mutex_lock(&all->mutex);
    first = rand_r(&end->seed) % all->size;
    for (int i = 0; i < all->size && !there; i++) {
        struct channel *ch = &all->channel[(first + i) % all->size][wire->rank];

        there = ch->heard < ch->told;
        if (there)
            *note = ch->notes[ch->heard++ % ROOM];
    }
    pthread_mutex_unlock(&all->mutex);
    return there;
}

static bool busy(struct sp_wire *wire)
{
    (void)wire;
    return false;
}

static void close_wire(struct sp_wire *wire)
{
    (void)wire;
}

struct sp_wire *fake_wires(int size, uint64_t seed)
{
    struct all *all = calloc(1, sizeof *all);

    if (!all || size > MOST)
        abort();
    pthread_mutex_init(&all->mutex, NULL);
    pthread_cond_init(&all->moved, NULL);
    all->size = size;
    for (int r = 0; r < size; r++)
        all->ends[r] = (struct end){{r, size, give, take, least, tell, hear, busy, close_wire},
                                    all,
                                    (unsigned)seed * 17u + (unsigned)r};
    return &all->ends[0].wire;
}

struct sp_wire *fake_wire(struct sp_wire *wires, int rank)
{
    return &end_of(wires)->all->ends[rank].wire;
}

void fake_wires_free(struct sp_wire *wires)
{
    struct all *all = end_of(wires)->all;

    pthread_mutex_destroy(&all->mutex);
    pthread_cond_destroy(&all->moved);
    free(all);
}
