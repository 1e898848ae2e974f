/*
 * Hashes all requests of a program to StarPU, so that two versions of it can be compared. The
 * preloaded library follows the thread that submits. At the end of each process it writes a line to
 * $DIGESTS.RANK: for tasks, messages and buffers, their number and a hash of all in their order.
 *
 *   tasks     of the last two steps: name, codelet, worker, FLOPs; number, access and bytes of each
 *             buffer
 *   messages  of these steps: values acquired to be sent, received or moved: number, access, memory
 *             node
 *   buffers   bytes of an element and of all; numbers count buffers in the order of their creation
 */
#pragma GCC visibility push(default) /* its functions take the place of StarPU's */
#include <dlfcn.h>
#include <pthread.h>
#include <starpu.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FNV_BASIS 0xcbf29ce484222325
#define FNV_PRIME 0x100000001b3

struct stream {
    uint64_t hash;
    long n;
};

static struct stream tasks = {FNV_BASIS, 0}, messages = {FNV_BASIS, 0}, buffers = {FNV_BASIS, 0};
/* The streams of the step before this one. Only the last two steps are hashed: earlier ones measure
 * the machine, and their number varies. */
static struct stream tasks_before, messages_before;

static void mix(struct stream *s, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        s->hash = (s->hash ^ ((const unsigned char *)data)[i]) * FNV_PRIME;
}

static void mix_number(struct stream *s, uint64_t x)
{
    mix(s, &x, sizeof x);
}

static void mix_text(struct stream *s, const char *text)
{
    mix(s, text ? text : "", text ? strlen(text) + 1 : 1);
}

/* Names of tasks had blanks when streams were recorded. */
static void mix_name(struct stream *s, const char *name)
{
    char text[64] = "";

    snprintf(text, sizeof text, "%s", name ? name : "");
    for (char *c = text; *c; c++)
        *c = *c == '_' ? ' ' : *c;
    mix_text(s, text);
}

/* StarPU's function of a name. */
static void *real(const char *name)
{
    void *f = dlsym(RTLD_NEXT, name);

    if (!f) {
        fprintf(stderr, "digests: there is no %s\n", name);
        abort();
    }
    return f;
}

/* True on the thread that made the first buffer: it submits everything. Other threads only complete
 * requests, in any order. */
static bool submits(void)
{
    static bool known;
    static pthread_t first;

    if (!known)
        first = pthread_self();
    known = true;
    return pthread_equal(first, pthread_self());
}

/* ---- buffers ------------------------------------------------------------------------------------ */

enum { SLOTS = 1 << 18 };

/* Maps addresses of buffers to numbers. A buffer that is unregistered leaves its slot to the next
 * one at that address. */
static struct slot {
    starpu_data_handle_t handle;
    long number;
} slots[SLOTS];

static struct slot *find(starpu_data_handle_t handle)
{
    size_t at = ((uintptr_t)handle >> 4) * 0x9e3779b97f4a7c15 >> 46;

    while (slots[at].handle && slots[at].handle != handle)
        at = (at + 1) % SLOTS;
    return &slots[at];
}

static void made(starpu_data_handle_t handle)
{
    struct slot *slot = find(handle);

    *slot = (struct slot){handle, ++buffers.n};
    mix_number(&buffers, starpu_data_get_size(handle));
    mix_number(&buffers, starpu_vector_get_elemsize(handle));
}

/* Returns a buffer's number. StarPU makes the parts of a buffer, so they get numbers at first
 * use. */
static long number(starpu_data_handle_t handle)
{
    struct slot *slot = find(handle);

    if (!slot->handle)
        made(handle);
    return find(handle)->number;
}

void starpu_vector_data_register(starpu_data_handle_t *handle, int home, uintptr_t memory,
                                 uint32_t n, size_t elem)
{
    static void (*f)(starpu_data_handle_t *, int, uintptr_t, uint32_t, size_t);

    f = f ? f : real("starpu_vector_data_register");
    f(handle, home, memory, n, elem);
    if (submits())
        made(*handle);
}

/* ---- tasks and messages ------------------------------------------------------------------------- */

void starpu_iteration_push(unsigned long iteration)
{
    static void (*f)(unsigned long);

    f = f ? f : real("starpu_iteration_push");
    tasks_before = tasks;
    messages_before = messages;
    tasks = messages = (struct stream){FNV_BASIS, 0};
    f(iteration);
}

static void submitted(const struct starpu_task *task)
{
    if (!submits() || !task->cl)
        return;
    tasks.n++;
    mix_name(&tasks, task->name);
    mix_text(&tasks, task->cl->name);
    mix(&tasks, &task->flops, sizeof task->flops);
    for (unsigned i = 0; i < task->workerids_len; i++)
        mix_number(&tasks, task->workerids[i]);
    for (unsigned i = 0; i < STARPU_TASK_GET_NBUFFERS(task); i++) {
        starpu_data_handle_t handle = STARPU_TASK_GET_HANDLE(task, i);

        mix_number(&tasks, (uint64_t)number(handle));
        mix_number(&tasks, STARPU_TASK_GET_MODE(task, i));
        mix_number(&tasks, starpu_data_get_size(handle));
    }
}

#undef starpu_task_submit /* with traces it is a macro that adds the caller's line */

int starpu_task_submit(struct starpu_task *task)
{
    static int (*f)(struct starpu_task *);

    f = f ? f : real("starpu_task_submit");
    submitted(task);
    return f(task);
}

int starpu_data_acquire_on_node_cb(starpu_data_handle_t handle, int node,
                                   enum starpu_data_access_mode mode, void (*callback)(void *),
                                   void *arg)
{
    static int (*f)(starpu_data_handle_t, int, enum starpu_data_access_mode, void (*)(void *),
                    void *);

    f = f ? f : real("starpu_data_acquire_on_node_cb");
    if (submits()) {
        messages.n++;
        mix_number(&messages, (uint64_t)number(handle));
        mix_number(&messages, mode);
        mix_number(&messages, (uint64_t)node);
        mix_number(&messages, starpu_data_get_size(handle));
        mix_number(&messages, (uint64_t)tasks.n);
    }
    return f(handle, node, mode, callback, arg);
}

/* ---- the end ------------------------------------------------------------------------------------ */

__attribute__((destructor)) static void write_all(void)
{
    const char *where = getenv("DIGESTS"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    char path[4096];
    FILE *out;

    if (!where || !tasks.n)
        return;
    snprintf(path, sizeof path, "%s.%s", where, rank ? rank : "0");
    out = fopen(path, "w");
    if (!out)
        return;
    fprintf(out, "%ld %016lx %016lx %ld %016lx %016lx %ld %016lx\n", tasks_before.n + tasks.n,
            tasks_before.hash, tasks.hash, messages_before.n + messages.n, messages_before.hash,
            messages.hash, buffers.n, buffers.hash);
    fclose(out);
}
