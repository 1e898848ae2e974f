/* The transport over NCCL: submissions, start and end. */
#include "transport/nccl/nccl.h"
#include "transport/nccl/nccl_thread.h"
#include "transport/poll.h"
#include "sp_error.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- submissions ----------------------------------------------------------------------------- */

/* StarPU calls this when the handle is acquired. */
static void acquired(void *arg)
{
    struct sp_nccl_message *m = arg;
    struct sp_nccl *n = m->nccl;

    pthread_mutex_lock(&n->mutex);
    m->next = NULL;
    *n->ready_end = m;
    n->ready_end = &m->next;
    pthread_cond_signal(&n->wake);
    pthread_mutex_unlock(&n->mutex);
}

/* Ends the run after a mistake of this program, in a function that cannot return an error. */
static void mistake(struct sp_nccl *n, const char *what, int rank, int64_t tag)
{
    sp_error(EINVAL, "internal: message %" PRId64 ", rank %d to rank %d: %s", tag, n->links.rank,
             rank, what);
    if (n->cfg.fail)
        n->cfg.fail(1);
    abort();
}

static void submit(struct sp_nccl *n, struct sp_nccl_link *link, int peer,
                   const struct sp_nccl_message *what, enum starpu_data_access_mode mode)
{
    struct sp_nccl_message *m = malloc(sizeof *m);
    bool twice = false;

    if (!m || !link->comm)
        mistake(n, m ? "no communicator was made for it" : "out of memory", peer, what->part.tag);
    *m = *what;
    m->nccl = n;
    m->link = link;
    m->part.bytes = starpu_data_get_size(m->handle);
    pthread_mutex_lock(&n->mutex);
    for (const struct sp_nccl_message *k = link->submitted; k; k = k->older)
        twice |= k->part.tag == m->part.tag;
    m->older = link->submitted;
    link->submitted = m;
    n->pending++;
    pthread_mutex_unlock(&n->mutex);
    if (twice)
        mistake(n, "its tag is on its way already", peer, m->part.tag);
    if (starpu_data_acquire_on_node_cb(m->handle, (int)n->cfg.node, mode, acquired, m))
        mistake(n, "StarPU does not give its handle", peer, m->part.tag);
}

void sp_nccl_send(struct sp_nccl *n, starpu_data_handle_t handle, int dst, int64_t tag)
{
    submit(n, &n->links.to[dst], dst,
           &(struct sp_nccl_message){.part = {.tag = tag}, .handle = handle}, STARPU_R);
}

void sp_nccl_recv(struct sp_nccl *n, starpu_data_handle_t handle, int src, int64_t tag,
                  void (*arrived)(void *arg), void *arg)
{
    submit(n, &n->links.from[src], src,
           &(struct sp_nccl_message){
               .part = {.tag = tag}, .handle = handle, .arrived = arrived, .arg = arg},
           STARPU_W);
}

void sp_nccl_sum(struct sp_nccl *n, starpu_data_handle_t handle, int group, int64_t tag)
{
    submit(n, &n->links.groups[group], n->links.groups[group].members[0],
           &(struct sp_nccl_message){.part = {.tag = tag}, .handle = handle}, STARPU_RW);
}

/* ---- start and end --------------------------------------------------------------------------- */

static int start_thread(struct sp_nccl *n)
{
    pthread_condattr_t attr;
    int err;

    n->ready_end = &n->ready;
    pthread_mutex_init(&n->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&n->wake, &attr);
    pthread_cond_init(&n->idle, &attr);
    pthread_condattr_destroy(&attr);
    err = pthread_create(&n->thread, NULL, sp_nccl_thread, n);
    return err ? sp_error(err, "no thread for messages: %s", strerror(err)) : 0;
}

void sp_nccl_prepare(int links)
{
    char blocks[16];

    snprintf(blocks, sizeof blocks, "%d", sp_comm_blocks(links));
    setenv("NCCL_MAX_P2P_NCHANNELS", blocks, 0);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

/* Returns NCCL's version, or an error and in `why` the reason why it cannot be used here. */
static int usable(char *why, size_t size)
{
    static const char *const serial[] = {"CUDA_LAUNCH_BLOCKING", "NCCL_LAUNCH_ORDER_IMPLICIT"};

    for (size_t i = 0; i < sizeof serial / sizeof *serial; i++)
        if (getenv(serial[i]) && atoi(getenv(serial[i]))) {
            snprintf(why, size, "%s=%s lets a message wait for one of another edge: unset it",
                     serial[i], getenv(serial[i]));
            return -ENOTSUP;
        }
    return sp_nccl_load(NULL, why, size);
}

int sp_nccl_start(const struct sp_nccl_config *cfg, struct sp_wire *wire, char *why, size_t size,
                  struct sp_nccl **nccl)
{
    struct sp_nccl *n = calloc(1, sizeof *n);
    int version = n ? usable(why, size) : -ENOMEM;
    int err = wire->least(wire, version < 0 ? version : 0);

    if (err) {
        if (version >= 0)
            snprintf(why, size, "another process cannot use NCCL");
        else if (version == -ENOMEM)
            sp_error(ENOMEM, "out of memory for messages");
        free(n);
        return err;
    }
    *n = (struct sp_nccl){
        .cfg = *cfg, .wire = wire, .version = version, .pause_ns = sp_poll_pause_ns()};
    err = sp_nccl_links_create(cfg, wire, &n->links);
    if (err) {
        free(n);
        return err;
    }
    err = wire->least(wire, start_thread(n));
    if (err) { /* some process has no thread for messages: none can go on */
        sp_nccl_abort(n);
        return err;
    }
    *nccl = n;
    return 0;
}

int sp_nccl_wait_all(struct sp_nccl *n)
{
    int err;

    pthread_mutex_lock(&n->mutex);
    while (n->pending > 0 && !n->failed)
        pthread_cond_wait(&n->idle, &n->mutex);
    err = n->failed ? -EIO : 0;
    pthread_mutex_unlock(&n->mutex);
    return err;
}

/* The thread owns the communicators and gives them up itself, unless it is inside a call that
 * returns only after they are given up. */
void sp_nccl_abort(struct sp_nccl *n)
{
    struct timespec until;
    bool late = false;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 2;
    pthread_mutex_lock(&n->mutex);
    n->failed = n->stopping = true;
    pthread_cond_signal(&n->wake);
    pthread_cond_broadcast(&n->idle);
    while (!n->ended && !late)
        late = pthread_cond_timedwait(&n->idle, &n->mutex, &until) != 0;
    pthread_mutex_unlock(&n->mutex);
    if (late)
        sp_nccl_links_abort(&n->links);
}

void sp_nccl_stop(struct sp_nccl *n)
{
    pthread_mutex_lock(&n->mutex);
    n->stopping = true;
    pthread_cond_signal(&n->wake);
    pthread_mutex_unlock(&n->mutex);
    pthread_join(n->thread, NULL);
    sp_comm_use(n->cfg.device);
    sp_nccl_links_destroy(&n->links);
    if (n->failed)
        return; /* StarPU may still call back for abandoned messages; the other ends are gone */
    n->wire->close(n->wire);
    pthread_mutex_destroy(&n->mutex);
    pthread_cond_destroy(&n->wake);
    pthread_cond_destroy(&n->idle);
    free(n);
}

double sp_nccl_polling_us(struct sp_nccl *n)
{
    struct timespec t;
    clockid_t clock;

    if (pthread_getcpuclockid(n->thread, &clock) || clock_gettime(clock, &t))
        return 0;
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

int sp_nccl_version(struct sp_nccl *n)
{
    return n->version;
}
