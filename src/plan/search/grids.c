#include "plan/search/moves.h"
#include "model/tensor_parts.h"
#include "policies/lowering/pipelines.h"
#include "sp_grow.h"

static int devices_of(const struct sp_search *want)
{
    return want->nodes * want->machine->devices_per_node;
}

/* True if the user gave all sizes but the pipelines: then there is one pipeline, on as many devices
 * as it needs. */
static bool is_given(const struct sp_search *want)
{
    return want->stages && (want->devices || (want->tensor && want->context));
}

void sp_grid_take(const struct sp_search *want, const struct sp_grid *grid, struct sp_found *f)
{
    f->stages = grid->stages;
    f->devices = grid->tensor;
    f->context = grid->context;
    f->data = grid->data;
    f->zero = grid->context * grid->data == 1 ? 0 : want->zero == SP_SEARCH_ZERO ? 1 : want->zero;
}

/* True if a stage may have so many devices that share parameters and tokens. */
static bool is_group(const struct sp_search *want, int tensor, int context)
{
    int node = want->machine->devices_per_node, devices = tensor * context;
    bool given = want->devices > 0 || (want->tensor && want->context);
    char why[128];

    if ((want->devices && devices != want->devices) || (want->tensor && tensor != want->tensor) ||
        (want->context && context != want->context))
        return false;
    if ((want->group == SP_SEARCH_TENSOR && context > 1) ||
        (want->group == SP_SEARCH_CONTEXT && tensor > 1))
        return false;
    if (!want->simulated && tensor > 1 &&
        !sp_model_is_divisible(want->model, tensor, why, sizeof why))
        return false;
    return given || node % devices == 0 || (node % tensor == 0 && devices % node == 0);
}

bool sp_grid_is_one(const struct sp_search *want, const struct sp_grid *g)
{
    bool given = is_given(want);
    int data = want->data ? want->data : given ? 1 : g->data;

    return g->stages >= 1 && g->tensor >= 1 && g->context >= 1 && g->data >= 1 && g->data == data &&
           g->data <= SP_MAX_PIPELINES && want->sequences % g->data == 0 &&
           (!want->stages || g->stages == want->stages) && g->stages <= want->model->layers &&
           (given || (int64_t)g->stages * g->tensor * g->context * g->data == devices_of(want)) &&
           is_group(want, g->tensor, g->context);
}

struct list {
    struct sp_grid *grid;
    int n;
    size_t room;
    bool lost; /* there was no memory for one */
};

/* Adds the grids of a group, with any number of pipelines. */
static void add(const struct sp_search *want, int tensor, int context, struct list *l)
{
    int all = devices_of(want) / tensor / context;

    for (int data = 1; data <= (is_given(want) ? 1 : all); data++) {
        struct sp_grid g = {.tensor = tensor, .context = context, .data = data};

        if (want->data)
            g.data = want->data;
        if (g.data > all && !is_given(want))
            break;
        g.stages = want->stages ? want->stages : all / g.data;
        l->lost |= !sp_grow(&l->grid, (size_t)l->n + 1, &l->room, sizeof *l->grid);
        if (!l->lost && sp_grid_is_one(want, &g))
            l->grid[l->n++] = g;
        if (want->data)
            break;
    }
}

/* The most devices of a stage: a multiple of tensor times context in every grid. */
static int most_of_stage(const struct sp_search *want)
{
    if (want->devices)
        return want->devices;
    return want->tensor && want->context ? want->tensor * want->context : devices_of(want);
}

struct sp_grid *sp_grids(const struct sp_search *want, int *n)
{
    int most = most_of_stage(want);
    struct list l = {0};

    l.lost = !sp_grow(&l.grid, 1, &l.room, sizeof *l.grid);
    for (int tensor = 1; tensor <= most; tensor++)
        for (int context = 1; most % tensor == 0 && context <= most / tensor; context++)
            if (most / tensor % context == 0)
                add(want, tensor, context, &l);
    *n = l.n;
    if (!l.lost)
        return l.grid;
    free(l.grid);
    return NULL;
}
