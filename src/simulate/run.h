/*
 * A step of training under StarPU-SimGrid. The graph, the codelets, the order and the messages are
 * those of a run with one process for each member of each stage. A cost model gives the times of
 * tasks, the links of a machine those of messages. Nothing is computed or copied.
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
    const struct sp_shape *shape; /* includes the numbers of pipelines and of members of a stage */
    enum sp_recompute recompute;
    int every;
    enum sp_share share; /* how tasks share an op's cost: sinks/starpu/simulated.h */
    /* of ops, without messages between members of a stage; costs of messages are not used */
    const struct sp_costs *costs;
    struct sp_sim_machine machine;
};

struct sp_sim_message {
    int from, to; /* ranks: stage * members + member */
    double bytes, ready, arrived;
};

/* Results. Times are in the unit of the costs, from the start of the step. Figures of a stage are
 * those of its first member. */
struct sp_simulated {
    struct sp_times times;        /* makespan: of all members */
    struct sp_step_report report; /* the same as a report of a run; a unit is 1000 us */
    int stages, members;          /* members: of each stage */
    double step;                  /* until the last message, when gradients are summed */
    double *busy;                 /* [stages] time of the tasks of ops */
    int64_t *peak_bytes;          /* [stages] of stashed activations */
    double *bytes_sent;           /* [stages] */
    long tasks, n_messages;
    struct sp_sim_message *messages; /* in the order of arrival */
    double submit_s, run_s;          /* real time: submitting, simulating */
    int64_t resident_bytes;          /* peak memory of this process */
};

/* Returns true if this program was built with StarPU-SimGrid. */
bool sp_can_simulate(void);

/*
 * Runs one step, if sp_can_simulate. A process may call it once. 0; or -errno after one line:
 * -EINVAL if there are more stages than StarPU can have workers.
 */
int sp_sim_run(const struct sp_simulation *s, struct sp_simulated *out);
void sp_simulated_destroy(struct sp_simulated *r);

#endif
