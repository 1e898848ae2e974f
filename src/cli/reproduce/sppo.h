/*
 * SPPO: its systems as runs, and its tables and figures. In sppo_speedups.c is SPPO over
 * Megatron-LM, in sppo_limits.c what fits, in sppo_claims.c what the text says.
 */
#ifndef SP_REPRODUCE_SPPO_H
#define SP_REPRODUCE_SPPO_H

#include "cli/reproduce/paper.h"
#include "cli/reproduce/run.h"

/* The model without a table of positions: four million rows of it would be a model of their own. */
int sp_sppo_model(const struct sp_cell *cell, struct sp_model *model);

/* The machine of a cell; NULL after one line. */
const struct sp_machine *sp_sppo_machine(const struct sp_cell *cell);

/* One sequence of so many tokens of that model, in two bytes. 0; or one line on stderr and
 * -errno. */
int sp_sppo_shape(const struct sp_cell *cell, int seq, struct sp_shape *sh);

/* A layer's forward of the sequence, in slices of so many tokens, on a stage of so many devices, in
 * seconds. */
double sp_sppo_layer_s(const struct sp_machine *machine, int devices, const struct sp_shape *sh,
                       int tokens);

/* Slices of equal operations, attention not halved by its mask: len[n]. */
void sp_sppo_slices(const struct sp_model *model, int seq, int n, int *len);

/* SPPO, and Megatron-LM, as the cell has them. 0; or one line on stderr and -errno. */
int sp_sppo_run(const struct sp_cell *cell, const char *schedule, enum sp_offload_mode mode,
                struct sp_run *run);
int sp_sppo_megatron(const struct sp_cell *cell, struct sp_run *run);

/* Cuts the run's sequence into its slices and plays it. */
int sp_sppo_play(struct sp_run *run, struct sp_run_result *result);

int sp_sppo_speedup(struct sp_cell *cell); /* figure 10 in the text, and figure 11 */
int sp_sppo_figure_10(struct sp_cell *cell);
int sp_sppo_figure_10_longest(struct sp_cell *cell);
int sp_sppo_figure_12(struct sp_cell *cell);
int sp_sppo_recomputation(struct sp_cell *cell);
int sp_sppo_section_5(struct sp_cell *cell);

/* Tokens a second of a cell's run over those of Megatron-LM. */
int sp_sppo_ratio(const struct sp_cell *cell, double *ratio);

/* The longest sequence of SPPO on so many GPUs, in tokens. */
int sp_sppo_longest(const struct sp_cell *cell, int devices, int *tokens);

extern const struct sp_experiment sp_sppo_claims[];

#endif
