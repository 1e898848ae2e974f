/*
 * The times of tasks in simulated runs. A cost model gives the time of an op, and its tasks share
 * it, so that their times always sum to that of the op. Ops that overlap are one unit, with the
 * time of both. The time of a task is known only when all tasks are submitted, so workers must not
 * start before.
 */
#ifndef SP_SIMULATED_H
#define SP_SIMULATED_H

#include <stdbool.h>
#include <starpu.h>

enum sp_share {
    /*
     * Like in the list simulation, an op computes when all its inputs are there, and its outputs
     * leave when it has computed. The tasks that share its time, equally, begin at the last task
     * that is the first to read a received buffer, and end at the first task that writes a buffer
     * to be sent. If these are in the wrong order, all tasks share it.
     */
    SP_SHARE_WHOLE,
    SP_SHARE_FLOPS /* by the operations of each task */
};

struct sp_op_time {
    double us;                /* given: of all its tasks */
    enum sp_share share;      /* given */
    struct sp_op_time *leads; /* given: the first op of its unit; NULL: this op is the first */
    int tasks;                /* of the unit; this and the rest are counted at submission */
    double flops;
    int last_input;   /* number of a task */
    int first_output; /* likewise, counted from 1; 0: nothing is sent */
};

/* Counts a task with its op, before it is submitted, with all its buffers. */
void sp_simulated_add(struct starpu_task *task);

/* Says that a message into a buffer, or from it, was submitted now. `begins`: the first task that
 * reads it may begin an op; not so for messages from other members of the stage. */
void sp_simulated_received(starpu_data_handle_t handle, bool begins);
void sp_simulated_sent(starpu_data_handle_t handle);

/* Forgets all buffers. */
void sp_simulated_forget(void);

/* The cost function of StarPU's performance model: the time of a task. Never 0, which would mean no
 * model. */
double sp_simulated_us(struct starpu_task *task, struct starpu_perfmodel_arch *arch, unsigned impl);

#endif
