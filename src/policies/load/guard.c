/*
 * A call is tried in a copy of the process first (rehearsal.h), which finds nearly everything that
 * is wrong with it. Signal handlers catch crashes that happen here after all, or later, in a thread
 * that a plugin has started.
 */
#define _GNU_SOURCE /* dladdr */
#include "policies/load/guard.h"
#include "policies/load/rehearsal.h"
#include "sp_error.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <fenv.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SECONDS = 30, GRACE = 10, STACK = 65536, MOST_PLUGINS = 64, FRAMES = 64 };
enum {
    REHEARSALS = 256
}; /* a search asks for thousands of layouts: all copies together take at most a second */

/* Crash signals, which stay caught once there is a plugin; the last one is the time limit's. */
static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
enum { SIGNALS = sizeof signals / sizeof *signals, CRASHES = SIGNALS - 1 };

static struct {
    volatile sig_atomic_t active, failed;
    pthread_t thread;
    sigjmp_buf out;
    int ops; /* of the program that is full */
    const struct sp_schedule_owner *owner;
    const char *what;
    const char *plugins[MOST_PLUGINS];
    int n_plugins;
    bool works; /* work has begun */
} guard;

struct saved {
    struct sigaction actions[SIGNALS];
    stack_t stack;
};

/* The handling of signals before the first plugin. */
static struct sigaction others[SIGNALS];

/* ---- signals ------------------------------------------------------------------------------- */

/* The plugin that has a frame on this thread's stack, NULL: none. */
static const char *plugin_on_stack(void)
{
    void *frame[FRAMES];
    int n = backtrace(frame, FRAMES);
    Dl_info at;

    for (int i = 0; i < n; i++)
        for (int k = 0; k < guard.n_plugins; k++)
            if (dladdr(frame[i], &at) && at.dli_fname && !strcmp(at.dli_fname, guard.plugins[k]))
                return guard.plugins[k];
    return NULL;
}

/* Handles a crash outside of any guarded call. */
static void on_crash(int sig)
{
    const char *plugin = plugin_on_stack();

    if (plugin) {
        sp_error_hold(0);
        sp_error(EINVAL, "plugin %s: a thread of its own crashed: %s", plugin, strsignal(sig));
        _exit(guard.works ? 1 : 2);
    }
    /* not ours: handled as without plugins, when the instruction runs again */
    for (int i = 0; i < CRASHES; i++)
        if (signals[i] == sig)
            sigaction(sig, &others[i], NULL);
    if (sig == SIGABRT)
        raise(sig);
}

static void on_signal(int sig)
{
    bool here = pthread_equal(pthread_self(), guard.thread);

    if (!here && sig == SIGALRM) { /* this signal may reach any thread */
        pthread_kill(guard.thread, sig);
    } else if (!here || (!guard.active && !guard.failed)) {
        on_crash(sig);
    } else if (!guard.active) {
        _exit(2); /* the error was printed, and it left the process unable to end */
    } else {
        guard.active = 0;
        guard.failed = 1;
        siglongjmp(guard.out, sig);
    }
}

static void on_exit_called(void)
{
    sp_rehearsal_exits();
    if (!guard.active)
        return;
    guard.active = 0;
    sp_error(EINVAL, "%s: %s called exit", guard.owner->label, guard.what);
    _exit(2);
}

void sp_guard_full(int ops)
{
    sp_rehearsal_full(ops);
    if (guard.active) {
        guard.active = 0;
        guard.ops = ops;
        siglongjmp(guard.out, SP_CALL_FULL);
    }
    sp_error(EINVAL, "a schedule appends more than %d ops to a program", ops);
    exit(2);
}

