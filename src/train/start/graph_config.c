#include "train/start/graph_config.h"
#include "train/config.h"

struct sp_graph_config sp_train_graph_config(const struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;

    return (struct sp_graph_config){
        .params = &t->params,
        .plan = &t->plan,
        .shape = &t->shape,
        .separates = a->separator_set,
        .separator = a->separator,
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
