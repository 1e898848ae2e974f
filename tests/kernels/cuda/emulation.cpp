/* The scheduler of emulation.h: fibers, barriers, the queue of the stream. */
#undef _FORTIFY_SOURCE /* whose longjmp refuses to leave a stack for another */
#include "cuda_runtime.h"
#include "emulated.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

uint3 sp_emulated_thread, sp_emulated_block;
dim3 sp_emulated_block_size, sp_emulated_grid_size;

enum {
    WARP = 32,
    MAX_THREADS = 1024,
    STACK = 256 << 10,
    SHARED = 99 << 10, /* what every device since sm_80 lets a block have */
    GUARD = 1024,
    COPIES = 256
};

/* The kernels' dynamic shared memory: `extern __shared__` of this name. */
alignas(1024) unsigned char sp_shared_memory[SHARED + GUARD];

enum state { READY, AT_BARRIER, AT_MEETING, DONE };

struct async_copy {
    void *to;
    const void *from;
    unsigned n, bytes, group;
};

struct fiber {
    enum state state;
    uint3 index;
    const char *file; /* where it waits */
    int line;
    unsigned mask;
    void *slot;
    void (*resolve)(unsigned mask, void *const *slots);
    struct async_copy copies[COPIES]; /* in flight */
    unsigned n_copies, groups;
    bool started;
    jmp_buf resume;
    ucontext_t context;
    char *stack;
};

static fiber fibers[MAX_THREADS];
static fiber *self; /* NULL: the scheduler */
static jmp_buf scheduler;
static const std::function<void()> *job;
static std::vector<std::function<void()>> queue;
static unsigned order;

void sp_emulated_order(unsigned seed)
{
    order = seed;
}

void sp_emulated_fail(const char *format, ...)
{
    va_list args;

    fprintf(stderr, "emulation: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    if (self)
        fprintf(stderr, " (block %u %u %u, thread %u %u %u)", sp_emulated_block.x,
                sp_emulated_block.y, sp_emulated_block.z, self->index.x, self->index.y,
                self->index.z);
    fprintf(stderr, "\n");
    _Exit(1);
}

/* ---- switching ---------------------------------------------------------------------------
 * A fiber begins by swapcontext, which knows how to set up a stack, and then switches by longjmp,
 * which leaves the signal mask alone and costs no system call. AddressSanitizer wants to be told of
 * stacks, and takes contexts alone. */

#if defined(__SANITIZE_ADDRESS__)
static ucontext_t scheduler_context;
static void *scheduler_fake;
static const void *scheduler_bottom;
static size_t scheduler_size;

static void to_scheduler(fiber *f)
{
    void *fake;

    __sanitizer_start_switch_fiber(&fake, scheduler_bottom, scheduler_size);
    swapcontext(&f->context, &scheduler_context);
    __sanitizer_finish_switch_fiber(fake, &scheduler_bottom, &scheduler_size);
}

static void to_fiber(fiber *f)
{
    __sanitizer_start_switch_fiber(&scheduler_fake, f->stack, STACK);
    swapcontext(&scheduler_context, &f->context);
    __sanitizer_finish_switch_fiber(scheduler_fake, NULL, NULL);
}
#else
static void to_scheduler(fiber *f)
{
    if (!_setjmp(f->resume))
        _longjmp(scheduler, 1);
}

static void to_fiber(fiber *f)
{
    if (_setjmp(scheduler))
        return;
    if (f->started)
        _longjmp(f->resume, 1);
    f->started = true;
    setcontext(&f->context);
}
#endif

/* A fiber serves thread after thread, block after block: contexts are made once. */
static void fiber_main(void)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, &scheduler_bottom, &scheduler_size);
#endif
    for (;;) {
        (*job)();
        if (self->n_copies)
            sp_emulated_fail("a thread ends while it copies");
        self->state = DONE;
        to_scheduler(self);
    }
}

static void resume(fiber *f)
{
    self = f;
    sp_emulated_thread = f->index;
    to_fiber(f);
    self = NULL;
}

static void prepare(fiber *f)
{
    if (f->stack)
        return;
    f->stack = new char[STACK];
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = NULL;
    makecontext(&f->context, fiber_main, 0);
}

/* ---- waiting ------------------------------------------------------------------------------ */

void sp_emulated_barrier(const char *file, int line)
{
    fiber *f = self;

    f->state = AT_BARRIER;
    f->file = file;
    f->line = line;
    to_scheduler(f);
}

