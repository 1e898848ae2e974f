/*
 * Training runs of a few steps inside one started StarPU, with the options of `starpipe train`. A
 * result has what a run computed, sent and held.
 */
#ifndef SP_TESTS_PARITY_RUN_H
#define SP_TESTS_PARITY_RUN_H

#include "graphs/weights/checkpoint.h"
#include "train/run/step.h"

enum { MOST_STEPS = 40, MOST_STAGES = 8, MOST_BLOCKS = 64, FIELDS = 4 };

/* StarPU as it was started; runs of one kind share it. */
struct session {
    struct sp_world world;
    bool ready;           /* under starpipe-ready */
    bool offloads;        /* activations leave memory */
    int devices;          /* GPUs of the machine; 0: runs are on its cores */
    struct sp_disk *disk; /* where activations go; NULL: they stay, or go to main memory */
    unsigned tier;        /* memory node that they go to */
};

/* Under mpirun all processes start and stop together. */
void session_start(struct session *s, bool ready, bool offloads);
void session_stop(struct session *s);

/* Options, parsed, and what follows from them before StarPU is needed. */
struct setup {
    char text[512], *words[128];
    struct sp_train_config args;
    enum sp_recompute recompute;
    int every;
    enum sp_offload_mode offloads;
    struct sp_model model;
    struct sp_params params;
    struct sp_plan plan;
    struct sp_shape shape;
};

/* Ends all processes after one line if an option is not accepted. `processes`: their number. */
void setup_create(struct setup *s, const char *options, int processes);
void setup_destroy(struct setup *s);

/* A stage's figures of the last step. */
struct stage_result {
    int64_t sent, messages, peak, live, buffers;
    int64_t planned_peak, planned_buffers;
    int64_t left, returned;   /* bytes evicted and fetched, as measured */
    int64_t evicted, fetched; /* the same, as the lowered program plans */
    int64_t lowered;          /* bytes sent by that program; -1: stages share processes */
};

/* The position of a block in each of the fields. */
struct block_place {
    enum sp_block_kind kind;
    int layer;
    size_t at;
};

/* The results of a run, complete on rank 0. */
struct result {
    int steps, stages, blocks;
    int undone; /* steps that --post-validation began twice */
    double loss[MOST_STEPS], norm[MOST_STEPS];
    int64_t buffers[MOST_STEPS][MOST_STAGES]; /* bytes after every step */
    bool alive;                               /* activations after some step */
    struct stage_result stage[MOST_STAGES];
    struct block_place block[MOST_BLOCKS];
    size_t n;             /* parameters, padding of blocks included */
    float *field[FIELDS]; /* by enum sp_field: gradients of the first step, the rest of the last */
};

/* All processes of the session call it. *r is to be freed by result_free, on every rank. */
void run_setup(struct session *session, struct setup *s, struct result *r);
void result_free(struct result *r);

/* A number that two runs share when every loss, norm (unless they are left out), gradient, weight and
 * moment has the same bits. */
uint64_t result_bits(const struct result *r, bool norms);
/* For names of files. */
uint64_t text_digest(const char *text);

/* 0, or ends all processes: the tests cannot go on. */
void must(int err, const char *what);

#endif
