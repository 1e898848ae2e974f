/* state.json of a checkpoint: where the run was, and what it was told. */
#ifndef SP_RUN_STATE_H
#define SP_RUN_STATE_H

#include "model/data.h"
#include "model/files/dir.h"
#include <stdbool.h>
#include <stdint.h>

struct sp_run_state {
    int format; /* of the checkpoint: 2; 1: without checksums, by an older version */
    int step;   /* steps done */
    uint64_t seed;
    uint64_t samples; /* taken by them */
    int seq;          /* tokens of each; 0: unknown */
    int step_samples; /* of the last step; 0: unknown */
    double loss;      /* likewise */
    void *json;       /* all of it */
};

struct sp_run_config {
    const char *schedule, *settings; /* name; as of sp_settings_add */
    const char *data;                /* path */
    const struct sp_data *tokens;    /* that file */
    int step;                        /* done */
    uint64_t samples;                /* taken by them */
    int step_samples;                /* of one */
    uint64_t seed;
    double loss;                     /* of the last step */
    const struct sp_dir *companions; /* that the step has, NULL: none */
};

/* Writes state.json in `dir`. 0 or -errno after one line. */
int sp_run_state_write(const struct sp_dir *dir, const struct sp_run_config *now);

/* Reads it. 0 or -EINVAL after one line; to be freed. */
int sp_run_state_read(const struct sp_dir *dir, struct sp_run_state *s);
void sp_run_state_free(struct sp_run_state *s);

/*
 * What the run that goes on was told otherwise, in out[n]: as "--lr 0.01 (was 0.001), other data" if it is of
 * what the numbers depend on (SP_ROLE_NUMBERS, SP_ROLE_PLACE), and of everything else as "--stages 4 (was 2)".
 * How many differences.
 */
int sp_run_state_changes(const struct sp_run_state *s, const struct sp_run_config *now, char *out,
                         size_t n);
int sp_run_state_other_changes(const struct sp_run_state *s, const struct sp_run_config *now,
                               char *out, size_t n);

#endif
