/*
 * Calls into code that may be wrong, that of plugins: what crashes, exits or does not end is ended
 * there, and the caller goes on with the reason said.
 */
#ifndef SP_GUARD_H
#define SP_GUARD_H

/*
 * Runs fn(arg) once. `plugin`: the file that the code comes from; NULL: it is starpipe's own and is
 * called without any guard. 0; or -EINVAL after the line "plugin FILE: WHAT ..." on stderr when it
 *   does not end within 30 s (STARPIPE_PLUGIN_SECONDS sets another limit),
 *   is ended by a signal, or
 *   appends to a program without end (sp_guard_full).
 * A call of exit() ends the process with that line and status 2. What fn allocated is lost. The
 * process should then end: for the case that a crash left it unable to, it is ended 10 s later,
 * with status 2. One call at a time.
 */
int sp_guard_call(const char *plugin, const char *what, void (*fn)(void *arg), void *arg);

/* Leaves the call because a program has `ops` ops and takes no more: for sp_program_limit. In
 * code that is not guarded the process ends with a line and status 2. Never returns. */
void sp_guard_full(int ops) __attribute__((noreturn));

#endif
