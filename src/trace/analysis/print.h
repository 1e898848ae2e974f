/* What a step's time went on, in tables of text. */
#ifndef SP_ANALYSIS_PRINT_H
#define SP_ANALYSIS_PRINT_H

#include "trace/analysis/causes.h"
#include "trace/analysis/waits.h"
#include <stdio.h>

/* Rows of causes that add up to the step. */
void sp_causes_print(const struct sp_waits *w, const struct sp_causes *c, FILE *out);

/* A line for each stage: the parts of its step, those that some stage has. */
void sp_waits_print(const struct sp_waits *w, FILE *out);

/* Whether a part is worth a column: some stage has a thousandth of the step of it. */
bool sp_waits_has(const struct sp_waits *w, enum sp_part_of_step part);

#endif
