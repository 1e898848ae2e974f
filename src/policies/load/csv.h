/*
 * The compute-only CSV of torch.distributed.pipelining: a row per rank, a cell per op in issue
 * order, <global stage><F|B|I|W><micro-batch>. B is a full backward. I is a backward of the input
 * only, which a W completes. "(0F4;3B1)OVERLAP_F_B" is an overlapped pair. Empty cells are idle and
 * mean nothing. The format cannot express slices, recompute ops or a second copy of the stages.
 */
#ifndef SP_CSV_H
#define SP_CSV_H

#include "policies/plan.h"
#include <stdio.h>

/* The definition behind "csv:FILE"; its programs come from the file. */
extern const struct sp_schedule_def sp_schedule_csv;

/*
 * Reads layout, placement and programs of *plan, and nothing else of it. Sizes that plan->layout
 * gives must be those of the file; 0: any. Local chunk c of a stage is the c-th of its global
 * stages, from the first layer on. 0; or -EINVAL, -EIO, -ENOMEM after one line on stderr that names
 * line and cell. The programs are complete but not verified.
 */
int sp_csv_read(const char *path, struct sp_plan *plan);
/* The same from an open file; `name` is for the errors. */
int sp_csv_parse(FILE *in, const char *name, struct sp_plan *plan);

/* Writes a plan. 0; or -EINVAL with the reason in why[n], before anything is written, if the format
 * cannot express the plan. */
int sp_csv_write(const struct sp_plan *plan, FILE *out, char *why, size_t n);

#endif
