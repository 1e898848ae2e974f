#include "policies/load/guard.h"
#include "sp_error.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SECONDS = 30, GRACE = 10, FULL = 1000, STACK = 65536 };

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
enum { SIGNALS = sizeof signals / sizeof *signals };

static struct {
    volatile sig_atomic_t active;
    pthread_t thread;
    sigjmp_buf out;
    int ops; /* of the program that is full */
    const char *plugin, *what;
} guard;

struct saved {
    struct sigaction actions[SIGNALS];
    stack_t stack;
};

static void on_signal(int sig)
{
    if (!pthread_equal(pthread_self(), guard.thread)) {
        /* the alarm may reach any thread; a crash of another one is no business of ours */
        if (sig == SIGALRM) {
            pthread_kill(guard.thread, sig);
            return;
        }
        signal(sig, SIG_DFL);
        raise(sig);
        return;
    }
    if (!guard.active)
        _exit(2); /* what went wrong was said, and it left the process unable to end */
    guard.active = 0;
    siglongjmp(guard.out, sig);
}

static void on_exit_called(void)
{
    if (!guard.active)
        return;
    guard.active = 0;
    sp_error(EINVAL, "plugin %s: %s called exit", guard.plugin, guard.what);
    _exit(2);
}

void sp_guard_full(int ops)
{
    if (guard.active) {
        guard.active = 0;
        guard.ops = ops;
        siglongjmp(guard.out, FULL);
    }
    sp_error(EINVAL, "a schedule appends more than %d ops to a program", ops);
    exit(2);
}

/* The limit in seconds, or -EINVAL. */
static int limit(void)
{
    const char *text = getenv("STARPIPE_PLUGIN_SECONDS");
    char *end;
    long seconds;

    if (!text || !*text)
        return SECONDS;
    seconds = strtol(text, &end, 10);
    if (*end || seconds < 1 || seconds > 86400)
        return sp_error(EINVAL, "STARPIPE_PLUGIN_SECONDS: '%s' is not in 1 .. 86400", text);
    return (int)seconds;
}

/* Signals arrive on a stack of their own: the plugin may have used up the other one. */
static void install(struct saved *saved)
{
    static char stack[STACK];
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};

    sigaltstack(&own, &saved->stack);
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < SIGNALS; i++)
        sigaction(signals[i], &action, &saved->actions[i]);
}

static void restore(const struct saved *saved)
{
    alarm(0);
    for (int i = 0; i < SIGNALS; i++)
        sigaction(signals[i], &saved->actions[i], NULL);
    sigaltstack(&saved->stack, NULL);
}

static int failed(int cause, int seconds)
{
    if (cause == FULL)
        return sp_error(EINVAL, "plugin %s: %s appends more than %d ops to a program", guard.plugin,
                        guard.what, guard.ops);
    if (cause == SIGALRM)
        return sp_error(EINVAL,
                        "plugin %s: %s did not end within %d s (STARPIPE_PLUGIN_SECONDS sets "
                        "another limit)",
                        guard.plugin, guard.what, seconds);
    return sp_error(EINVAL, "plugin %s: %s crashed: %s", guard.plugin, guard.what,
                    strsignal(cause));
}

int sp_guard_call(const char *plugin, const char *what, void (*fn)(void *arg), void *arg)
{
    static struct saved saved;
    static int seconds;
    static bool registered;
    int cause;

    if (!plugin) {
        fn(arg);
        return 0;
    }
    seconds = limit();
    if (seconds < 0)
        return seconds;
    if (!registered)
        registered = atexit(on_exit_called) == 0;
    guard.plugin = plugin;
    guard.what = what;
    guard.thread = pthread_self();
    install(&saved);
    cause = sigsetjmp(guard.out, 1);
    if (cause == 0) {
        guard.active = 1;
        alarm((unsigned)seconds);
        fn(arg);
        guard.active = 0;
        restore(&saved);
        return 0;
    }
    if (cause == FULL) {
        restore(&saved);
        return failed(cause, seconds);
    }
    /* A lock may be held, the heap broken: the handlers stay for the way out. */
    alarm(GRACE);
    return failed(cause, seconds);
}
