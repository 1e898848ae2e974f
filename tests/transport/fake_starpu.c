#include "transport/fake_starpu.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

struct request {
    struct request *next;
    bool writes, granted;
    void (*callback)(void *arg);
    void *arg;
};

struct _starpu_data_state {
    size_t bytes;
    void *memory;
    struct request *first; /* in order of submission; those granted lead */
};

enum { MOST_THREADS = 8, ROOM = 1 << 16 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static struct request calls[ROOM]; /* to be made: copies, as a request may go with its callback */
static unsigned first_call, last_call;
static pthread_t threads[MOST_THREADS];
static int n_threads, late;
static bool stopping;
static unsigned seeds;

starpu_data_handle_t fake_handle(size_t bytes)
{
    starpu_data_handle_t h = calloc(1, sizeof *h);

    h->bytes = bytes;
    h->memory = malloc(bytes);
    return h;
}

void fake_handle_free(starpu_data_handle_t h)
{
    if (h->first)
        abort();
    free(h->memory);
    free(h);
}

/* Grants the handle to all requests that may have it now. Called with the mutex held. */
static void grant(starpu_data_handle_t h)
{
    for (struct request *r = h->first; r; r = r->next) {
        if (r->writes && r != h->first)
            return;
        if (!r->granted) {
            if (last_call - first_call == ROOM)
                abort();
            r->granted = true;
            calls[last_call++ % ROOM] = *r;
            pthread_cond_signal(&more);
        }
        if (r->writes)
            return;
    }
}

static void *make_calls(void *arg)
{
    unsigned seed = *(unsigned *)arg;

    pthread_mutex_lock(&mutex);
    for (;;) {
        struct request call;

        while (first_call == last_call && !stopping)
            pthread_cond_wait(&more, &mutex);
        if (first_call == last_call)
            break;
        call = calls[first_call++ % ROOM];
        pthread_mutex_unlock(&mutex);
        if (late && rand_r(&seed) % 2)
            usleep((useconds_t)(rand_r(&seed) % late));
        call.callback(call.arg);
        pthread_mutex_lock(&mutex);
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}

void fake_starpu_start(int n, int late_us, uint64_t seed)
{
    static unsigned own[MOST_THREADS];

    n_threads = n;
    late = late_us;
    stopping = false;
    seeds = (unsigned)seed;
    for (int i = 0; i < n; i++) {
        own[i] = (unsigned)seed * 31u + (unsigned)i;
        if (pthread_create(&threads[i], NULL, make_calls, &own[i]))
            abort();
    }
}

void fake_starpu_stop(void)
{
    pthread_mutex_lock(&mutex);
    stopping = true;
    pthread_cond_broadcast(&more);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
}

/* ---- the part of StarPU --------------------------------------------------------------------------- */

int starpu_data_acquire_on_node_cb(starpu_data_handle_t h, int node,
                                   enum starpu_data_access_mode mode, void (*callback)(void *),
                                   void *arg)
{
    struct request *r = malloc(sizeof *r), **at = &h->first;
    bool now;

    (void)node;
    *r = (struct request){.writes = (mode & STARPU_W) != 0, .callback = callback, .arg = arg};
    pthread_mutex_lock(&mutex);
    while (*at)
        at = &(*at)->next;
    *at = r;
    now = at == &h->first && rand_r(&seeds) % 4 == 0;
    r->granted = now;
    if (!now)
        grant(h);
    pthread_mutex_unlock(&mutex);
    if (now)
        callback(arg);
    return 0;
}

/* Granted requests are interchangeable, so the first of the queue is released, a reader if readers
 * hold the handle. */
void starpu_data_release_on_node(starpu_data_handle_t h, int node)
{
    struct request *r;

    (void)node;
    pthread_mutex_lock(&mutex);
    r = h->first;
    if (!r || !r->granted)
        abort();
    h->first = r->next;
    free(r);
    grant(h);
    pthread_mutex_unlock(&mutex);
}

void *starpu_data_handle_to_pointer(starpu_data_handle_t h, unsigned node)
{
    (void)node;
    return h->memory;
}

size_t starpu_data_get_size(starpu_data_handle_t h)
{
    return h->bytes;
}
