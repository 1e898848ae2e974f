#include "simulate/network.h"
#include "config.h"
#include "sinks/starpu/sink.h"
#ifdef HAVE_SIMGRID
#include "codelets/task/codelet.h"
#include "simulate/platform.h"
#include "sinks/starpu/simulated.h"
#include "sp_error.h"
#include "sp_grow.h"
#include "transport/post.h"
#include <simgrid/actor.h>
#include <simgrid/host.h>

/* One end of a message: its buffer, held while the message is on its way. */
struct end {
    starpu_data_handle_t handle; /* NULL: not submitted yet */
    bool ready;
    struct sp_transfer *times; /* to be filled in, or NULL */
};

struct message {
    int from, to;
    int64_t tag;
    struct end send, recv;
    void (*arrived)(void *arg);
    void *arg;
    double ready_us;
    struct message *next; /* in its list */
};

enum { BUCKETS = 1 << 16 };

static struct {
    struct sp_sim_machine machine;
    double stretch;
    int rank, ranks, members;
    bool *taken, *wanted;            /* [ports] if messages queue: in use; an earlier one waits */
    struct message *bucket[BUCKETS]; /* messages of which one end was submitted */
    struct message *queue;           /* if messages queue: those ready and not begun */
    long submitted, matched, on_the_way;
    uint64_t bytes_sent;
    struct sp_carried *carried;
    int n_carried;
    size_t cap_carried;
} net;

/* The ports: out of the interfaces inside nodes, into them, then the same of the network. */
static int ports(void)
{
    return 4 * net.ranks;
}

/* The port of a message out of its sender's interface, or with `in` into its receiver's. */
static int port_of(const struct message *m, bool in)
{
    const struct sp_link *l = sp_sim_link_between(&net.machine, m->from, m->to);
    int first = l == &net.machine.node ? 0 : 2 * net.ranks;

    return first + (in && !l->half_duplex ? net.ranks : 0) +
           sp_sim_interface(l, in ? m->to : m->from);
}

int sp_sim_network_create(const struct sp_sim_machine *m, int ranks, int members, double stretch)
{
    memset(&net, 0, sizeof net);
    net.machine = *m;
    net.stretch = stretch;
    net.ranks = ranks;
    net.members = members;
    net.taken = calloc(2 * (size_t)ports(), sizeof *net.taken);
    if (!net.taken)
        return sp_error(ENOMEM, "simulate: no memory for the links of %d devices", ranks);
    net.wanted = net.taken + ports();
    return 0;
}

void sp_sim_network_destroy(void)
{
    for (int i = 0; i < BUCKETS; i++) {
        for (struct message *m = net.bucket[i], *next; m; m = next) {
            next = m->next;
            free(m);
        }
    }
    free(net.taken);
    free(net.carried);
    sp_simulated_forget();
    memset(&net, 0, sizeof net);
}

void sp_sim_network_act_as(int rank)
{
    net.rank = rank;
}

long sp_sim_network_unmatched(void)
{
    return net.submitted - net.matched;
}

const struct sp_carried *sp_sim_network_carried(long *n)
{
    *n = net.n_carried;
    return net.carried;
}

/* ---- on the way ------------------------------------------------------------------------------ */

static void start_queued(void);

static void note(const struct message *m)
{
    SP_NEED(sp_grow(&net.carried, (size_t)net.n_carried + 1, &net.cap_carried, sizeof *net.carried),
            "simulate: no memory for %d messages", net.n_carried);
    net.carried[net.n_carried++] =
        (struct sp_carried){.from = m->from,
                            .to = m->to,
                            .bytes = (double)starpu_data_get_size(m->send.handle),
                            .ready = m->ready_us,
                            .arrived = sp_now_us()};
}

static void finish(struct message *m)
{
    double now = sp_now_us();

    note(m);
    if (m->send.times)
        m->send.times->ended_us = now;
    if (m->recv.times)
        m->recv.times->ended_us = now;
    if (m->arrived)
        m->arrived(m->arg);
    starpu_data_release_on_node(m->send.handle, STARPU_MAIN_RAM);
    starpu_data_release_on_node(m->recv.handle, STARPU_MAIN_RAM);
    free(m);
    net.on_the_way--;
}

static sg_host_t host_of(int rank)
{
    char name[32];

    snprintf(name, sizeof name, SP_PLATFORM_RANK, rank);
    return sg_host_by_name(name);
}

/* The body of a SimGrid actor, which carries one message from end to end. */
static void *carry(void *arg)
{
    struct message *m = arg;
    const struct sp_link *l = sp_sim_link_between(&net.machine, m->from, m->to);
    bool queued = net.machine.sharing == SP_LINK_QUEUED;

    sg_host_sendto(host_of(m->from), host_of(m->to), (double)starpu_data_get_size(m->send.handle));
    if (queued) {
        net.taken[port_of(m, false)] = net.taken[port_of(m, true)] = false;
        start_queued();
        if (l->latency_s > 0)
            sg_actor_sleep_for(l->latency_s * net.stretch);
    }
    finish(m);
    return NULL;
}

static void start(struct message *m)
{
    starpu_pthread_t thread;

    if (m->send.times)
        m->send.times->begun_us = sp_now_us();
    if (starpu_pthread_create_on("message", &thread, NULL, carry, m, host_of(m->from)))
        STARPU_ABORT_MSG("starpipe: no actor for a message");
    sg_actor_unref(thread); /* no actor joins it, so this frees its stack when it ends */
}

