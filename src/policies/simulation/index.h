/* The place of every op of a plan: maps the dense numbers of its family to indices in the
 * programs. */
#ifndef SP_INDEX_H
#define SP_INDEX_H

#include "policies/plan.h"

struct sp_index {
    int ids;
    int *place; /* [ids] index in the program of its stage (the first, if twice), -1: nowhere */
};

/* 0; -ENOMEM; or -EINVAL with *stage and *index set to the first op that the family does not
 * have. */
int sp_index_create(const struct sp_plan *plan, struct sp_index *ix, int *stage, int *index);
void sp_index_destroy(struct sp_index *ix);

/* Place of a producer; -1 if its stage does not run it. */
int sp_index_place(const struct sp_index *ix, const struct sp_plan *plan, const struct sp_dep *dep);

#endif
