/*
 * Slots: the order of SlimPipe (Li et al. 2025, arXiv 2504.14519), in which all stages begin slices
 * at the same time.
 *
 * Micro-batches are cut into n slices of the same length. With v chunks a stage, p slices at a time
 * go through the chunks. A stage has T = m n v forwards, where unit u belongs to micro-batch u /
 * (nv). It has as many backwards; those of a micro-batch are in the opposite order. Stage s of p
 * runs
 *
 *   forward u   in forward slot  u + s            of T + p-1
 *   backward u  in backward slot u + p-1-s        of T + p-1
 *
 * The first W = nv + p-1 forward slots follow each other, until the last stage has had a whole
 * micro-batch. From there on backward and forward slots alternate. So all stages run the same pass
 * in a slot, each on another slice, and they can share the attention of their slices (assist.h).
 * Pure.
 */
#ifndef SP_SLOTS_H
#define SP_SLOTS_H

#include "starpipe/schedule.h"
#include <stdbool.h>

/* Most stages: the producers of an op have to fit in SP_MAX_DEPS. */
enum { SP_SLOT_STAGES = 60 };

/* Refuses sizes that have no slots: 0, or -EINVAL with the reason in why[n]. */
int sp_slots_check(const struct sp_layout *lay, char *why, size_t n);

/* How many micro-batches an op can be away from the others of its slot or of the next ones: their
 * units differ by less than the number of stages. */
int sp_slots_reach(const struct sp_layout *lay);

/* Slots are numbered in time order. The number of slots; the slot of an op; the op of a stage in a
 * slot, false: none. */
int sp_slots(const struct sp_layout *lay);
int sp_slot_of(const struct sp_layout *lay, int stage, const struct sp_op *op);
bool sp_slot_op(const struct sp_layout *lay, int stage, int slot, struct sp_op *op);

/* The next slot of the same pass (`way` 1) or the one before (-1); -1: there is none. */
int sp_slot_beside(const struct sp_layout *lay, int slot, int way);

/* Emits the program of a stage, slot by slot. */
void sp_slots_emit(const struct sp_layout *lay, int stage, struct sp_program *prog);

#endif
