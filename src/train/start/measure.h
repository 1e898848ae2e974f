/* Measures how long the parts of the model take: a layer, before the graph is there. */
#ifndef SP_TRAIN_MEASURE_H
#define SP_TRAIN_MEASURE_H

#include "plan/cost/layer_costs.h"
#include "train/trainer.h"

/* Before StarPU starts: checks that measuring fits this machine. 0, or -EINVAL after one line. */
int sp_train_check_profile(const struct sp_trainer *t);
/* After it, on rank 0: measures the times of `batch` sequences of `seq` tokens. 0 or -errno. */
int sp_train_measure(struct sp_trainer *t, int batch, int seq, struct sp_layer_costs *costs);

#endif
