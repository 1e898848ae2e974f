/*
 * Families whose embedding and head are cut over the vocabulary, a share on every stage (Yeung, Qi,
 * Lin and Wan 2024, "Balancing Pipeline Parallelism with Vocabulary Parallelism", arXiv 2411.05288,
 * its algorithm 1). For every micro-batch or slice, each stage s of p, with rows V_s of the head's
 * table E, computes
 *
 *   L(s)    forward of the head: Z = n E_s^T and the statistics of its rows; the last global stage
 *           sends n = norm(x)
 *   bL(s)   backward, from the statistics of all stages: dE_s += dZ^T n, and dZ E_s, its part of
 *           dn, which goes back
 *
 * All stages hold shares of the tables, with their optimizer state. While a step runs, the stage
 * that embeds has the gathered table of the embedding: it is gathered before the step, and its
 * gradient is scattered after it. A lookup takes no time, so this balances memory.
 */
#ifndef SP_FAMILY_VOCABULARY_H
#define SP_FAMILY_VOCABULARY_H

#include "policies/lowering/lowering.h"

/* Most stages: the producers of an op have to fit in SP_MAX_DEPS. */
enum { SP_VOCABULARY_STAGES = SP_MAX_DEPS - 3 };

/* The family to whose ops the head's are added: layerwise, or attention-parallel. */
const struct sp_family *sp_vocabulary_base(const struct sp_layout *lay);

/* The op of a micro-batch (slice) that makes the head's input (F) or needs its gradient (B): the op
 * of the last global stage, or of the last block. And true if an op of a stage is one of these. */
struct sp_dep sp_vocabulary_last(const struct sp_layout *lay, enum sp_pass pass,
                                 const struct sp_op *unit);
bool sp_vocabulary_is_last(const struct sp_layout *lay, int stage, const struct sp_op *op);

/* The stage of these ops, and the stage that embeds. */
int sp_vocabulary_root(const struct sp_layout *lay);
int sp_vocabulary_first(const struct sp_layout *lay);

/* The family that replaces `family` under the layout's options. */
const struct sp_family *sp_vocabulary_variant(const struct sp_layout *lay,
                                              const struct sp_family *family);

/*
 * Inserts the head's ops into programs of chunks, after the verifier has accepted these. A backward
 * waits two barriers longer for its forward than without the head. So forwards move ahead by 0, 1
 * or 2 micro-batches (slices), whichever is fastest at nominal costs, and each stage holds that
 * many more activations. The head's ops come as soon as they can. 0; -ENOMEM; -EINVAL with the
 * reason in why[n].
 *
 * If ops are parts of layers, forwards do not move: backwards come long after their forwards
 * anyway.
 */
int sp_vocabulary_insert_ops(struct sp_plan *plan, char *why, size_t n);

/* The state of an insertion of the head's ops for given costs (insertion.c). */
struct sp_insertion;

/* For a plan of chunks that were indexed (sp_plan_index); the plan must outlive it. NULL: no
 * memory. */
struct sp_insertion *sp_insertion_create(const struct sp_plan *plan);
void sp_insertion_destroy(struct sp_insertion *w);

/*
 * Writes to out[stages] the programs with forwards moved ahead by that many micro-batches (slices),
 * each to an earlier forward's place. The head's ops come as soon as a stage can run them in a list
 * simulation at these costs, messages included. The ops of `out` are replaced. False: the stages
 * wait for each other.
 */
bool sp_insertion(struct sp_insertion *w, const struct sp_costs *costs, int ahead,
                  struct sp_program *out);

int sp_vocabulary_lower_begin(struct sp_lowering *l);
void sp_vocabulary_lower(struct sp_lowering *l, int i);
void sp_vocabulary_lower_end(struct sp_lowering *l);

#endif
