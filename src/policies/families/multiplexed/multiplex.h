/*
 * Multiplexed sequence partitioning (SPPO section 6.2, table 3). Stages idle at both ends of a
 * pipeline over n slices: those after stage g while it computes its first slices, those before it
 * during its last ones. They compute these slices with it, in sequence parallel:
 *
 *   left     slices 0 .. p-2-g of stage g, by stages g .. p-1
 *   steady   slices p-1-g .. n-1-g, by stage g alone
 *   right    slices n-g .. n-1, by stages 0 .. g
 *
 * Definition 6.1 of the paper puts p-1-g in both left and steady, and n-g in both steady and right;
 * this is its table 3. A slice of q stages is cut into q parts that take equal time, one for each
 * stage. The `slice` of an op is the number of a part among all parts of stage g, in the order of
 * the sequence. Pure.
 */
#ifndef SP_MULTIPLEX_H
#define SP_MULTIPLEX_H

#include "policies/families/map.h"
#include <stdbool.h>
#include <stdint.h>

struct sp_plan;

/* Most stages: the producers of an op have to fit in SP_MAX_DEPS. */
enum { SP_MULTIPLEX_STAGES = 30 };

/* Part `part` of `of` of a slice, computed by a stage. */
struct sp_slice_part {
    int slice, part, of;
    int stage;
};

/* The order in which stages come to slices in a forward: a stage's own list has each slice of which
 * it computes some part. A backward runs in the opposite order. */
struct sp_multiplex_turns {
    int *global, *slice; /* [stages][sp_part_stride] the slices of a stage, in order */
    int *n;              /* [stages] how many */
    int *place;          /* [stages][stages][slices] place of a slice in a stage's list */
    int *rank;           /* [stages][slices] place of a slice among all of a forward */
};

/* Other tables of a plan. */
struct sp_multiplex_cut {
    struct sp_slice_part *part; /* [stages][sp_part_stride] the results of sp_part_at, tabulated */
    struct sp_multiplex_turns turns;
    int *part_token; /* [stages+1][slices][stages+1]: first token of part j of `of` of a slice, at
                      * (of * slices + slice) * (stages+1) + j; NULL: equal parts */
    int64_t *held;   /* [stages] most bytes of other stages that a stage holds; NULL: not counted */
    uint64_t held_key; /* the plan and shape to which `held` belongs */
};

static inline struct sp_multiplex_cut *sp_multiplex_cut_of(const struct sp_layout *lay)
{
    return lay->map->state;
}

enum sp_phase { SP_LEFT, SP_STEADY, SP_RIGHT };

/* True if the layout has the flag "multiplex". */
int sp_is_multiplexed(const struct sp_layout *lay);

enum sp_phase sp_slice_phase(const struct sp_layout *lay, int global, int slice);
/* The stages that compute a slice of a global stage, first .. last. */
void sp_slice_stages(const struct sp_layout *lay, int global, int slice, int *first, int *last);

/* Parts of all slices of a global stage; the number of a slice's first part; the part that has a
 * number. */
int sp_parts_of(const struct sp_layout *lay, int global);
int sp_first_part(const struct sp_layout *lay, int global, int slice);
struct sp_slice_part sp_part_at(const struct sp_layout *lay, int global, int number);
/* The number of the part of a slice that a stage computes; `stage` must be one of the slice's
 * stages. */
int sp_part_of_stage(const struct sp_layout *lay, int global, int slice, int stage);

/* No stage has more parts. */
static inline int sp_part_stride(const struct sp_layout *lay)
{
    return lay->slices + lay->stages * (lay->stages - 1);
}

/* Tabulates the results of sp_part_at in part[stages * sp_part_stride]. */
void sp_multiplex_table(const struct sp_layout *lay, struct sp_slice_part *part);

/* True if several stages compute a slice: they share its attention by keys (key_shares.h). */
static inline bool sp_slice_is_shared(const struct sp_layout *lay, int global, int slice)
{
    return sp_slice_phase(lay, global, slice) != SP_STEADY;
}

/* An order of all slices in which each comes after its producers. 0; -ENOMEM; -EINVAL: there is
 * none. The second frees it. */
int sp_multiplex_turns_create(const struct sp_layout *lay, struct sp_multiplex_turns *t);
void sp_multiplex_turns_destroy(struct sp_multiplex_turns *t);

/* struct sp_shared_slices: cut, cut_like. 0, or -EINVAL, -ENOMEM after one line. */
int sp_multiplex_cut_parts(struct sp_plan *plan, int unit, double token, double pair);
int sp_multiplex_cut_like(struct sp_plan *plan, const struct sp_plan *from);

/* A slice is cut once into `in` and once into `of` parts: first .. last of the latter overlap
 * `part` of the former. */
void sp_parts_overlapping(int part, int in, int of, int *first, int *last);

/* The parts first .. last of global stage `to` that share tokens with part `part` of `from`. */
void sp_multiplexed_overlap(const struct sp_layout *lay, int from, int part, int to, int *first,
                            int *last);

#endif
