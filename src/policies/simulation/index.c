#include "policies/simulation/index.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sp_index_create(const struct sp_plan *plan, struct sp_index *ix, int *stage, int *index)
{
    const struct sp_layout *lay = &plan->layout;
    int n = plan->family->ids(lay);
    int *place = malloc((size_t)(n > 0 ? n : 1) * sizeof *place);

    if (!place)
        return -ENOMEM;
    memset(place, -1, (size_t)n * sizeof *place);
    for (int s = 0; s < lay->stages; s++) {
        const struct sp_program *prog = &plan->programs[s];

        for (int k = 0; k < prog->n; k++) {
            int id = plan->family->id(lay, s, &prog->ops[k]);

            if (id < 0 || id >= n) {
                free(place);
                *stage = s;
                *index = k;
                return -EINVAL;
            }
            if (place[id] < 0)
                place[id] = k;
        }
    }
    ix->ids = n;
    ix->place = place;
    return 0;
}

void sp_index_destroy(struct sp_index *ix)
{
    free(ix->place);
    ix->place = NULL;
}

int sp_index_place(const struct sp_index *ix, const struct sp_plan *plan, const struct sp_dep *dep)
{
    int id = plan->family->id(&plan->layout, dep->stage, &dep->op);

    return id < 0 ? -1 : ix->place[id];
}
