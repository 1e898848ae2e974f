#include "offload/tensor_sums.h"
#include "sp_error.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { BUCKETS = 4096, NAME = 96 };

struct sum {
    struct sum *next;
    uintptr_t place;
    size_t bytes;
    uint64_t sum;
    char name[NAME];
};

static struct sum *buckets[BUCKETS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

bool sp_tensor_sums_on(void)
{
    static int on = -1;
    const char *text;

    if (on < 0) {
        text = getenv("SP_CHECK");
        on = text && atoi(text) > 0;
    }
    return on;
}

/* The caller holds the mutex. NULL: the place has no entry and `makes` is false, or no memory. */
static struct sum *at_place(uintptr_t place, bool makes)
{
    struct sum **first = &buckets[XXH3_64bits(&place, sizeof place) % BUCKETS], *s = *first;

    while (s && s->place != place)
        s = s->next;
    if (s || !makes)
        return s;
    s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->place = place;
    s->next = *first;
    return *first = s;
}

void sp_tensor_sum_note(uintptr_t place, const void *memory, size_t bytes)
{
    uint64_t sum;
    struct sum *s;

    if (!sp_tensor_sums_on())
        return;
    sum = XXH3_64bits(memory, bytes);
    pthread_mutex_lock(&mutex);
    s = at_place(place, true);
    if (s) {
        s->bytes = bytes;
        s->sum = sum;
        s->name[0] = '\0';
    }
    pthread_mutex_unlock(&mutex);
}

void sp_tensor_sum_name(uintptr_t place, const char *name)
{
    struct sum *s;

    if (!sp_tensor_sums_on())
        return;
    pthread_mutex_lock(&mutex);
    s = at_place(place, false);
    if (s)
        snprintf(s->name, NAME, "%s", name);
    pthread_mutex_unlock(&mutex);
}

void sp_tensor_sum_words(uintptr_t place, char *out, size_t n)
{
    const struct sum *s;

    pthread_mutex_lock(&mutex);
    s = at_place(place, false);
    snprintf(out, n, "%s", s && s->name[0] ? s->name : "a tensor");
    pthread_mutex_unlock(&mutex);
}

bool sp_tensor_sum_check(uintptr_t place, const void *memory, size_t bytes)
{
    uint64_t was = 0, is;
    char name[NAME];
    struct sum *s;
    bool known;

    if (!sp_tensor_sums_on())
        return true;
    is = XXH3_64bits(memory, bytes);
    pthread_mutex_lock(&mutex);
    s = at_place(place, false);
    known = s && s->bytes == bytes;
    if (known)
        was = s->sum;
    pthread_mutex_unlock(&mutex);
    if (!known || was == is)
        return true;
    sp_tensor_sum_words(place, name, sizeof name);
    sp_error(EIO,
             "offload: %s: what came back is not what left: %zu bytes with checksum %016llx, it "
             "was %016llx",
             name, bytes, (unsigned long long)is, (unsigned long long)was);
    return false;
}
