/*
 * A step of training under StarPU-SimGrid: the graph, the codelets, the order and the messages are those
 * of a run with one process a stage, or one a member where several share a stage; tasks take what a cost model
 * says, messages what the links of a machine make of them, and nothing is computed or copied.
 */
#ifndef SP_SIM_RUN_H
#define SP_SIM_RUN_H

#include "sinks/starpu/simulated.h"
#include "graphs/report/report.h"
#include "model/params.h"
#include "policies/plan.h"
#include "policies/simulation/times.h"
#include "simulate/machine.h"

struct sp_simulation {
    const struct sp_plan *plan;
    const struct sp_params *params;
    const struct sp_shape *shape; /* with how many pipelines, and members of a stage, there are */
    enum sp_recompute recompute;
    int every;
    enum sp_share share; /* of an op's cost among its tasks: sinks/starpu/simulated.h */
    /* of ops, without what members of a stage send each other; what comes of messages is not used */
    const struct sp_costs *costs;
    struct sp_sim_machine machine;
};

struct sp_sim_message {
    int from, to; /* ranks: stage * members + member */
    double bytes, ready, arrived;
};

/* In the unit of the costs, from the first moment of the step. Of a stage what its first member has. */
struct sp_simulated {
    struct sp_times times;        /* makespan: of all members */
    struct sp_step_report report; /* the same as a run has it: a unit is 1000 us */
    int stages, members;          /* of each stage */
    double step;                  /* until the last message: gradients are summed then */
    double *busy;                 /* [stages] tasks of ops */
    int64_t *peak_bytes;          /* [stages] of stashed activations */
    double *bytes_sent;           /* [stages] */
    long tasks, n_messages;
    struct sp_sim_message *messages; /* as they arrived */
    double submit_s, run_s;          /* of the real clock: submitting, simulating */
    int64_t resident_bytes;          /* the most memory that this process had */
};

/* Whether this program was built with StarPU-SimGrid. */
bool sp_can_simulate(void);

/*
 * Where it was: runs one step, once a process. 0; or -errno after one line: -EINVAL where there are more
 * stages than StarPU can have workers.
 */
int sp_sim_run(const struct sp_simulation *s, struct sp_simulated *out);
void sp_simulated_destroy(struct sp_simulated *r);

#endif
