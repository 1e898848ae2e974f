/*
 * Classes of ops that differ only in their micro-batch. Such ops compute, keep and release the
 * same, so the cost of an op is computed once per class. Pure.
 */
#ifndef SP_OP_CLASSES_H
#define SP_OP_CLASSES_H

#include "policies/families/family.h"

struct sp_op_classes {
    int *of;       /* [ops] class of an op: the programs of all stages, one after the other */
    int *first_op; /* [stages + 1] index in `of` at which the program of a stage begins */
    int *first;    /* [stages + 1] stage s has classes first[s] .. first[s + 1] - 1 */
    int *example;  /* [classes] the first op of a class, as a place in its stage's program */
};

/* The source of the ops: the programs of all stages, and which backwards a W completes (struct
 * sp_plan). */
struct sp_op_source {
    const struct sp_family *family;
    const struct sp_layout *lay;
    const struct sp_program *programs; /* [stages] */
    const unsigned char *deferred;     /* [ids] NULL: none */
};

/* Ops of different stages are in different classes, and so are ops that the family tells apart
 * (struct sp_family: kind). 0 or -ENOMEM. */
int sp_op_classes_create(const struct sp_op_source *source, struct sp_op_classes *classes);
void sp_op_classes_destroy(struct sp_op_classes *classes);

/* A number for the class of an op of a stage, the same in plans that differ only in their
 * micro-batches. */
uint64_t sp_op_class_number(const struct sp_op_source *source, int stage, const struct sp_op *op);

/* The classes of a stage's ops, in the order of its program. */
static inline const int *sp_op_classes_of(const struct sp_op_classes *classes, int stage)
{
    return classes->of + classes->first_op[stage];
}

#endif
