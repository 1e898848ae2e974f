/*
 * Calls into code that may be wrong, that of plugins and of the program itself. A call that
 * crashes, exits or does not end is stopped; the caller goes on, after a line with the reason.
 */
#ifndef SP_GUARD_H
#define SP_GUARD_H

#include "policies/registry.h"

/*
 * Runs fn(arg) once. `owner` owns the code; NULL: the code is starpipe's own and is called without
 * any guard. Otherwise it runs in a copy of the process first, so fn must do nothing that is seen
 * outside. `owner` must live as long as the process. 0; or -EINVAL after the line "LABEL: WHAT ..."
 * on stderr when it
 *   does not end within 30 s (STARPIPE_PLUGIN_SECONDS sets another limit),
 *   ends the process, or is ended by a signal,
 *   appends to a program without end (sp_guard_full), or
 *   blocks signals, or changes what they do.
 * The process should then end. If a crash left it unable to, it is ended 10 s later, with status 2.
 * One call at a time. A later crash, in a thread that a plugin has started, ends the process with a
 * line that names the plugin and status 2, or 1 from sp_guard_work_begins on.
 */
int sp_guard_call(const struct sp_schedule_owner *owner, const char *what, void (*fn)(void *arg),
                  void *arg);

void sp_guard_work_begins(void);

/* Leaves the call because a program has `ops` ops and takes no more: for sp_program_limit. In code
 * that is not guarded the process ends with a line and status 2. Never returns. */
void sp_guard_full(int ops) __attribute__((noreturn));

#endif
