/*
 * A schedule applied to a layout: one program per stage, checked, with list-simulated times.
 */
#ifndef SP_PLAN_H
#define SP_PLAN_H

#include "policies/families/family.h"
#include "policies/families/op_classes.h"
#include <stdint.h>

struct sp_placed;    /* policies/simulation/listsim.h */
struct sp_evictions; /* policies/lowering/evictions.h */

struct sp_plan {
    struct sp_layout layout;
    char options[128];
    const struct sp_schedule_def *def;
    const struct sp_family *family;
    struct sp_program *programs;  /* [stages] */
    bool split;                   /* the programs hold W ops */
    unsigned char *deferred;      /* [ids]: a W op completes this B; NULL unless split */
    struct sp_op_classes classes; /* of the ops of all programs */
    struct sp_map *map;           /* placement; layout.map points to it */
    int *first_layer;             /* [globals+1] of each global stage; NULL: split evenly */
    unsigned char *recompute;     /* [layers] enum sp_recompute of each; NULL: the same for all */
    int *first_token;             /* [slices+1] of each slice; NULL: equal lengths */
    double *slice_share;          /* [slices] part of a micro-batch's time; NULL: equal */
    bool paired;                  /* some ops overlap with their next one */
    int processes;                /* of a pipeline, for counting what stages hold; 0: one */
    bool states_twice;       /* parameters and optimizer state from before the last update stay */
    bool states_evicted;     /* the optimizer's state is on a slower tier, except around updates */
    bool updates_on_cores;   /* with it: and not even then, because cores beside GPUs update */
    struct sp_placed *order; /* [ops] of submission (sp_plan_order); NULL: not kept */
    struct sp_evictions *evictions; /* [stages] evictions and fetches; NULL: none */
    struct sp_parking *parking;     /* activations that other stages keep; NULL: none */
};

#define SP_MAX_SIZE 65536         /* of stages, micro-batches, chunks, slices */
#define SP_MAX_OPS (16 * 1000000) /* of a plan, all stages together */

/* Frees an array of programs, or NULL. */
void sp_programs_destroy(struct sp_program *programs, int stages);
void sp_plan_destroy(struct sp_plan *plan);

/* Recomputes `split`, `deferred` and `classes` after a change of the programs, and drops `order`. 0
 * or -ENOMEM. */
int sp_plan_index(struct sp_plan *plan);

/* Sets the layers of each global stage to counts[globals], instead of an even split. 0; -ENOMEM; or
 * one line on stderr and -EINVAL if a count is 0 and the family requires layers on every stage. */
int sp_plan_partition(struct sp_plan *plan, const int *counts);

/* Sets the tokens of each slice, len[slices], and its share of a micro-batch's time. 0 or
 * -ENOMEM. */
int sp_plan_slices(struct sp_plan *plan, const int *len, const double *share);
/* Copies the choices made for `from` since its creation (layers, recompute, slices) to a new plan
 * of the same layers, chunks and slices. 0 or -ENOMEM. */
int sp_plan_choose_like(struct sp_plan *plan, const struct sp_plan *from);
/* Share of a micro-batch's time that slice k takes. */
static inline double sp_plan_slice_share(const struct sp_plan *plan, int k)
{
    return plan->slice_share ? plan->slice_share[k] : 1.0 / plan->layout.slices;
}
/* Slice k of a sequence of `seq` tokens has tokens first .. first+len-1. */
void sp_plan_slice_tokens(const struct sp_plan *plan, int seq, int k, int *first, int *len);

/* The same for the tokens that an op works on: a slice, or a part of one. */
void sp_plan_op_tokens(const struct sp_plan *plan, int seq, const struct sp_op *op, int *first,
                       int *len);

/* A hash of the programs, placement and options: it differs for different plans, almost surely. */
uint64_t sp_plan_digest(const struct sp_plan *plan);

/* Writes the ops that an op waits for in a run to out[]. Returns how many. */
int sp_run_deps(const struct sp_plan *plan, int stage, const struct sp_op *op,
                struct sp_dep out[SP_MAX_DEPS]);

/* Refuses what `train` cannot do with a plan: 0, or -EINVAL after one line. */
int sp_plan_refuse(const struct sp_plan *plan, const struct sp_train_wish *wish);
/* Refuses --post-validation with one line on stderr: -EINVAL. */
int sp_refuse_post_validation(const struct sp_plan *plan);

/* Ops of all stages. */
int sp_plan_ops(const struct sp_plan *plan);

#endif
