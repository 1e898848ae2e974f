/*
 * From what starpu_fxt_tool makes of a traced run to what StarVZ reads: one clock for all ranks, events in the
 * order of time, messages between ranks, tasks by stage, micro-batch and layer.
 */
#ifndef SP_FXT_CONVERT_H
#define SP_FXT_CONVERT_H

/* What was found, for a line to the user. */
struct sp_fxt_summary {
    int ranks, tasks, messages;
    double offset_us,
        round_trip_us; /* the most that clocks were apart, and the worst of the exchanges */
    int turned;        /* messages that would end before they start, by turned_us at most */
    double turned_us;
};

/*
 * Reads paje.trace, tasks.rec, dag.dot and data.rec in `from`, as starpu_fxt_tool left them of `ranks`
 * processes, and messages_RANK.jsonl in `dir`. Writes into `dir` those four anew, with entities.csv and the
 * tables of tables.h. 0 or -errno after one line.
 */
int sp_fxt_convert(const char *from, const char *dir, int ranks, struct sp_fxt_summary *summary);

#endif
