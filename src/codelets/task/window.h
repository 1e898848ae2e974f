/*
 * The bounded submission window: how many ops may be submitted and not finished. Submission waits
 * when the window is full, so that receive buffers and task memory stay bounded however long the
 * step is. Ops must be submitted in a global topological order: then the oldest unfinished op can
 * always run, and waiting cannot deadlock.
 */
#ifndef SP_WINDOW_H
#define SP_WINDOW_H

#include <stdbool.h>

struct sp_window;
struct sp_window_op;

/* Makes a window of `ops` unfinished ops. NULL without memory. */
struct sp_window *sp_window_create(int ops);
void sp_window_destroy(struct sp_window *w);

/* Opens an op of a step, waiting for room; sp_window_add counts its tasks. Steps have turns 0
 * and 1 alternately, because one may begin before the last one has ended. */
struct sp_window_op *sp_window_open(struct sp_window *w, int turn);
/* Says that no more tasks will be added. */
void sp_window_close(struct sp_window_op *op);

void sp_window_add(struct sp_window_op *op);  /* one more task */
void sp_window_done(struct sp_window_op *op); /* one task ended */

/* Waits until no op of the steps with this turn is unfinished. */
void sp_window_drain(struct sp_window *w, int turn);

#endif
