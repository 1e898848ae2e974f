/* SPPO's tables and figures that need no run of the whole system. */
#ifndef SP_REPRODUCE_SPPO_H
#define SP_REPRODUCE_SPPO_H

#include "cli/reproduce/paper.h"
#include "model/shape.h"

/* The model without a table of positions: four million rows of it would be a model of their own. */
int sp_sppo_model(const struct sp_cell *cell, struct sp_model *model);

/* Slices of equal operations, attention not halved by its mask: len[n]. */
void sp_sppo_slices(const struct sp_model *model, int seq, int n, int *len);

int sp_sppo_table_2(struct sp_cell *cell);
int sp_sppo_section_2(struct sp_cell *cell);
int sp_sppo_table_3(struct sp_cell *cell);
int sp_sppo_figure_5(struct sp_cell *cell);
int sp_sppo_figure_7(struct sp_cell *cell);
int sp_sppo_figure_8(struct sp_cell *cell);
int sp_sppo_section_3(struct sp_cell *cell);

#endif
