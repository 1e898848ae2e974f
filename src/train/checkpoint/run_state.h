/* state.json of a checkpoint: the state of the run, and its settings. */
#ifndef SP_RUN_STATE_H
#define SP_RUN_STATE_H

#include "model/data.h"
#include "model/files/dir.h"
#include <stdint.h>

struct sp_run_state {
    int format; /* of the checkpoint: 2; or 1, of an older version, without checksums */
    int step;   /* steps done */
    uint64_t seed;
    uint64_t samples; /* that the steps took */
    int seq;          /* tokens of each; 0: unknown */
    int step_samples; /* samples of the last step; 0: unknown */
    double loss;      /* of the last step */
    void *json;       /* all of it */
};

struct sp_run_config {
    const char *schedule, *settings; /* the name; lines as of sp_settings_add */
    const char *data;                /* path */
    const struct sp_data *tokens;    /* that file */
    int step;                        /* steps done */
    uint64_t samples;                /* that they took */
    int step_samples;                /* samples of one step */
    uint64_t seed;
    double loss;                     /* of the last step */
    const struct sp_dir *companions; /* companions of the step's model, NULL: none */
};

/* Writes state.json in `dir`. 0 or -errno after one line. */
int sp_run_state_write(const struct sp_dir *dir, const struct sp_run_config *now);

/* Reads state.json. 0 or -EINVAL after one line; to be freed. */
int sp_run_state_read(const struct sp_dir *dir, struct sp_run_state *s);
void sp_run_state_free(struct sp_run_state *s);

/* The value of an option of the run that saved it, by its name with dashes; NULL: it is not there. */
const char *sp_run_state_option(const struct sp_run_state *s, const char *name);

/*
 * The first lists, in out[n], the settings of the continuing run that differ and that its numbers
 * depend on (SP_ROLE_NUMBERS, SP_ROLE_PLACE), as "--lr 0.01 (was 0.001), other data"; the second
 * lists all others, as "--stages 4 (was 2)". Both return how many there are.
 */
int sp_run_state_changes(const struct sp_run_state *s, const struct sp_run_config *now, char *out,
                         size_t n);
int sp_run_state_other_changes(const struct sp_run_state *s, const struct sp_run_config *now,
                               char *out, size_t n);

#endif
