/*
 * Where every op of a plan is: the dense numbers of its family mapped to places in the programs.
 * And stages that wait for an op to run, woken when it has. Both are shared by the list
 * simulation, the verifier and the merge.
 */
#ifndef SP_INDEX_H
#define SP_INDEX_H

#include "policies/plan.h"

struct sp_index {
    int ids;
    int *place; /* [ids] index in the program of its stage (the first, if twice), -1: nowhere */
};

/* 0; -ENOMEM; or -EINVAL at the first op that the family does not have: stage and index set. */
int sp_index_create(const struct sp_plan *plan, struct sp_index *ix, int *stage, int *index);
void sp_index_destroy(struct sp_index *ix);

/* Place of a producer; -1 if its stage does not run it. */
int sp_index_place(const struct sp_index *ix, const struct sp_plan *plan, const struct sp_dep *dep);

/* Lists of stages by the op each waits for; a stage waits for one op at a time. */
struct sp_waiters {
    int *first; /* [ids] stage, -1: none */
    int *next;  /* [stages] -1: last of its list, -2: not waiting */
};

int sp_waiters_create(int ids, int stages, struct sp_waiters *w); /* 0 or -ENOMEM */
void sp_waiters_destroy(struct sp_waiters *w);
/* Nothing if the stage waits already: what it waited for is then still to come. */
void sp_waiters_add(struct sp_waiters *w, int id, int stage);
/* Takes one of the stages that wait for the op; -1: none left. */
int sp_waiters_take(struct sp_waiters *w, int id);

#endif
