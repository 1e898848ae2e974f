/*
 * What the parts of a layer take on a machine, from the operations and the bytes of their kernels. Pure.
 *
 * Seconds, of a stage of `devices` devices that share its rows and heads (Megatron's tensor and sequence
 * parallelism: a layer gathers its rows twice and scatters their sums twice, in each direction, and gathers
 * them twice more for weight gradients).
 */
#ifndef SP_PART_TIMES_H
#define SP_PART_TIMES_H

#include "model/stash.h"
#include "plan/machine/machine.h"

#define SP_RECOMPUTE_MODES 4 /* of enum sp_recompute */

struct sp_part_times {
    double pre, qkv, attention, post; /* forward; qkv: of pre, the QKV product */
    double out, up;                   /* of post, the output product, the first one of the MLP */
    double pre_input, qkv_input, attention_input, post_input; /* backward: gradients of inputs */
    double qkv_weight, post_weight;                           /* of weights */
    /* what the backward has to have again, by enum sp_recompute */
    double pre_again[SP_RECOMPUTE_MODES], attention_again[SP_RECOMPUTE_MODES],
        post_again[SP_RECOMPUTE_MODES];
    double embed, embed_weight;
    double head; /* forward and backward */
};

/* Of the rows of sh, a slice or a whole micro-batch. */
void sp_part_times(const struct sp_machine *machine, int devices, const struct sp_shape *sh,
                   struct sp_part_times *t);

/* Of the head, where its vocabulary is cut over so many stages: on each, the forward and the backward of its rows; and on
 * that of the last layer, the norm before it, and the backward of that, from the parts of all. */
struct sp_head_times {
    double norm, forward, backward, norm_input;
};

void sp_head_times(const struct sp_machine *machine, int devices, const struct sp_shape *sh,
                   int stages, struct sp_head_times *t);

/* A call of attention of a device with the shape. */
struct sp_attention_call {
    enum sp_attention_pass pass;
    double flops; /* of its forward, of all devices: sp_flops_attention */
    double heads; /* of all sequences, of all devices */
    double parts; /* devices that share them */
};

double sp_attention_s(const struct sp_machine *machine, const struct sp_shape *sh,
                      const struct sp_attention_call *call);

/* A pass over so many bytes, in seconds. */
double sp_memory_s(const struct sp_machine *machine, enum sp_dtype dtype, double bytes);

/* AdamW on `elements` parameters of each device, with the norm of their gradients. */
double sp_update_time(const struct sp_machine *machine, double elements);

#endif
