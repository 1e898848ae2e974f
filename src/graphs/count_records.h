/*
 * What actions do to the pools of stages, a process each: recorded when graphs on sinks that count do them, and played as often
 * as they come, without the graphs. An action that is done again must do what was recorded of it.
 */
#ifndef SP_COUNT_RECORDS_H
#define SP_COUNT_RECORDS_H

#include "graphs/count.h"

struct sp_record;
struct sp_record_part;
struct sp_record_change;

struct sp_recorder {
    struct sp_graph *graph; /* [stages] */
    int stages;
    bool differs; /* something did not do what was recorded of it */

    struct sp_record *record;
    struct sp_record_part *part;
    struct sp_record_change *change;
    int records, parts, changes, room[3];
    int64_t *used;              /* [stages] bytes of buffers in use */
    struct sp_record_part *now; /* what is recorded; NULL: nothing is */
};

/* From here on it is told what the graphs, which were created, do. They are destroyed before it. */
void sp_recorder_start(struct sp_recorder *r, struct sp_graph *graph, int stages);
void sp_recorder_stop(struct sp_recorder *r);

/* A new record; and what a stage does between the two is of it. The record is known from sp_recorder_know on. */
int sp_recorder_add(struct sp_recorder *r);
void sp_recorder_begin(struct sp_recorder *r, int stage);
void sp_recorder_end(struct sp_recorder *r, int record);
void sp_recorder_know(struct sp_recorder *r, int record);

/* Plays the records step[n] of a step until nothing is made any more, into count[stages]. False where tensors stay from step to
 * step. */
bool sp_recorder_play(const struct sp_recorder *r, const int *step, int n, struct sp_count *count);

/* An array with room for one more than n; without memory the run ends. */
void *sp_count_grow(void *array, int n, int *room, size_t each);

#endif
