#include "plan/search/found.h"
#include <stddef.h>

int64_t sp_search_limit_of(const struct sp_search *want, const struct sp_machine *machine)
{
    return want->memory ? want->memory
                        : (int64_t)((1 - want->reserve) * (double)machine->memory_bytes);
}

int64_t sp_search_limit(const struct sp_search *want)
{
    return sp_search_limit_of(want, want->machine);
}

bool sp_search_rings(const struct sp_search *want, const struct sp_found *f)
{
    int keys = want->model->kv_heads;

    return want->model->heads % f->context || (keys % f->context && f->context % keys);
}

void sp_found_shape(const struct sp_search *want, const struct sp_found *f, bool apart,
                    struct sp_shape *shape)
{
    sp_shape_init(shape, want->model, f->batch, want->seq, f->micro_batches);
    sp_shape_cut(shape, 0, sp_machine_head_rows(want->machine, want->model));
    shape->dtype = f->dtype;
    sp_shape_tensor(shape, apart ? 1 : f->devices, true);
    sp_shape_context(shape, f->context, sp_search_rings(want, f));
    sp_shape_share(shape, f->context * f->data, f->zero);
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
