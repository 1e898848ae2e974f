/*
 * The phases of a start that lie in files of their own, in the order in which start.c makes them. All ranks make each of
 * them. Each returns 0, or -errno after one line.
 */
#ifndef SP_TRAIN_PHASES_H
#define SP_TRAIN_PHASES_H

#include "plan/cost/layer_costs.h"
#include "train/trainer.h"

/* inputs.c. The model, of the step that is resumed or of --model, with t->params. */
int sp_train_load_model(struct sp_trainer *t);
/* The tokenizer, if text is read or written, and the token that separates documents. */
int sp_train_open_tokenizer(struct sp_trainer *t);
/* The prompt. A trainer that only samples takes its sequence length from it: the prompt, and what may follow, as far as
 * the model has positions. */
int sp_train_read_prompt(struct sp_trainer *t);
int sp_train_open_data(struct sp_trainer *t);

/* plan.c: the plan, which completes cfg.layout. */
int sp_train_plan(struct sp_trainer *t);
/* partition.c: the layers of each stage, from a list or as estimated times give them, so that memory can be checked. */
int sp_train_partition_early(struct sp_trainer *t);
/* recompute.c: --recompute auto, which layers compute again. */
int sp_train_choose_recompute(struct sp_trainer *t);
/* offload.c: what leaves memory, whether it fits, and room on disk. */
int sp_train_offload_early(struct sp_trainer *t);

/* inputs.c. No more than an evaluation takes, once the size of a step is known. */
int sp_train_open_eval(struct sp_trainer *t);
/* The weights of the model or of the step to resume, checked. */
int sp_train_open_weights(struct sp_trainer *t);

/* memory.c: whether the stages fit --memory-limit, their processes and the machine. */
int sp_train_check_memory(struct sp_trainer *t);

/* files.c: rank 0 makes these phases, all but the first one only if it is no dry run. */
/* Does an output destroy an input, another output, or a file that is no log? */
int sp_train_check_files(struct sp_trainer *t);
/* Opens the files that a run saves with its model, t->companions: those of the resumed step, or of the model's directory,
 * except files that the run reads or writes, and logs. */
int sp_train_open_companions(struct sp_trainer *t);
/* Can the outputs be written? */
int sp_train_check_output(struct sp_trainer *t);
/* Makes the directories of the outputs, t->made, except the one of --save, which sp_train_claim makes. */
int sp_train_make_dirs(struct sp_trainer *t);
/* Takes the log, so that no other run writes it. */
int sp_train_claim_log(struct sp_trainer *t);

/* runtime.c: StarPU with the workers of the placement; and its end, as far as it began. */
int sp_train_start_runtime(struct sp_trainer *t);
void sp_train_stop_runtime(struct sp_trainer *t);
/* partition.c: the same by the times of a layer that rank 0 measures; says so in one line. */
int sp_train_partition_measured(struct sp_trainer *t);
/* offload.c: the tier, and what leaves at its rates. */
int sp_train_offload_measured(struct sp_trainer *t);

/* Tells if the schedule chooses layers, and what they recompute, by itself. */
bool sp_train_is_adapipe(const struct sp_trainer *t);

/* How long a layer takes, before the graph is there. */
/* Before StarPU starts: checks that measuring fits this machine. 0, or -EINVAL after one line. */
int sp_train_check_profile(const struct sp_trainer *t);
/* After it, on rank 0: measures the times of `batch` sequences of `seq` tokens. 0 or -errno. */
int sp_train_measure(struct sp_trainer *t, int batch, int seq, struct sp_layer_costs *costs);

#endif
