/*
 * Converts the output of starpu_fxt_tool for a traced run into the input of StarVZ: one clock for
 * all ranks, events in the order of time, messages between ranks, tasks by stage, micro-batch and
 * layer.
 */
#ifndef SP_FXT_CONVERT_H
#define SP_FXT_CONVERT_H

/* Results, for a line to the user. */
struct sp_fxt_summary {
    int ranks, tasks, messages;
    double offset_us,
        round_trip_us; /* the largest offset between clocks, and the slowest exchange */
    int turned;        /* messages that seemed to end before they started, by turned_us at most */
    double turned_us;
};

/*
 * Reads paje.trace, tasks.rec, dag.dot and data.rec in `from`, as starpu_fxt_tool left them for
 * `ranks` processes, and messages_RANK.jsonl in `dir`. Writes new versions of those four into
 * `dir`, with entities.csv and the tables of rewrite.h. 0 or -errno after one line.
 */
int sp_fxt_convert(const char *from, const char *dir, int ranks, struct sp_fxt_summary *summary);

#endif
