/*
 * The StarPU scheduling policies of starpipe: each worker follows a program.
 *
 * A task belongs to a program when it is placed on exactly one worker (starpu_task::workerids)
 * and carries a position in starpu_task::workerorder: 1, 2, 3, ... for each worker, without holes,
 * never reset. Other tasks (workerorder 0) run in the order in which they become ready, on any
 * worker that can and has no program task to run.
 *
 *   starpipe        strict: a worker runs position k only after position k-1 was taken
 *   starpipe-ready  a worker whose next task is not ready takes the earliest ready one of its
 *                   program instead, if the memory bound allows (sp_order_bound)
 *
 * Any StarPU program can use them with STARPU_SCHED=starpipe and, as STARPU_SCHED_LIB, the file that
 * `pkg-config --variable=scheduler starpipe` names; starpipe itself passes them in
 * starpu_conf::sched_policy. See examples/scheduler and examples/gpt.
 */
#ifndef STARPIPE_ORDER_H
#define STARPIPE_ORDER_H

#include <stdbool.h>
#include <starpu.h>
#include <starpu_scheduler.h>

#pragma GCC visibility push(default)

extern struct starpu_sched_policy sp_order_strict;
extern struct starpu_sched_policy sp_order_ready;

/* Sets the most bytes that `starpipe-ready` lets be alive on a worker, in the units of
 * sp_order_memory. Default: no bound. */
void sp_order_bound(int worker, int64_t bytes);

/*
 * Declares, before submission, that the task at `order` on `worker` makes `acquire` bytes alive
 * when it starts and lets `release` bytes die when it ends. Undeclared: 0 and 0.
 */
void sp_order_memory(int worker, unsigned order, int64_t acquire, int64_t release);

/*
 * Holds a position: its task is not taken, even when ready, until sp_order_release was called as
 * often as this. Call it before the task is submitted; any thread may release. It serves conditions
 * that no data dependency expresses, such as room in memory.
 */
void sp_order_hold(int worker, unsigned order);
void sp_order_release(int worker, unsigned order);

/* Microseconds that a worker has waited so far for a position that was held although its task was
 * ready. While `busy` says that the worker's device has earlier work to do, it does not wait; NULL,
 * the default: a worker that looks for a task has none. `busy` is called by the worker. */
double sp_order_held_us(int worker);
void sp_order_busy(bool (*busy)(int worker));

/* Forgets the bytes that are alive on a worker, because its tasks were undone. Call it only while
 * none of them is in flight. */
void sp_order_forget(int worker);

/* Sets how many nanoseconds a worker rests when it finds nothing to run. It rests longer the longer
 * it waits, and wakes when a task is filed for it. 0, the default: it polls. This is for workers
 * that share a core with threads that could use it. */
void sp_order_rest(long ns);

/* Returns how many workers found nothing to run when they last looked. `tell`, if not NULL, is
 * called by each worker that becomes idle; it may cause work to arrive. */
int sp_order_waiting(void);
void sp_order_tell_waiting(void (*tell)(void));

/* Forgets all positions and declarations; only while no task is in flight. */
void sp_order_reset(void);

/* The entry points that StarPU looks up in STARPU_SCHED_LIB. The first returns the policy of a
 * name, or NULL; the second returns all policies, NULL-terminated. */
struct starpu_sched_policy *starpu_get_sched_lib_policy(const char *name);
struct starpu_sched_policy **starpu_get_sched_lib_policies(void);

#pragma GCC visibility pop

#endif
