/*
 * Slots: the order of SlimPipe (Li et al. 2025, arXiv 2504.14519), in which all stages begin slices at the same time.
 *
 * Micro-batches are cut into n slices of the same length, and v chunks a stage go through p slices at a time. A stage
 * has T = m n v forwards, unit u of micro-batch u / (nv), and as many backwards, those of a micro-batch in the opposite
 * order. Stage s of p runs
 *
 *   forward u   in forward slot  u + s            of T + p-1
 *   backward u  in backward slot u + p-1-s        of T + p-1
 *
 * Of forward slots the first W = nv + p-1 follow each other, until the last stage has had a whole micro-batch; from
 * there on backward and forward slots take turns. So whatever a stage does in a slot, the others do the same, each on
 * another slice: they can share what these want of attention (aid.h). Pure.
 */
#ifndef SP_SLOTS_H
#define SP_SLOTS_H

#include "starpipe/schedule.h"
#include <stdbool.h>

/* Most stages: what an op waits for has to fit in SP_MAX_DEPS. */
enum { SP_SLOT_STAGES = 60 };

/* Refuses sizes that have no slots: 0, or -EINVAL with the reason in why[n]. */
int sp_slots_check(const struct sp_layout *lay, char *why, size_t n);

/* How many micro-batches away from an op's others of its slot can be, and of those beside it: units fewer away than stages. */
int sp_slots_reach(const struct sp_layout *lay);

/* Slots are numbered in the order of time. How many; the one of an op; what a stage does in one, false: nothing. */
int sp_slots(const struct sp_layout *lay);
int sp_slot_of(const struct sp_layout *lay, int stage, const struct sp_op *op);
bool sp_slot_op(const struct sp_layout *lay, int stage, int slot, struct sp_op *op);

/* The next slot of the same pass (`way` 1) or the one before (-1); -1: there is none. */
int sp_slot_beside(const struct sp_layout *lay, int slot, int way);

/* The program of a stage: slot by slot. */
void sp_slots_emit(const struct sp_layout *lay, int stage, struct sp_program *prog);

#endif
