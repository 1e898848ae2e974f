/*
 * Times of the parts of a layer on a machine, from the operations and bytes of their kernels. Pure.
 *
 * Times are in seconds, for a stage of `devices` devices that share its rows and heads (Megatron's
 * tensor and sequence parallelism: in each direction a layer gathers its rows twice and scatters
 * their sums twice; for weight gradients it gathers them twice more).
 */
#ifndef SP_PART_TIMES_H
#define SP_PART_TIMES_H

#include "model/stash.h"
#include "plan/machine/machine.h"

#define SP_RECOMPUTE_MODES 4 /* of enum sp_recompute */

/* The machine and the recompute mode at which the ops of a plan are priced. */
struct sp_op_terms {
    const struct sp_machine *machine;
    int devices; /* of a stage */
    enum sp_recompute recompute;
    int every; /* full recomputation keeps the input of each every-th layer */
    /* [stages] NULL: one for each stage; a process passes on tensors without copies */
    const int *process;
};

struct sp_part_times {
    double pre, qkv, attention, post; /* forward; qkv: of pre, the QKV product */
    double out, up;                   /* of post, the output product, the first one of the MLP */
    double pre_input, qkv_input, attention_input, post_input; /* backward: gradients of inputs */
    double qkv_weight, post_weight;                           /* of weights */
    /* what the backward recomputes, by enum sp_recompute */
    double pre_again[SP_RECOMPUTE_MODES], attention_again[SP_RECOMPUTE_MODES],
        post_again[SP_RECOMPUTE_MODES];
    double embed, embed_weight;
    double head; /* forward and backward */
};

/* Seconds of a layer, forward and backward. */
static inline double sp_part_times_sum(const struct sp_part_times *t)
{
    return t->pre + t->attention + t->post + t->pre_input + t->attention_input + t->post_input +
           t->qkv_weight + t->post_weight;
}

/* Sets the times of the rows of sh, a slice or a whole micro-batch. */
void sp_part_times(const struct sp_machine *machine, int devices, const struct sp_shape *sh,
                   struct sp_part_times *t);

/* Times of a head whose vocabulary is cut over `stages` stages. Each stage runs the forward and the
 * backward of its rows. The stage of the last layer also runs the norm before them, and the norm's
 * backward from the parts of all stages. */
struct sp_head_times {
    double norm, forward, backward, norm_input;
};

void sp_head_times(const struct sp_machine *machine, int devices, const struct sp_shape *sh,
                   int stages, struct sp_head_times *t);

/* One attention call of a device. */
struct sp_attention_call {
    enum sp_attention_pass pass;
    double flops; /* of the forward on all devices: sp_flops_attention */
    double heads; /* of all sequences, on all devices */
    double parts; /* devices that share them */
};

double sp_attention_s(const struct sp_machine *machine, const struct sp_shape *sh,
                      const struct sp_attention_call *call);

/* FLOPs of attention of a slice's queries over their own keys and `before` tokens before them. */
double sp_queries_flops(const struct sp_shape *slice, int before);

/* One attention call on a stage with this shape; `flops` counts all devices. */
double sp_stage_attention_s(const struct sp_machine *machine, double devices,
                            const struct sp_shape *sh, enum sp_attention_pass pass, double flops);

/* Seconds of a pass over so many bytes. */
double sp_memory_s(const struct sp_machine *machine, enum sp_dtype dtype, double bytes);

/* AdamW on `elements` parameters of each device, with the norm of their gradients. */
double sp_update_time(const struct sp_machine *machine, double elements);

#endif
