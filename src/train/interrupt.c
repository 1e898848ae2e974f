#include "train/interrupt.h"
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

static const struct {
    int signal, bit;
    const char *name;
} TABLE[] = {
    {SIGTERM, SP_ASK_TERM, "SIGTERM"},
    {SIGINT, SP_ASK_INT, "SIGINT"},
    {SIGHUP, SP_ASK_HUP, "SIGHUP"},
    {SIGUSR1, SP_ASK_SAVE, "SIGUSR1"},
    {0, SP_ASK_PIPE, "a closed standard output"},
};
enum { ENTRIES = sizeof TABLE / sizeof *TABLE };

static int asked;
static long first_end_s; /* when an end was asked for first */

static long now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long)t.tv_sec;
}

void sp_interrupt_ask(int bits)
{
    __atomic_fetch_or(&asked, bits, __ATOMIC_RELAXED);
}

int sp_interrupt_asked(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};

    if (poll(&out, 1, 0) == 1 && out.revents & (POLLERR | POLLHUP))
        sp_interrupt_ask(SP_ASK_PIPE);
    return __atomic_load_n(&asked, __ATOMIC_RELAXED);
}

void sp_interrupt_clear(int bits)
{
    __atomic_fetch_and(&asked, ~bits, __ATOMIC_RELAXED);
}

/*
 * Launchers and timeout(1) may send the same signal twice, to the process and to its group; a person
 * who asks again has waited.
 */
static void on_signal(int number)
{
    int bit = 0;

    for (int i = 0; i < ENTRIES; i++)
        if (TABLE[i].signal == number)
            bit = TABLE[i].bit;
    if (bit & (SP_ASK_TERM | SP_ASK_INT)) {
        if (__atomic_load_n(&asked, __ATOMIC_RELAXED) & (SP_ASK_TERM | SP_ASK_INT)) {
            if (now_s() - first_end_s >= 2) {
                signal(number, SIG_DFL);
                raise(number);
            }
            return;
        }
        first_end_s = now_s();
    }
    sp_interrupt_ask(bit);
}

void sp_interrupt_install(void)
{
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, old;

    sigemptyset(&act.sa_mask);
    for (int i = 0; i < ENTRIES; i++) {
        if (!TABLE[i].signal)
            continue;
        if (TABLE[i].signal == SIGHUP && !sigaction(SIGHUP, NULL, &old) &&
            old.sa_handler == SIG_IGN)
            continue;
        sigaction(TABLE[i].signal, &act, NULL);
    }
    signal(SIGPIPE, SIG_IGN);
}

const char *sp_interrupt_name(int bits)
{
    for (int i = 0; i < ENTRIES; i++)
        if (TABLE[i].bit & bits)
            return TABLE[i].name;
    return "nothing";
}
