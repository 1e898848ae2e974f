/* The StarPU sink, for callers that submit to it or wait for its tensors. Code that calls StarPU
 * itself uses sinks/starpu/tensor.h. */
#ifndef SP_SINKS_STARPU_H
#define SP_SINKS_STARPU_H

#include "sinks/sink.h"

/* The sink of this process, valid between sp_transport_start and sp_transport_stop. */
struct sp_sink *sp_starpu_sink(void);

/* Like sp_transport_send_wait and sp_transport_recv_wait. */
void sp_tensor_send_wait(struct sp_tensor *t, int rank, int64_t tag);
void sp_tensor_receive_wait(struct sp_tensor *t, int rank, int64_t tag);

/* The address of the value of a tensor that another thread has acquired. */
void *sp_tensor_local(const struct sp_tensor *t);

/* Calls f(arg) on every CPU worker at once and waits; the same on one worker; and the worker that
 * this thread is, -1: none. */
void sp_workers_run(void (*f)(void *arg), void *arg);
void sp_worker_run(int worker, void (*f)(void *arg), void *arg);
int sp_worker_here(void);

/* Wrappers of include/starpipe/order.h: sets the rest of idle workers, counts idle workers, returns
 * how long a worker was held, forgets all positions. */
void sp_workers_rest(long ns);
int sp_workers_waiting(void);
double sp_worker_held_us(int worker);
void sp_workers_reset(void);

/* Turns the timing of tasks on or off. Returns true if it was on before. */
bool sp_starpu_profile(bool on);

/* Microseconds of wall-clock time (Unix epoch), one clock for all tasks of a machine; in simulated
 * runs, of simulated time. */
double sp_now_us(void);

#endif
