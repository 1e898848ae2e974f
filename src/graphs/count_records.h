/*
 * Records what actions do to the pools of stages, one process per stage, while graphs on counting
 * sinks run them. The records are then played as often as the actions occur, without the graphs. An
 * action that runs again must do what its record says.
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
    bool differs; /* an action did something else than its record says */

    struct sp_record *record;
    struct sp_record_part *part;
    struct sp_record_change *change;
    int records, parts, changes, room[3];
    int64_t *used;              /* [stages] bytes of buffers in use */
    struct sp_record_part *now; /* being recorded; NULL: nothing is */
};

/* Begins to watch graphs, which exist already. The caller destroys them before it stops the
 * recorder. */
void sp_recorder_start(struct sp_recorder *r, struct sp_graph *graph, int stages);
void sp_recorder_stop(struct sp_recorder *r);

/* Adds a record. All that a stage does between begin and end belongs to the record; from
 * sp_recorder_know on the record is known, and later runs are only compared with it. */
int sp_recorder_add(struct sp_recorder *r);
void sp_recorder_begin(struct sp_recorder *r, int stage);
void sp_recorder_end(struct sp_recorder *r, int record);
void sp_recorder_know(struct sp_recorder *r, int record);

/* Plays the records step[n] of a step until no new buffer is made, and fills count[stages]. False
 * if tensors stay alive from step to step. */
bool sp_recorder_play(const struct sp_recorder *r, const int *step, int n, struct sp_count *count);

/* Grows an array so that it has room for one more than n elements; without memory the run ends. */
void *sp_count_grow(void *array, int n, int *room, size_t each);

#endif
