#include "plan/search/found.h"
#include "plan/cost/part_times.h"
#include "policies/registry.h"
#include <stddef.h>
#include <stdio.h>

int64_t sp_search_limit_of(const struct sp_search *want, const struct sp_machine *machine)
{
    return want->memory ? want->memory
                        : (int64_t)((1 - want->reserve) * (double)machine->memory_bytes);
}

int64_t sp_search_limit(const struct sp_search *want)
{
    return sp_search_limit_of(want, want->machine);
}

/* The shape if so many devices divide the heads. */
static void shape_of(const struct sp_search *want, const struct sp_found *f, bool apart,
                     int ulysses, struct sp_shape *shape)
{
    sp_shape_init(shape, want->model, f->batch, want->seq, f->micro_batches);
    sp_shape_cut(shape, 0, sp_machine_head_rows(want->machine, want->model));
    shape->dtype = f->dtype;
    sp_shape_tensor(shape, apart ? 1 : f->devices, true);
    sp_shape_context(shape, f->context, ulysses);
    sp_shape_join(shape, f->slices);
    if (sp_schedule_flag(f->schedule, "multiplex"))
        sp_shape_stripe(shape);
    sp_shape_share(shape, f->context * f->data, f->zero);
}

static int ulysses_of(const struct sp_search *want, const struct sp_found *f, bool apart)
{
    int node = want->machine->devices_per_node, best;
    struct sp_part_times t;
    struct sp_shape shape;
    double least;

    shape_of(want, f, apart, 0, &shape);
    best = shape.ulysses;
    if (f->context * f->devices <= node || f->slices > 1)
        return best;
    sp_part_times(want->machine, apart ? f->devices : 1, &shape, &t);
    least = sp_part_times_sum(&t);
    for (int u = shape.ulysses - 1; u > 0; u--) {
        if (shape.context % u || !sp_shape_divides_heads(&shape.held, u) || u * f->devices > node)
            continue;
        shape_of(want, f, apart, u, &shape);
        sp_part_times(want->machine, apart ? f->devices : 1, &shape, &t);
        if (want->seq % sp_shape_unit(&shape) || sp_part_times_sum(&t) >= least)
            continue;
        least = sp_part_times_sum(&t);
        best = u;
    }
    return best;
}

int sp_search_ulysses(const struct sp_search *want, const struct sp_found *f)
{
    return ulysses_of(want, f, false);
}

const char *sp_method_text(int context, int ulysses, char text[SP_METHOD_TEXT])
{
    if (ulysses == context)
        return "ulysses";
    if (ulysses == 1)
        return "ring";
    snprintf(text, SP_METHOD_TEXT, "ulysses=%d,ring", ulysses);
    return text;
}

void sp_found_shape(const struct sp_search *want, const struct sp_found *f, bool apart,
                    struct sp_shape *shape)
{
    shape_of(want, f, apart, f->context > 1 ? ulysses_of(want, f, apart) : 1, shape);
}

int sp_found_processes(const struct sp_found *f)
{
    return f->stages * f->devices * f->context * f->data;
}

const struct sp_found *sp_search_recommended(const struct sp_found *best, int n)
{
    for (int i = 0; i < n; i++)
        if (best[i].fits && best[i].trains)
            return &best[i];
    return NULL;
}
