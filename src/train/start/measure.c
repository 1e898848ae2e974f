#include "train/start/phases.h"
#include "offload/host_memory.h"
#include "plan/profile.h"
#include "sp_error.h"
#include "sinks/starpu/sink.h"

int sp_train_check_profile(const struct sp_trainer *t)
{
    const double GiB = 1024.0 * 1024 * 1024;
    struct sp_memory_limit has = sp_host_memory_has(1);
    int64_t needs = sp_profile_bytes(&t->shape);

    if (t->cfg.dry_run || needs <= has.bytes)
        return 0;
    return sp_error(EINVAL,
                    "measuring two layers takes %.2f GiB, %s has room for %.2f; give a list of "
                    "layers instead",
                    (double)needs / GiB, has.origin, (double)has.bytes / GiB);
}

int sp_train_measure(struct sp_trainer *t, int batch, int seq, struct sp_layer_costs *costs)
{
    const struct sp_train_config *a = &t->cfg;
    struct sp_shape shape;
    struct sp_graph_config like = {
        .sink = sp_starpu_sink(),
        .params = &t->params,
        .shape = &shape,
        .ready = a->scheduler == SP_TRAIN_READY,
        .seed = t->seed,
    };

    sp_shape_init(&shape, &t->model, batch, seq, 1);
    sp_shape_cut(&shape, a->mlp_chunk, a->logit_rows);
    shape.dtype = (enum sp_dtype)a->dtype;
    return sp_profile_layers(&like, &t->place, costs);
}