void sp_emulated_meet(unsigned mask, const char *file, int line, void *slot,
                      void (*resolve)(unsigned mask, void *const *slots))
{
    fiber *f = self;

    if (!(mask >> sp_emulated_lane() & 1))
        sp_emulated_fail("%s:%d: a lane outside of its mask %#x", file, line, mask);
    f->state = AT_MEETING;
    f->file = file;
    f->line = line;
    f->mask = mask;
    f->slot = slot;
    f->resolve = resolve;
    to_scheduler(f);
}

void sp_emulated_copy_async(void *to, const void *from, unsigned n, unsigned bytes)
{
    if (((uintptr_t)to | (uintptr_t)from) % bytes)
        sp_emulated_fail("an asynchronous copy of %u bytes that is not aligned", bytes);
    if (self->n_copies == COPIES)
        sp_emulated_fail("more than %d copies in flight", COPIES);
    self->copies[self->n_copies++] = {to, from, n, bytes, self->groups};
}

void sp_emulated_copy_commit(void)
{
    self->groups++;
}

void sp_emulated_copy_wait(unsigned left)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < self->n_copies; i++) {
        const async_copy *c = &self->copies[i];

        if (c->group + left >= self->groups) {
            self->copies[kept++] = *c;
            continue;
        }
        memcpy(c->to, c->from, c->n);
        memset((char *)c->to + c->n, 0, c->bytes - c->n);
    }
    self->n_copies = kept;
}

unsigned sp_emulated_lane(void)
{
    return (unsigned)(self - fibers) % WARP;
}

/* The i-th of n in this run's order: forward, reverse, or in steps of a prime. */
static unsigned pick(unsigned i, unsigned n)
{
    const unsigned step = 7919;

    if (order == 0 || (order > 1 && n % step == 0))
        return i;
    return order == 1 ? n - 1 - i : (unsigned)(((uint64_t)i * step + order) % n);
}

/* Lets the lanes of a warp go on whose meeting is complete; false if there are none. */
static bool meet(fiber *warp, unsigned lanes)
{
    bool any = false;

    for (unsigned i = 0; i < lanes; i++) {
        fiber *f = warp + i;
        void *slots[WARP];
        bool complete = f->state == AT_MEETING;

        for (unsigned l = 0; l < WARP && complete; l++) {
            fiber *other = warp + l;

            if (!(f->mask >> l & 1))
                continue;
            if (l >= lanes || other->state == DONE)
                sp_emulated_fail("%s:%d: mask %#x waits for lane %u, which is no more", f->file,
                                 f->line, f->mask, l);
            complete = other->state == AT_MEETING;
            if (complete && (other->mask != f->mask || other->line != f->line ||
                             strcmp(other->file, f->file) || other->resolve != f->resolve))
                sp_emulated_fail("%s:%d mask %#x: lane %u waits at %s:%d mask %#x", f->file,
                                 f->line, f->mask, l, other->file, other->line, other->mask);
            slots[l] = other->slot;
        }
        if (!complete)
            continue;
        f->resolve(f->mask, slots);
        any = true;
        for (unsigned l = 0; l < lanes; l++)
            if (f->mask >> l & 1)
                warp[l].state = READY;
    }
    return any;
}

/* Until every lane is at a barrier or done. */
static void run_warp(fiber *warp, unsigned lanes)
{
    do {
        for (unsigned i = 0; i < lanes; i++) {
            fiber *f = warp + pick(i, lanes);

            if (f->state == READY)
                resume(f);
        }
    } while (meet(warp, lanes));
    for (unsigned i = 0; i < lanes; i++)
        if (warp[i].state == AT_MEETING)
            sp_emulated_fail("%s:%d: lane %u waits for lanes %#x, some of which wait elsewhere",
                             warp[i].file, warp[i].line, i, warp[i].mask);
}

