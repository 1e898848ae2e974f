/*
 * The sink that counts: nothing is computed and no tensor has memory, so that pools, which hand out what a graph asks for,
 * tell what a run will have made. Tasks are counted in the order of submission, as one worker would run them.
 */
#ifndef SP_SINK_COUNT_H
#define SP_SINK_COUNT_H

#include "sinks/sink.h"

/* A sink of its own for each graph. */
void sp_count_begin(struct sp_sink *s);

/* Calls `told` for every task that is submitted, its op's stash being in the meter's live bytes from it on, and until after it. */
void sp_count_watch(struct sp_sink *s, void (*told)(void *arg), void *arg);

/* Bytes of the scratch buffers of its tasks so far. */
size_t sp_count_scratch(const struct sp_sink *s);

#endif
