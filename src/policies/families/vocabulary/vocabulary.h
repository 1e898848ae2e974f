/*
 * Families whose embedding and head are cut over the vocabulary, a share on every stage (Yeung, Qi, Lin and
 * Wan 2024, "Balancing Pipeline Parallelism with Vocabulary Parallelism", arXiv 2411.05288, its algorithm 1). Of every
 * micro-batch or slice, on each stage s of p, with rows V_s of the head's table E:
 *
 *   L(s)    forward of the head:    Z = n E_s^T, statistics of its rows; n = norm(x) comes from the last global stage
 *   bL(s)   backward, from the statistics of all stages: dE_s += dZ^T n, and dZ E_s, its part of dn, which goes back
 *
 * The tables lie in shares on all stages with their optimizer's state. The stage that embeds has the whole table of
 * the embedding while a step runs: gathered before it, its gradient scattered after it. A lookup takes no time, so
 * that what is balanced by this is memory.
 */
#ifndef SP_FAMILY_VOCABULARY_H
#define SP_FAMILY_VOCABULARY_H

#include "policies/lowering/lowering.h"

/* Most stages: what an op waits for has to fit in SP_MAX_DEPS. */
enum { SP_VOCABULARY_STAGES = SP_MAX_DEPS - 3 };

/* The family to whose ops those of the head are added: layerwise, or attention-parallel. */
const struct sp_family *sp_vocabulary_base(const struct sp_layout *lay);

/* The op of a micro-batch (slice) that leaves the head's input (F) or wants its gradient (B): of the last global stage,
 * or of the last block; and whether an op of a stage is one of these. */
struct sp_dep sp_vocabulary_last(const struct sp_layout *lay, enum sp_pass pass,
                                 const struct sp_op *unit);
bool sp_vocabulary_is_last(const struct sp_layout *lay, int stage, const struct sp_op *op);

/* The stage of these ops, and the one that embeds. */
int sp_vocabulary_root(const struct sp_layout *lay);
int sp_vocabulary_first(const struct sp_layout *lay);

/* The family that takes the place of another one with the layout's options. */
const struct sp_family *sp_vocabulary_variant(const struct sp_layout *lay,
                                              const struct sp_family *family);

/*
 * Puts the ops of the head into programs of chunks, once the verifier has agreed to these. A backward waits two barriers
 * longer for its forward than without: forwards are brought forward by 0, 1 or 2 micro-batches (slices), whatever is
 * fastest at nominal costs, and each stage then holds as many more; the ops of the head come as soon as they can. 0, or
 * -EINVAL with the reason in why[n], -ENOMEM.
 *
 * Where parts of layers are ops they stay where they are: backwards come long after their forwards anyway.
 */
int sp_vocabulary_insert_ops(struct sp_plan *plan, char *why, size_t n);

int sp_vocabulary_lower_begin(struct sp_lowering *l);
void sp_vocabulary_lower(struct sp_lowering *l, int i);
void sp_vocabulary_lower_end(struct sp_lowering *l);

#endif
