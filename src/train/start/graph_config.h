#ifndef SP_TRAIN_GRAPH_CONFIG_H
#define SP_TRAIN_GRAPH_CONFIG_H

#include "train/trainer.h"

/* The configuration of a run's graph, without the sink that it is submitted to and that sink's
 * abilities. */
struct sp_graph_config sp_train_graph_config(const struct sp_trainer *t);

#endif
