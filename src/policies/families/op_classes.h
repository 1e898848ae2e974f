/*
 * Classes of ops that differ in nothing but their micro-batch: they compute, keep and release the same, so what an op
 * costs is computed once a class. Pure.
 */
#ifndef SP_OP_CLASSES_H
#define SP_OP_CLASSES_H

#include "starpipe/op.h"

struct sp_plan;

struct sp_op_classes {
    int *of;       /* [ops] class of an op: the programs of all stages, one after the other */
    int *first_op; /* [stages + 1] where the program of a stage begins in that */
    int *first;    /* [stages + 1] classes first[s] .. first[s + 1] - 1 are of stage s */
    int *example;  /* [classes] place in the program of its stage of the first op of a class */
};

/* Ops of different stages are of different classes, and so are those that the family tells apart (struct sp_family:
 * kind). plan->deferred is set. 0 or -ENOMEM. */
int sp_op_classes_create(const struct sp_plan *plan, struct sp_op_classes *classes);
void sp_op_classes_destroy(struct sp_op_classes *classes);

#endif
