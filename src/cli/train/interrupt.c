#include "cli/train/interrupt.h"
#include "cli/print.h"
#include "sp_activity.h"
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static const struct {
    int signal, bit;
    const char *name;
} TABLE[] = {
    {SIGTERM, SP_ASK_TERM, "SIGTERM"}, {SIGINT, SP_ASK_INT, "SIGINT"},
    {SIGHUP, SP_ASK_HUP, "SIGHUP"},    {SIGXCPU, SP_ASK_CPU, "SIGXCPU"},
    {SIGUSR1, SP_ASK_SAVE, "SIGUSR1"}, {0, SP_ASK_PIPE, "a closed standard output"},
};
enum { ENTRIES = sizeof TABLE / sizeof *TABLE };

static int asked;
static long first_end_s; /* when an end was asked for first */
static bool stays;       /* the terminal may be closed */

void sp_interrupt_ask(int bits)
{
    __atomic_fetch_or(&asked, bits, __ATOMIC_RELAXED);
}

bool sp_interrupt_reader_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};

    return poll(&out, 1, 0) == 1 && out.revents & (POLLERR | POLLHUP);
}

int sp_interrupt_asked(void)
{
    if (!stays && sp_interrupt_reader_gone())
        sp_interrupt_ask(SP_ASK_PIPE);
    if (sp_activity_end_asked() && !(__atomic_load_n(&asked, __ATOMIC_RELAXED) & SP_ASK_END))
        sp_interrupt_ask(SP_ASK_HUP); /* by the watchdog: the launcher is gone */
    return __atomic_load_n(&asked, __ATOMIC_RELAXED);
}

void sp_interrupt_clear(int bits)
{
    __atomic_fetch_and(&asked, ~bits, __ATOMIC_RELAXED);
}

/*
 * Launchers and timeout(1) may send the same signal twice, to the process and to its group; a
 * person who asks again has waited.
 */
static void on_signal(int number, siginfo_t *info, void *context)
{
    int bit = 0;

    (void)context;
    for (int i = 0; i < ENTRIES; i++)
        if (TABLE[i].signal == number)
            bit = TABLE[i].bit;
    if (bit & (SP_ASK_TERM | SP_ASK_INT)) {
        if (__atomic_load_n(&asked, __ATOMIC_RELAXED) & (SP_ASK_TERM | SP_ASK_INT)) {
            if ((long)sp_clock_s() - first_end_s >= 2) {
                signal(number, SIG_DFL);
                raise(number);
            }
            return;
        }
        first_end_s = (long)sp_clock_s();
    }
    for (int i = 0; i < ENTRIES; i++)
        if (TABLE[i].bit == bit && bit & SP_ASK_END)
            sp_activity_ask_end(TABLE[i].name, info->si_pid);
    sp_interrupt_ask(bit);
}

static void take_signal(int number)
{
    struct sigaction act = {.sa_sigaction = on_signal, .sa_flags = SA_RESTART | SA_SIGINFO};

    sigemptyset(&act.sa_mask);
    sigaction(number, &act, NULL);
}

void sp_interrupt_install_early(void)
{
    take_signal(SIGUSR1);
}

void sp_interrupt_install(void)
{
    struct sigaction old;

    for (int i = 0; i < ENTRIES; i++) {
        if (!TABLE[i].signal)
            continue;
        if (TABLE[i].signal == SIGHUP && !sigaction(SIGHUP, NULL, &old) &&
            old.sa_handler == SIG_IGN)
            stays = stays || isatty(STDOUT_FILENO);
        else
            take_signal(TABLE[i].signal);
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