/* Starts the messages whose two ports are free, unless an earlier one waits for one of them.
 * Starting a message lets other actors run, which may change the queue, so all are first taken off
 * the queue. */
static void start_queued(void)
{
    struct message **at = &net.queue, *go = NULL, **last = &go;

    memset(net.wanted, 0, (size_t)ports() * sizeof *net.wanted);
    while (*at) {
        struct message *m = *at;
        int out = port_of(m, false), in = port_of(m, true);

        if (net.taken[out] || net.taken[in] || net.wanted[out] || net.wanted[in]) {
            net.wanted[out] = net.wanted[in] = true;
            at = &m->next;
            continue;
        }
        *at = m->next;
        net.taken[out] = net.taken[in] = true;
        m->next = NULL;
        *last = m;
        last = &m->next;
    }
    while (go) {
        struct message *m = go;

        go = m->next;
        start(m);
    }
}

/* Inserts a message in the order in which messages became ready; at equal times, lower senders
 * first. */
static void enqueue(struct message *m)
{
    struct message **at = &net.queue;

    while (*at && ((*at)->ready_us < m->ready_us ||
                   ((*at)->ready_us == m->ready_us && (*at)->from <= m->from)))
        at = &(*at)->next;
    m->next = *at;
    *at = m;
    start_queued();
}

static void go(struct message *m)
{
    m->ready_us = sp_now_us();
    if (sp_sim_link_is_instant(sp_sim_link_between(&net.machine, m->from, m->to)))
        finish(m);
    else if (net.machine.sharing == SP_LINK_QUEUED)
        enqueue(m);
    else
        start(m);
}

static void sender_is_ready(void *arg)
{
    struct message *m = arg;

    m->send.ready = true;
    if (m->send.times)
        m->send.times->ready_us = sp_now_us();
    if (m->recv.ready)
        go(m);
}

static void receiver_is_ready(void *arg)
{
    struct message *m = arg;

    m->recv.ready = true;
    if (m->recv.times)
        m->recv.times->ready_us = m->recv.times->begun_us = sp_now_us();
    if (m->send.ready)
        go(m);
}

/* ---- submission ------------------------------------------------------------------------------ */

static struct message **bucket_of(int from, int to, int64_t tag)
{
    uint64_t key = (uint64_t)tag * 0x9e3779b97f4a7c15u + (uint64_t)from * 0xc2b2ae3d27d4eb4fu +
                   (uint64_t)to * 0x165667b19e3779f9u;

    return &net.bucket[key >> 48 & (BUCKETS - 1)];
}

/* Takes the first message of a tag that lacks the end submitted now off its list; if there is none,
 * makes a new one. Messages with both ends are in no list. */
static struct message *message_of(int from, int to, int64_t tag, bool sending)
{
    struct message **at = bucket_of(from, to, tag), *m;

    for (m = *at; m; at = &m->next, m = *at) {
        if (m->from == from && m->to == to && m->tag == tag &&
            !(sending ? m->send.handle : m->recv.handle)) {
            *at = m->next;
            m->next = NULL;
            net.matched++;
            return m;
        }
    }
    m = calloc(1, sizeof *m);
    STARPU_ASSERT_MSG(m, "starpipe: no memory for a message");
    *m = (struct message){.from = from, .to = to, .tag = tag};
    *at = m;
    net.submitted++;
    net.on_the_way++;
    return m;
}

static void acquire(starpu_data_handle_t handle, enum starpu_data_access_mode mode,
                    void (*ready)(void *), struct message *m)
{
    if (starpu_data_acquire_on_node_cb(handle, STARPU_MAIN_RAM, mode, ready, m))
        STARPU_ABORT_MSG("starpipe: a message cannot wait for its buffer");
}

/* A message between members of a stage. No op begins when one arrives, nor ends when one leaves. */
static bool is_inside_stage(int peer)
{
    return peer / net.members == net.rank / net.members;
}

bool sp_transport_records(void)
{
    return false;
}

void sp_transport_send(starpu_data_handle_t handle, int dst, int64_t tag, const char *name,
                       struct sp_transfer *times)
{
    struct message *m = message_of(net.rank, dst, tag, true);

    (void)name;
    m->send.handle = handle;
    m->send.times = times;
    if (!is_inside_stage(dst))
        sp_simulated_sent(handle);
    net.bytes_sent += starpu_data_get_size(handle);
    acquire(handle, STARPU_R, sender_is_ready, m);
}

void sp_transport_recv(starpu_data_handle_t handle, int src, int64_t tag, struct sp_transfer *times,
                       void (*arrived)(void *arg), void *arg)
{
    struct message *m = message_of(src, net.rank, tag, false);

    m->recv.handle = handle;
    m->recv.times = times;
    sp_simulated_received(handle, !is_inside_stage(src));
    m->arrived = arrived;
    m->arg = arg;
    acquire(handle, STARPU_W, receiver_is_ready, m);
}

void sp_transport_wait_all(void)
{
    starpu_task_wait_for_all();
    while (net.on_the_way > sp_sim_network_unmatched())
        starpu_sleep(1e-3F);
}

uint64_t sp_transport_bytes_sent(void)
{
    return net.bytes_sent;
}
#endif
