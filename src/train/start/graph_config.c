#include "train/start/graph_config.h"
#include "train/config.h"

struct sp_graph_config sp_train_graph_config(const struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;

    return (struct sp_graph_config){
        .params = &t->params,
        .plan = &t->plan,
        .batch = a->layout.micro_batch_size,
        .seq = a->layout.seq,
        .mlp_rows = a->mlp_chunk,
        .head_rows = a->logit_rows,
        .context = t->cfg.groups.context_parallel,
        .separates = a->separator_set,
        .separator = a->separator,
        .ring = t->cfg.groups.context_method == SP_TRAIN_RING,
        .tensor = t->cfg.groups.tensor_parallel,
        .sequence = t->cfg.groups.sequence_parallel == SP_TRAIN_SEQUENCE_ON,
        .zero = t->cfg.groups.zero > 0,
        .dtype = (enum sp_dtype)a->dtype,
        .recompute = t->recompute,
        .every = t->every,
        .ready = a->scheduler == SP_TRAIN_READY,
        .window = a->window,
        .seed = t->seed,
        .evictions = t->offload.evictions,
        .tier = t->tier,
        .disk = t->disk,
    };
}
