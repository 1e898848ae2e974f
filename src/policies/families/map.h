/*
 * Placements: the stage of each global stage. A layerwise model is cut into consecutive global
 * stages; a placement makes each of them one chunk of one stage. A bidirectional placement has two
 * pipes, each of which holds the whole model; a micro-batch goes through one of them.
 */
#ifndef SP_MAP_H
#define SP_MAP_H

#include "starpipe/schedule.h"
#include <stdbool.h>

#define SP_MAX_PIPES 2

struct sp_family;

struct sp_chunk_owner {
    int stage, chunk;
};

struct sp_map {
    int pipes, globals;
    int *global;                 /* [stages][chunks] global stage */
    struct sp_chunk_owner *home; /* [pipes][globals] */
    unsigned char *pipe;         /* [micro_batches]; NULL: all 0 */
    int batch; /* micro-batches of a stage between its updates; 0: it updates once, at the end of
                * the step */
    int late;  /* updates by which the weights of a batch lag; 0: each micro-batch takes the newest
               * weights */
    bool rounds_gradients; /* those that travel with weights have the type of the run, else f32 */
    const struct sp_family *base; /* the family to whose ops others are added; NULL: none are */
    void *state;                  /* other tables of the layout that the family keeps */
    void (*destroy_state)(void *state); /* NULL: free */
};

/* Tabulates a placement of `pipes` pipes; global NULL: loop; pipe NULL: the first half of the
 * micro-batches takes pipe 0. 0; -ENOMEM; -EINVAL with the reason in why[n] if a global stage is
 * missing, or placed twice. */
int sp_map_create(const struct sp_layout *lay, int pipes,
                  int (*global)(const struct sp_layout *lay, int stage, int chunk),
                  int (*pipe)(const struct sp_layout *lay, int mb), struct sp_map **map, char *why,
                  size_t n);
/* The placement in which every stage has every chunk, one for each global stage. 0 or -ENOMEM. */
int sp_map_create_all(const struct sp_layout *lay, struct sp_map **map);
void sp_map_destroy(struct sp_map *map);

/* Global stages of a pipe. */
int sp_globals(const struct sp_layout *lay);
int sp_pipes(const struct sp_layout *lay);
int sp_global_stage(const struct sp_layout *lay, int stage, int chunk);
/* The pipe of a micro-batch, and of a chunk. */
int sp_pipe_of_mb(const struct sp_layout *lay, int mb);
int sp_pipe_of_chunk(const struct sp_layout *lay, int chunk);
/* Updates of a stage in a step; and true if the stage updates after an op, the last backward of a
 * batch. */
int sp_updates(const struct sp_layout *lay);
bool sp_op_updates(const struct sp_layout *lay, const struct sp_op *op);
/* Stage and chunk of global stage g of a pipe. */
struct sp_chunk_owner sp_chunk_owner(const struct sp_layout *lay, int pipe, int g);

#endif
