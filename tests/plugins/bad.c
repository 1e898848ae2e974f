/*
 * A plugin with something wrong, chosen by -D: a field of the definition (-DABI=2, -DNAME=0, ...) or
 * what one of its functions does (-DEMIT=endless, ...). As it is, it is 1F1B for one chunk, named
 * "odd", and in order.
 */
#include <starpipe/schedule.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef ABI
#define ABI SP_SCHEDULE_ABI
#endif
#ifndef NAME
#define NAME "odd"
#endif
#ifndef SUMMARY
#define SUMMARY "a schedule of the tests"
#endif
#ifndef SOURCE
#define SOURCE "tests/plugins/bad.c"
#endif
#ifndef FAMILY
#define FAMILY "layerwise"
#endif
#ifndef CHUNKS
#define CHUNKS 1
#endif
#ifndef CHECK
#define CHECK 0
#endif
#ifndef EMIT
#define EMIT fine
#endif
#ifndef EMIT_ALL
#define EMIT_ALL 0
#endif
#ifndef PLACE
#define PLACE 0
#endif
#ifndef MAKESPAN
#define MAKESPAN 0
#endif
#ifndef LIST
#define LIST &odd
#endif

#define FUNCTION __attribute__((unused)) static

FUNCTION void fine(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    int m = lay->micro_batches, f = 0, b = 0;

    while (f < m && f < lay->stages - 1 - stage)
        sp_program_add(prog, SP_F, f++, 0);
    while (b < m) {
        if (f < m)
            sp_program_add(prog, SP_F, f++, 0);
        sp_program_add(prog, SP_B, b++, 0);
    }
}

FUNCTION void forwards_first(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    (void)stage;
    for (int i = 0; i < lay->micro_batches; i++)
        sp_program_add(prog, SP_F, i, 0);
    for (int i = 0; i < lay->micro_batches; i++)
        sp_program_add(prog, SP_B, i, 0);
}

/* Orders that are wrong. */

FUNCTION void nothing(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    (void)lay, (void)stage, (void)prog;
}

FUNCTION void drops(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    fine(lay, stage, prog);
    prog->n -= stage == 1;
}

FUNCTION void twice(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    fine(lay, stage, prog);
    if (stage == 2)
        sp_program_add(prog, SP_F, 3, 0);
}

FUNCTION void backwards(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    for (int i = 0; i < lay->micro_batches; i++) {
        sp_program_add(prog, stage ? SP_F : SP_B, i, 0);
        sp_program_add(prog, stage ? SP_B : SP_F, i, 0);
    }
}

FUNCTION void far_chunk(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    fine(lay, stage, prog);
    sp_program_add(prog, SP_F, 0, 2000000000);
}

FUNCTION void negative(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    sp_program_add(prog, SP_F, -2147483647 - 1, -1);
    fine(lay, stage, prog);
}

FUNCTION void odd_pass(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    fine(lay, stage, prog);
    prog->ops[0] = (struct sp_op){.pass = 200, .part = 99, .slice = 65535};
}

/* Stage 0 wants the backward of micro-batch 0 before it sends the second; the others wait. */
FUNCTION void deadlock(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    int m = lay->micro_batches;

    for (int i = 0; i < m; i++) {
        sp_program_add(prog, SP_F, i, 0);
        if (stage == 0)
            sp_program_add(prog, SP_B, i, 0);
    }
    for (int i = m - 1; i >= 0 && stage; i--)
        sp_program_add(prog, SP_B, i, 0);
}

FUNCTION void lone_pair(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    fine(lay, stage, prog);
    prog->ops[prog->n - 1].overlap = 1;
}

FUNCTION void numbers(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    fine(lay, stage, prog);
    prog->n = 1 << 30;
}

/* Code that does not come back. */

static volatile int zero;

FUNCTION void endless(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    (void)lay, (void)stage;
    while (!zero)
        sp_program_add(prog, SP_F, 0, 0);
}

FUNCTION void sleeps(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    (void)lay, (void)stage, (void)prog;
    while (!zero)
        continue;
}

FUNCTION void segfault(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    int *volatile nowhere = (int *)(size_t)zero;

    if (stage == lay->stages - 1)
        *nowhere = 1;
    fine(lay, stage, prog);
}

