/*
 * Multiplexed sequence partitioning (SPPO section 6.2, table 3). Stages idle at both ends of a pipeline
 * over n slices: those after stage g while its first slices are computed, those before it while its last
 * ones are. They compute these slices with it, in sequence parallel:
 *
 *   left     slices 0 .. p-2-g of stage g, by stages g .. p-1
 *   steady   slices p-1-g .. n-1-g, by stage g alone
 *   right    slices n-g .. n-1, by stages 0 .. g
 *
 * Definition 6.1 of the paper puts p-1-g in both left and steady, and n-g in both steady and right; its
 * table 3 is what is here. A slice of q stages is cut in q parts, one each, of the same time. The slices
 * of stage g in parts, in the order of the sequence, are what ops of it number. Pure.
 */
#ifndef SP_MULTIPLEX_H
#define SP_MULTIPLEX_H

#include "policies/families/map.h"
#include <stdbool.h>
#include <stdint.h>

/* Most stages: what an op of it waits for has to fit in SP_MAX_DEPS. */
enum { SP_MULTIPLEX_STAGES = 30 };

/* Part `part` of `of` of a slice, computed by a stage. */
struct sp_slice_part {
    int slice, part, of;
    int stage;
};

/* A slice of a global stage; where it comes among those that a stage computes some of in a forward; a backward is the
 * same back again. */
struct sp_multiplex_turns {
    int *global, *slice; /* [stages][sp_part_stride] of a stage, in order */
    int *n;              /* [stages] */
    int *place;          /* [stages][stages][slices] of a stage, in these */
    int *rank;           /* [stages][slices] of a slice among all of a forward */
};

/* What there is of a plan besides. */
struct sp_multiplex_cut {
    struct sp_slice_part *part; /* [stages][sp_part_stride] what sp_part_at says, worked out once */
    struct sp_multiplex_turns turns;
    int *part_token; /* [stages+1][slices][stages+1]: where part j of `of` of a slice begins, at
                      * (of * slices + slice) * (stages+1) + j; NULL: equal parts */
    int64_t *
        held; /* [stages] bytes that a stage has of others at the highest (memory.h); NULL: not counted */
    uint64_t held_key; /* for what plan and shape */
};

static inline struct sp_multiplex_cut *sp_multiplex_cut_of(const struct sp_layout *lay)
{
    return lay->map->state;
}

enum sp_phase { SP_LEFT, SP_STEADY, SP_RIGHT };

/* Whether the layout is one of this kind: the flag "multiplex". */
int sp_is_multiplexed(const struct sp_layout *lay);

enum sp_phase sp_slice_phase(const struct sp_layout *lay, int global, int slice);
/* The stages that compute a slice of a global stage, first .. last. */
void sp_slice_stages(const struct sp_layout *lay, int global, int slice, int *first, int *last);

/* Parts of all slices of a global stage; the number of the first part of a slice; what a number is. */
int sp_parts_of(const struct sp_layout *lay, int global);
int sp_first_part(const struct sp_layout *lay, int global, int slice);
struct sp_slice_part sp_part_at(const struct sp_layout *lay, int global, int number);
/* The number of the part of a slice that a stage computes, which is one of its stages. */
int sp_part_of_stage(const struct sp_layout *lay, int global, int slice, int stage);

/* More than any stage has parts. */
static inline int sp_part_stride(const struct sp_layout *lay)
{
    return lay->slices + lay->stages * (lay->stages - 1);
}

/* Works out all of what sp_part_at says, part[stages * sp_part_stride]. */
void sp_multiplex_table(const struct sp_layout *lay, struct sp_slice_part *part);

/* Whether several stages compute a slice: they share its attention by keys (key_shares.h). */
static inline bool sp_slice_is_shared(const struct sp_layout *lay, int global, int slice)
{
    return sp_slice_phase(lay, global, slice) != SP_STEADY;
}

/* The order of all of them: one in which each comes after those that it waits for. 0 or -ENOMEM; freed by the second. */
int sp_multiplex_turns_create(const struct sp_layout *lay, struct sp_multiplex_turns *t);
void sp_multiplex_turns_destroy(struct sp_multiplex_turns *t);

/* The parts of a slice that are cut `of` of which some tokens are in part `part` of `in`: first .. last. */
void sp_parts_overlapping(int part, int in, int of, int *first, int *last);

/* The parts of global stage `to` that share tokens with part `part` of `from`: first .. last. */
void sp_multiplexed_overlap(const struct sp_layout *lay, int from, int part, int to, int *first,
                            int *last);

#endif
