/* Prints how a step's time was spent, in tables of text. */
#ifndef SP_ANALYSIS_PRINT_H
#define SP_ANALYSIS_PRINT_H

#include "trace/analysis/causes.h"
#include "trace/analysis/waits.h"
#include <stdio.h>

/* Prints rows of causes that add up to the step. */
void sp_causes_print(const struct sp_waits *w, const struct sp_causes *c, FILE *out);

/* Prints a line for each stage, with the parts of the step that some stage has. */
void sp_waits_print(const struct sp_waits *w, FILE *out);

/* True if a part is worth a column: it takes a thousandth of the step on some stage. */
bool sp_waits_has(const struct sp_waits *w, enum sp_part_of_step part);

#endif