/* The call is no tail call, so that the stack does grow. */
FUNCTION int deeper(int n)
{
    char frame[4096];

    snprintf(frame, sizeof frame, "%d", n);
    return zero ? 0 : deeper(n + 1) + (int)strlen(frame);
}

FUNCTION void recursion(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    fine(lay, stage, prog);
    zero += deeper(0);
}

FUNCTION void divides(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    fine(lay, stage, prog);
    zero = lay->stages / zero;
}

FUNCTION void aborts(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    (void)lay, (void)stage, (void)prog;
    abort();
}

/* The C library finds it out and aborts, perhaps with a lock of its own held. */
FUNCTION void frees_twice(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    void *volatile block = malloc(100);

    (void)lay, (void)stage, (void)prog;
    free(block);
    free(block);
}

FUNCTION void exits(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    (void)lay, (void)stage, (void)prog;
    exit(0);
}

FUNCTION void quits(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    (void)lay, (void)stage, (void)prog;
    _exit(0);
}

FUNCTION void raises(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    fine(lay, stage, prog);
    raise(SIGTERM);
}

FUNCTION void block_all(void)
{
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
}

FUNCTION void blocks(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    block_all();
    fine(lay, stage, prog);
}

FUNCTION void blocks_and_sleeps(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    block_all();
    sleeps(lay, stage, prog);
}

FUNCTION void blocks_and_crashes(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    block_all();
    segfault(lay, lay->stages - 1, prog);
}

FUNCTION void ignores(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    signal(SIGINT, SIG_IGN);
    fine(lay, stage, prog);
}

FUNCTION void floods(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    fine(lay, stage, prog);
    while (!zero)
        *(char *)malloc((size_t)1 << 30) = 1; /* until there is none */
}

/* A thread of its own, which crashes when the call is over: EMIT_ALL=0 and DELAY microseconds later. */
#ifndef DELAY
#define DELAY 0
#endif
FUNCTION void *crash_later(void *arg)
{
    usleep(DELAY);
    *(volatile int *)arg = 1;
    return NULL;
}

FUNCTION void starts_thread(void)
{
    pthread_t thread;

    pthread_create(&thread, NULL, crash_later, (void *)(size_t)zero);
}

FUNCTION void threads(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    fine(lay, stage, prog);
    if (stage == 0)
        starts_thread();
}

FUNCTION int check_crashes(const struct sp_layout *lay, char *why, size_t n)
{
    (void)lay, (void)why, (void)n;
    abort();
}

FUNCTION int check_is_silent(const struct sp_layout *lay, char *why, size_t n)
{
    (void)lay, (void)why, (void)n;
    return 1;
}

FUNCTION int all_fail(const struct sp_layout *lay, struct sp_program *programs, char *why, size_t n)
{
    (void)lay, (void)programs;
    snprintf(why, n, "finds no order");
    return 7;
}

FUNCTION int far(const struct sp_layout *lay, int stage, int chunk)
{
    (void)chunk;
    return stage + lay->stages;
}

FUNCTION int same(const struct sp_layout *lay, int stage, int chunk)
{
    (void)lay, (void)stage, (void)chunk;
    return 0;
}

FUNCTION int place_crashes(const struct sp_layout *lay, int stage, int chunk)
{
    (void)lay, (void)stage, (void)chunk;
    abort();
}

FUNCTION double not_a_number(const struct sp_layout *lay, double f, double b, double w)
{
    (void)lay, (void)f, (void)b, (void)w;
    return NAN;
}

#ifdef CONSTRUCTOR
__attribute__((constructor)) static void begin(void)
{
    CONSTRUCTOR;
}
#endif
#ifdef UNRESOLVED
void no_such_function(void);
void uses(void);
void uses(void)
{
    no_such_function();
}
#endif

__attribute__((unused)) static const struct sp_schedule_def odd = {
    .abi = ABI,
    .name = NAME,
    .summary = SUMMARY,
    .source = SOURCE,
    .family = FAMILY,
    .default_chunks = CHUNKS,
    .check = CHECK,
    .layerwise.global_stage = PLACE,
    .emit = EMIT,
    .emit_all = EMIT_ALL,
    .makespan = MAKESPAN,
    .makespan_source = "none",
};

#ifndef NO_ENTRY
SP_PLUGIN(LIST);
#endif
