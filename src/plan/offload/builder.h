/* How units.c and keys.c turn a stage's program into slots and units of offload/eviction.h. Pure. */
#ifndef SP_OFFLOAD_BUILDER_H
#define SP_OFFLOAD_BUILDER_H

#include "plan/memory.h"
#include "plan/offload/request.h"
#include "plan/slices.h"

/* Bytes that a limit leaves for activations, beside a stage's other memory; 0: there is no limit. */
static inline int64_t sp_offload_room(const struct sp_offload_request *want,
                                      const struct sp_memory *m)
{
    int64_t room = want->limit - m->states - m->workspace;

    return want->limit == 0 ? 0 : room > 0 ? room : 1;
}

/* Lays out the slots and units of a stage in *evictions, which must be empty. Keys and values of
 * the first `keep` slices stay; those of the others leave if they may. 0 or -ENOMEM. */
int sp_offload_units(const struct sp_plan *plan, const struct sp_shape *sh,
                     const struct sp_offload_request *want, int keep, int stage,
                     struct sp_eviction_plan *evictions);

/* The state that they share. */
struct sp_units_builder {
    const struct sp_plan *plan;
    const struct sp_shape *sh;
    const struct sp_offload_request *want;
    int keep; /* the first so many slices keep their keys and values in memory */
    struct sp_slice_costs flops;
    struct sp_op_speed speed;
    const struct sp_program *prog;
    int stage;
    struct sp_eviction_plan *a;
    int *use, *release, *forward; /* [activations] ops */
    struct sp_shape part;         /* of the last request; rows 0: none yet */
};

/* Slots of a layer's backward: the one that recomputes it, if any, its own, and its last one. */
struct sp_units_backward {
    int begins, own, ends;
};

int sp_units_layers(const struct sp_units_builder *b, const struct sp_op *op);
int sp_units_activations(const struct sp_units_builder *b, const struct sp_op *op);

/* The slot of layer i in an op; a forward of layers has two each, and this is the first. */
int sp_units_slot(const struct sp_units_builder *b, int op, int i);

/* The shape of an op's tokens; valid until the next call. */
const struct sp_shape *sp_units_shape(struct sp_units_builder *b, const struct sp_op *op);

/* How layer i of an op is recomputed. */
enum sp_recompute sp_units_recompute(const struct sp_units_builder *b, const struct sp_op *op,
                                     int i);

struct sp_units_backward sp_units_backward_of(const struct sp_units_builder *b,
                                              const struct sp_op *op, int i);

/* Adds bytes in slots first .. last. also[] holds differences from slot to slot; they are summed up
 * at the end. */
void sp_units_also(struct sp_units_builder *b, int first, int last, int64_t bytes);

/*
 * ---- keys.c: which keys and values of slices are evicted, when, and what streaming them through takes ------
 *
 * The keys of slice j stay in memory from its forward to that of slice j+1. Then each later slice streams them
 * through while its attention reads them, in the backward with their gradients. From the slice's own backward on
 * they stay again.
 */

/* True if a plan has slices whose keys and values may be evicted at all. */
bool sp_keys_may_leave(const struct sp_plan *plan, const struct sp_shape *sh);

/* True if a stage's buffers are counted with its evictions of keys (sp_memory_evicted): if stages
 * share slices. `also` counts nothing then. */
bool sp_keys_are_counted(const struct sp_plan *plan);

/* True if the keys and values of this forward are evicted. */
bool sp_keys_leave(const struct sp_units_builder *b, const struct sp_op *op);

/* Bytes of the gradients of keys and values that may leave, for all slices of a micro-batch in
 * every layer of a chunk: a stage holds so many if nothing is evicted. */
int64_t sp_keys_gradients_bytes(const struct sp_plan *plan, const struct sp_shape *sh, int stage);

/* Counts the gradients of keys of layer i, if this forward's keys are evicted. They are streamed
 * through for the slices after it; from its own backward on they stay. */
void sp_keys_gradients(struct sp_units_builder *b, const struct sp_op *op, int i);

/* Sets when the keys and values of layer i are in memory in a unit whose tensors are known. */
void sp_keys_of_unit(const struct sp_units_builder *b, const struct sp_op *op, int i,
                     struct sp_unit *u);

/* Counts what streaming keys through takes: memory and traffic of a stage, and the gradients of keys and values that
 * stay. */
void sp_keys_stream(struct sp_units_builder *b);

/*
 * ---- peers.c: what stages park on each other ----------------------------------------------------
 */

/* Chooses what stages park on each other; memory[stages] is that besides activations. With a limit
 * and `adaptive`, the stages that need more than it park on those that need least, as much as goes
 * with what they evict (offload/eviction.h); otherwise as sp_parking_create chooses. Stages of one
 * process have one memory and park nothing on each other. *parking becomes NULL if nothing is
 * parked. 0 or -ENOMEM. */
int sp_peers_choose(const struct sp_plan *plan, const struct sp_shape *sh,
                    const struct sp_offload_request *want, const struct sp_memory *memory,
                    struct sp_parking **parking);

/* Tells the units of a stage what of them the plan parks, and counts what others park on it. */
void sp_peers_count(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                    struct sp_eviction_plan *a);

#endif
