/*
 * Plays the experiments of a paper. A run is a schedule on a machine as in the paper; the
 * simulation that every prediction uses plays it (plan/predict.h). Behaviour that our own runs
 * lack, such as blocking until a message is sent, is a property of the run. Below it are schedules
 * at unit costs, and systems that no schedule of ours is.
 */
#ifndef SP_REPRODUCE_RUN_H
#define SP_REPRODUCE_RUN_H

#include "model/model.h"
#include "model/shape.h"
#include "model/stash.h"
#include "offload/eviction.h"
#include "plan/cost/part_times.h"
#include "plan/machine/machine.h"
#include "plan/simulation/step_messages.h"

struct sp_run {
    const char *machine, *schedule;
    struct sp_model model;
    int batch, seq;                    /* of a micro-batch */
    int stages, devices;               /* devices: of a stage */
    int pipelines;                     /* pipelines that share a step and ZeRO-1's update; 0: one */
    int context;                       /* for sp_zero3: devices that share a sequence; 0: one */
    int micro_batches, slices, chunks; /* of a pipeline; chunks 0: the schedule's */
    enum sp_recompute recompute;
    enum sp_offload_mode offload;
    bool hides_all;  /* adaptive offloading moves all that it can hide, not just enough to fit */
    const char *cut; /* the lengths of the slices; NULL: the schedule's usual ones */
    bool blocking; /* a stage does not compute while its messages to and from other nodes travel */
    double waits;  /* of blocking messages: each end waits this many times the message; 0: once */
    bool ring_as_published; /* see sp_ring_as_published; for weight rings */
    double unfused;     /* bytes that element-wise kernels move, relative to ours; 0: the same */
    double attention;   /* rate of attention, relative to the machine's; 0: the same */
    double logit_bytes; /* kept for each logit of a micro-batch, if the head is not cut into rows */
    bool memory_only;   /* nothing is simulated */
    double *stage_bytes; /* [stages], set to the bytes of one device of each; NULL: not wanted */
};

struct sp_run_result {
    double step_s;
    double bubble;       /* of the time of all stages */
    double memory_bytes; /* of a device of the fullest stage */
    double stall_s;      /* of step_s: the part that offloading adds */
    double kept_bytes;   /* of memory_bytes: kept for backwards; set only with offloading */
    double host_bytes;   /* that offloading keeps in the memory of a node */
    bool fits;
};

/* 0; or one line on stderr and -errno. */
int sp_run(const struct sp_run *run, struct sp_run_result *result);

/* A micro-batch of so many sequences of so many tokens, in two bytes a number. */
struct sp_shape sp_bf16_shape(const struct sp_model *model, int batch, int seq, int micro_batches);

/* The machine by its name, and the machine as the run changes it. Both last until the next call.
 * NULL after one line on stderr. */
const struct sp_machine *sp_machine_named(const char *name);
const struct sp_machine *sp_run_machine(const struct sp_run *run);

/* Tokens a second and device of a run. */
double sp_run_rate(const struct sp_run *run, const struct sp_run_result *result);

/*
 * Changes the messages of a weight ring, of which ours differ in three ways (Lin et al. 2025,
 * sections 3 and 4):
 *
 *   - gradients travel in two bytes a number, not four;
 *   - weights are passed on in the turn in which they are used. Ours go ahead as soon as they are
 *     there, and a slow link is then busy with what is not wanted yet;
 *   - chunks wait where the ring wants them first, in the order in which it does, and stay where it
 *     leaves them. Ours go from their owner and back: with 4 rounds on 16 workers that is a quarter
 *     more.
 */
void sp_ring_as_published(const struct sp_plan *plan, struct sp_step_messages *messages);

/* ---- schedules at unit costs, as papers draw them: no machine, no model (theory.c) */

struct sp_theory {
    const char *schedule;
    int stages, micro_batches, slices; /* slices 0: one */
    int chunks, layers;                /* chunks 0: the schedule's; layers 0: one a chunk */
    const char *costs;                 /* of cli `--cost`; NULL: f = b = 1, w = 0 */
    double comm;                       /* besides */
    enum sp_recompute recompute;
};

struct sp_theory_result {
    double makespan, busy; /* busy: of the busiest stage */
    double bubble;         /* idle part of the time of all stages */
    double peak;           /* most activations of a stage, in micro-batches on a whole stage */
    int messages;
};

/* The list simulation. 0; or one line on stderr and -errno. */
int sp_theory_run(const struct sp_theory *theory, struct sp_theory_result *result);

/* Bytes of activations that a stage holds at its peak. */
int sp_theory_activations(const struct sp_theory *theory, const struct sp_shape *shape, int stage,
                          double *bytes);

/* ---- parts of a layer; and systems that papers compare with and that no schedule of ours is: what
 * a step takes of each, by formula, from the operations, bytes and links of the same machines
 * (systems.c) */

/* Seconds of a layer: its forward, its backward, and what its backward computes again. */
double sp_layer_forward_s(const struct sp_part_times *t);
double sp_layer_backward_s(const struct sp_part_times *t);
double sp_layer_again_s(const struct sp_part_times *t, enum sp_recompute recompute);

/* Bytes that a layer keeps for its backward. */
double sp_layer_kept_bytes(const struct sp_shape *sh, enum sp_recompute recompute);

/* Sums over the devices of a tensor-parallel stage, a layer and direction: after attention's output
 * product and after the MLP's last one (Megatron-LM, Shoeybi et al. 2019, section 3). */
enum { SP_TENSOR_PARALLEL_SUMS = 2 };

/*
 * ZeRO-3 of DeepSpeed (Rajbhandari et al. 2020, section 5.3): devices n, each with whole layers of
 * its own micro-batches and 1/n of every parameter. Before its forward, and again before its
 * backward, a layer's parameters are gathered, and afterwards its gradients scattered; each of
 * these sends (n-1)/n of P parameters over every link of a ring, whose slowest link is that between
 * nodes:
 *
 *   T = m (t_F + t_R + t_B + 3 (n-1)/n 2P / B) + t_update
 *
 * Nothing of it is hidden behind computation: with `stages` = n of the run, m = micro_batches / n
 * each. If `context` devices share each sequence (DeepSpeed-Ulysses), so many have a micro-batch
 * together.
 */
int sp_zero3(const struct sp_run *run, struct sp_run_result *result);

#endif