static void run_block(unsigned threads, size_t shared)
{
    unsigned warps = (threads + WARP - 1) / WARP;

    memset(sp_shared_memory, 0xff, shared + GUARD);
#if defined(__SANITIZE_ADDRESS__)
    __asan_poison_memory_region(sp_shared_memory + shared, SHARED + GUARD - shared);
#endif
    for (unsigned t = 0; t < threads; t++)
        fibers[t].state = READY;
    for (;;) {
        for (unsigned i = 0; i < warps; i++) {
            unsigned w = pick(i, warps);

            run_warp(fibers + w * WARP, w + 1 < warps ? (unsigned)WARP : threads - w * WARP);
        }
        for (unsigned t = 1; t < threads; t++)
            if (fibers[t].state != fibers[0].state)
                sp_emulated_fail("%s:%d: thread %u waits for its block, thread %u has ended",
                                 fibers[fibers[0].state == DONE ? t : 0].file,
                                 fibers[fibers[0].state == DONE ? t : 0].line,
                                 fibers[0].state == DONE ? t : 0, fibers[0].state == DONE ? 0 : t);
        if (fibers[0].state == DONE)
            break;
        for (unsigned t = 1; t < threads; t++)
            if (fibers[t].line != fibers[0].line || strcmp(fibers[t].file, fibers[0].file))
                sp_emulated_fail("thread 0 waits for its block at %s:%d, thread %u at %s:%d",
                                 fibers[0].file, fibers[0].line, t, fibers[t].file, fibers[t].line);
        for (unsigned t = 0; t < threads; t++)
            fibers[t].state = READY;
    }
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(sp_shared_memory, SHARED + GUARD);
#endif
    for (size_t i = 0; i < GUARD; i++)
        if (sp_shared_memory[shared + i] != 0xff)
            sp_emulated_fail("shared memory of %zu bytes is written at %zu", shared, shared + i);
}

void sp_emulated_run(const cudaLaunchConfig_t &config, const std::function<void()> &thread)
{
    const dim3 b = config.blockDim, g = config.gridDim;
    unsigned threads = b.x * b.y * b.z, blocks = g.x * g.y * g.z;

    job = &thread;
    sp_emulated_block_size = b;
    sp_emulated_grid_size = g;
    for (unsigned t = 0; t < threads; t++) {
        prepare(fibers + t);
        fibers[t].index = {t % b.x, t / b.x % b.y, t / b.x / b.y};
    }
    for (unsigned i = 0; i < blocks; i++) {
        unsigned at = pick(i, blocks);

        sp_emulated_block = {at % g.x, at / g.x % g.y, at / g.x / g.y};
        run_block(threads, config.dynamicSmemBytes);
    }
}

/* ---- the runtime ---------------------------------------------------------------------------- */

static const void *raised;
static int raised_bytes;

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value > SHARED)
        return cudaErrorInvalidValue;
    raised = kernel;
    raised_bytes = value;
    return cudaSuccess;
}

cudaError_t sp_emulated_check(const cudaLaunchConfig_t *config, const void *kernel)
{
    const dim3 b = config->blockDim, g = config->gridDim;
    size_t threads = (size_t)b.x * b.y * b.z, shared = config->dynamicSmemBytes;
    size_t granted = kernel == raised ? (size_t)raised_bytes : (size_t)(48 << 10);

    if (!threads || threads > MAX_THREADS || b.z > 64 || threads % WARP)
        return cudaErrorInvalidConfiguration;
    if (!g.x || !g.y || !g.z || g.x > 2147483647u || g.y > 65535 || g.z > 65535)
        return cudaErrorInvalidConfiguration;
    return shared > granted && shared > (48 << 10) ? cudaErrorInvalidValue : cudaSuccess;
}

void sp_emulated_queue(std::function<void()> work)
{
    queue.push_back(std::move(work));
}

const char *cudaGetErrorString(cudaError_t err)
{
    return err == cudaSuccess ? "no error" : "invalid argument or configuration";
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    for (size_t i = 0; i < queue.size(); i++)
        queue[i]();
    queue.clear();
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    sp_emulated_queue([=] { memset(to, value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    (void)stream;
    sp_emulated_queue([=] { memmove(to, from, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t bytes, size_t rows, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    (void)kind;
    (void)stream;
    if (to_pitch < bytes || from_pitch < bytes || to_pitch > INT32_MAX || from_pitch > INT32_MAX)
        return cudaErrorInvalidValue;
    sp_emulated_queue([=] {
        for (size_t r = 0; r < rows; r++)
            memcpy((char *)to + r * to_pitch, (const char *)from + r * from_pitch, bytes);
    });
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)kind;
    if (!queue.empty())
        return cudaErrorInvalidValue;
    memcpy(to, from, bytes);
    return cudaSuccess;
}
