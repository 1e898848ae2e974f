/* The sink that runs, for whoever submits to it, or waits for what it has; what calls StarPU has sinks/starpu/tensor.h. */
#ifndef SP_SINKS_STARPU_H
#define SP_SINKS_STARPU_H

#include "sinks/sink.h"

/* That of this process, between sp_transport_start and sp_transport_stop. */
struct sp_sink *sp_starpu_sink(void);

/* sp_transport_send_wait and sp_transport_recv_wait. */
void sp_tensor_send_wait(struct sp_tensor *t, int rank, int64_t tag);
void sp_tensor_receive_wait(struct sp_tensor *t, int rank, int64_t tag);

/* Where the value of a tensor is that another thread has acquired. */
void *sp_tensor_local(const struct sp_tensor *t);

/* Calls f(arg) on every CPU worker, side by side, and waits; on one alone; and which worker this is, -1: none. */
void sp_workers_run(void (*f)(void *arg), void *arg);
void sp_worker_run(int worker, void (*f)(void *arg), void *arg);
int sp_worker_here(void);

/* As include/starpipe/order.h has them: rests of idle workers, how many are idle, how long one was held up; all positions are
 * forgotten. */
void sp_workers_rest(long ns);
int sp_workers_waiting(void);
double sp_worker_held_us(int worker);
void sp_workers_reset(void);

/* Whether tasks are timed from here on; returns whether they were. */
bool sp_starpu_profile(bool on);

/* Microseconds of wall-clock time (Unix epoch), the same clock for all tasks of a machine; of simulated time, where runs
 * are simulated. */
double sp_now_us(void);

#endif