void sp_guard_work_begins(void)
{
    guard.works = true;
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

/* Signals arrive on a stack of their own, since the plugin may have used up the other one. */
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

/* Crashes stay caught once there is a plugin, since it may have threads. */
static void restore(const struct saved *saved)
{
    alarm(0);
    for (int i = guard.n_plugins ? CRASHES : 0; i < SIGNALS; i++)
        sigaction(signals[i], &saved->actions[i], NULL);
    sigaltstack(&saved->stack, NULL);
}

/* ---- what a plugin may not change ------------------------------------------------------------ */

/* The handling of signals, and the rounding of numbers, which a library linked with -ffast-math
 * changes for its whole process. The signals that catch crashes are left out: they are set anew
 * before each call. */
struct handling {
    fenv_t numbers;
    sigset_t mask;
    struct sigaction action[32];
};

static bool is_caught(int sig)
{
    for (int i = 0; i < SIGNALS; i++)
        if (signals[i] == sig)
            return true;
    return false;
}

static void note_handling(struct handling *h)
{
    fegetenv(&h->numbers);
    pthread_sigmask(SIG_SETMASK, NULL, &h->mask);
    for (int sig = 1; sig < 32; sig++)
        sigaction(sig, NULL, &h->action[sig]);
}

/* Restores the handling. 0, or -EINVAL if the plugin has changed it, with a line if `says`. */
static int restore_handling(const struct handling *before, bool says)
{
    struct handling now;
    int blocked = 0, changed = 0;

    fesetenv(&before->numbers);
    note_handling(&now);
    for (int sig = 1; sig < 32; sig++) {
        if (sigismember(&now.mask, sig) && !sigismember(&before->mask, sig))
            blocked = sig;
        if (is_caught(sig) || now.action[sig].sa_handler == before->action[sig].sa_handler)
            continue;
        sigaction(sig, &before->action[sig], NULL);
        changed = sig;
    }
    pthread_sigmask(SIG_SETMASK, &before->mask, NULL);
    if (blocked && says)
        return sp_error(EINVAL, "%s: %s blocks signals (%s)", guard.owner->label, guard.what,
                        strsignal(blocked));
    if (changed && says)
        return sp_error(EINVAL, "%s: %s changes what signals do (%s)", guard.owner->label,
                        guard.what, strsignal(changed));
    return 0;
}

/* ---- a call ---------------------------------------------------------------------------------- */

static int failed(int cause, int seconds)
{
    const char *label = guard.owner->label, *what = guard.what;

    if (cause == SP_CALL_EXIT)
        return sp_error(EINVAL, "%s: %s called exit", label, what);
    if (cause == SP_CALL_FULL)
        return sp_error(EINVAL, "%s: %s appends more than %d ops to a program", label, what,
                        guard.ops);
    if (cause == SIGALRM)
        return sp_error(EINVAL,
                        "%s: %s did not end within %d s (STARPIPE_PLUGIN_SECONDS sets "
                        "another limit)",
                        label, what, seconds);
    return sp_error(EINVAL, "%s: %s %s: %s", label, what,
                    is_caught(cause) ? "crashed" : "raised a signal", strsignal(cause));
}

/* Work done once: at the first call of all, and at the first call of each plugin. NULL: the code is
 * the program's. */
static void know(const char *plugin)
{
    static bool registered;
    void *frame[1];

    if (!registered) {
        registered = atexit(on_exit_called) == 0;
        backtrace(frame, 1); /* loads what it needs: in a handler that is too late */
    }
    for (int i = 0; i < SIGNALS && !guard.n_plugins; i++)
        sigaction(signals[i], NULL, &others[i]);
    if (!plugin)
        return;
    for (int i = 0; i < guard.n_plugins; i++)
        if (!strcmp(guard.plugins[i], plugin))
            return;
    if (guard.n_plugins < MOST_PLUGINS)
        guard.plugins[guard.n_plugins++] = plugin;
}

int sp_guard_call(const struct sp_schedule_owner *owner, const char *what, void (*fn)(void *arg),
                  void *arg)
{
    static struct saved saved;
    static struct handling before;
    static int seconds, rehearsals;
    int cause;

    if (!owner) {
        fn(arg);
        return 0;
    }
    seconds = limit();
    if (seconds < 0)
        return seconds;
    guard.owner = owner;
    guard.what = what;
    guard.thread = pthread_self();
    know(owner->file);
    cause = rehearsals++ < REHEARSALS ? sp_rehearse(fn, arg, seconds, &guard.ops) : 0;
    if (cause)
        return failed(cause, seconds);
    note_handling(&before);
    install(&saved);
    cause = sigsetjmp(guard.out, 1);
    if (cause == 0) {
        guard.active = 1;
        alarm((unsigned)seconds);
        fn(arg);
        guard.active = 0;
        restore(&saved);
        return restore_handling(&before, true);
    }
    restore_handling(&before, false);
    if (cause == SP_CALL_FULL)
        restore(&saved);
    else /* a lock may be held, the heap broken: the handlers stay for the way out */
        alarm(GRACE);
    return failed(cause, seconds);
}
