/*
 * Orders in a V from a stable pattern (Qi et al. 2024, "Pipeline Parallelism with Controllable
 * Memory", section 3): every micro-batch takes the same slots of its stages, six slots after the
 * one before it, so that a stage is busy all the time and holds as many activations all the time.
 * The pattern is cut to m micro-batches, then squeezed without raising the peak memory.
 */
#ifndef SP_VPATTERN_H
#define SP_VPATTERN_H

#include "starpipe/schedule.h"

/* The steps of a micro-batch on a stage, in order: F of chunk 0, F of chunk 1, B of chunk 1, B of
 * chunk 0. */
enum { SP_SLOT_F0, SP_SLOT_F1, SP_SLOT_B1, SP_SLOT_B0, SP_SLOTS };

/* Slots from a micro-batch to the next. */
#define SP_VPATTERN_PERIOD 6

struct sp_vpattern {
    int split; /* W is apart from B, in the slots left free; otherwise B takes two slots */
    /* Writes the slots of micro-batch 0 on a stage; they must differ modulo 6. */
    void (*slots)(int stages, int stage, int slot[SP_SLOTS]);
};

/* sp_schedule_def.check of all orders in a V: two chunks a stage, whole sequences. */
int sp_vpattern_check(const struct sp_layout *lay, char *why, size_t n);

/* Like sp_schedule_def.emit_all. Refuses a layout whose memory is less than the pattern needs. */
int sp_vpattern_emit(const struct sp_vpattern *pattern, const struct sp_layout *lay,
                     struct sp_program *programs, char *why, size_t n);

/* Appends one of the steps above. */
void sp_vpattern_add(struct sp_program *prog, int step, int mb);

/* Writes the pattern, with whole backwards, to the empty programs[stages], and moves its ops to
 * earlier slots. No stage holds more than `limit` activations of a chunk; `limit` must be at least
 * what the pattern holds. 0 or -ENOMEM. */
int sp_vpattern_pack(const struct sp_vpattern *pattern, const struct sp_layout *lay, int limit,
                     struct sp_program *programs);

/* sp_schedule_def.makespan, with W apart: no order in a V can be below, as the last stage begins p-1
 * forwards of a chunk late, and a micro-batch alone takes its time. */
double sp_vpattern_bound(const struct sp_layout *lay, double f, double b, double w);
/* The same with whole backwards: the last stage also ends p-1 backwards of a chunk early. */
double sp_vpattern_bound_whole(const struct sp_layout *lay, double f, double b, double w);

#endif
