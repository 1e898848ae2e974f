#ifndef SP_TRAIN_GRAPH_CONFIG_H
#define SP_TRAIN_GRAPH_CONFIG_H

#include "train/trainer.h"

/* The graph of a run, but for the sink that it is submitted to, and what that can do. */
struct sp_graph_config sp_train_graph_config(const struct sp_trainer *t);

#endif
