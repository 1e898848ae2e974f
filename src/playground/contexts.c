/*
 * The functions of ucontext.h for turns.c, by fibers of emscripten: WebAssembly has one stack, and
 * the compiler makes functions that leave it and come back. There are two contexts at a time, the
 * program's and one that was made.
 */
#include <emscripten/fiber.h>
#include <stdarg.h>
#include <stddef.h>
#include <ucontext.h>

static struct fiber {
    emscripten_fiber_t fiber;
    char left[1 << 16]; /* what functions keep while they are left */
} own, made;

static struct {
    ucontext_t *context;
    void (*run)(unsigned, unsigned);
    unsigned high, low;
} entry;

static struct fiber *fiber_of(const ucontext_t *context)
{
    return context == entry.context ? &made : &own;
}

int getcontext(ucontext_t *context)
{
    (void)context;
    return 0;
}

static void enter(void *arg)
{
    (void)arg;
    entry.run(entry.high, entry.low);
    emscripten_fiber_swap(&made.fiber, &fiber_of(entry.context->uc_link)->fiber);
}

void makecontext(ucontext_t *context, void (*run)(void), int n, ...)
{
    va_list words;

    va_start(words, n);
    entry.context = context;
    entry.run = (void (*)(unsigned, unsigned))run;
    entry.high = va_arg(words, unsigned);
    entry.low = va_arg(words, unsigned);
    va_end(words);
    emscripten_fiber_init(&made.fiber, enter, NULL, context->uc_stack.ss_sp,
                          context->uc_stack.ss_size, made.left, sizeof made.left);
}

int swapcontext(ucontext_t *from, const ucontext_t *to)
{
    if (fiber_of(from) == &own)
        emscripten_fiber_init_from_current_context(&own.fiber, own.left, sizeof own.left);
    emscripten_fiber_swap(&fiber_of(from)->fiber, &fiber_of(to)->fiber);
    return 0;
}
