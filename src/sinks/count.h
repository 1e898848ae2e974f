/*
 * The sink that counts. It computes nothing and its tensors have no memory. The pools above it hand
 * out tensors as in a run, so they tell how many a run will make. Tasks are counted in the order of
 * submission, as one worker would run them.
 */
#ifndef SP_SINK_COUNT_H
#define SP_SINK_COUNT_H

#include "sinks/sink.h"

/* Initialises a sink. Each graph needs its own. */
void sp_count_begin(struct sp_sink *s);

/* Calls `told` for every task that is submitted. The meter's live bytes then include what the task
 * acquires, and still what it releases. */
void sp_count_watch(struct sp_sink *s, void (*told)(void *arg), void *arg);

/* Bytes of the scratch buffers that tasks have used so far. */
size_t sp_count_scratch(const struct sp_sink *s);

#endif
