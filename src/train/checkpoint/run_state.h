/* state.json of a checkpoint: where the run was, and what it was told. */
#ifndef SP_RUN_STATE_H
#define SP_RUN_STATE_H

#include "model/data.h"
#include <stdbool.h>
#include <stdint.h>

struct sp_run_state {
    int format; /* of the checkpoint: 2; 1: without checksums, by an older version */
    int step;   /* steps done */
    uint64_t seed;
    void *json; /* all of it */
};

struct sp_run_config {
    const char *schedule, *settings; /* name; as of sp_settings_add */
    const char *data;                /* path */
    const struct sp_data *tokens;    /* that file */
    int step;                        /* done */
    uint64_t seed;
    double loss; /* of the last step */
};

/* Writes DIR/state.json. 0 or -errno after one line. */
int sp_run_state_write(const char *dir, const struct sp_run_config *now);

/* Reads DIR/state.json. 0 or -EINVAL after one line; to be freed. */
int sp_run_state_read(const char *dir, struct sp_run_state *s);
void sp_run_state_free(struct sp_run_state *s);

/*
 * What the run that goes on was told otherwise, of what changes its numbers, as "--lr 0.01 (was 0.001),
 * other --data" in out[n]. How many differences.
 */
int sp_run_state_changes(const struct sp_run_state *s, const struct sp_run_config *now, char *out,
                         size_t n);

#endif
