/*
 * Programs with multiplexed slices as actions. Every process goes through all ops in the same order; what an
 * op computed is sent and received at that op's place, to each process that needs it once, for the first of
 * its stages that does.
 *
 *   begin             the weights of a stage, to the processes of those that compute for it
 *   F(i,g,k):  RUN    keys and values to the processes of later parts; rows to the parts of stage g+1
 *   B(i,g,k):         gradients of its keys and values from the processes of later parts
 *              RUN    rows of the gradient to the parts of stage g-1
 *   end               sums of weight gradients, to the stage that owns the weights
 */
#include "policies/families/families.h"
#include "policies/families/multiplexed/multiplex.h"
#include "policies/families/ownership.h"
#include "policies/families/replicas.h"

static const struct sp_layout *layout(const struct sp_lowering *l)
{
    return &l->plan->layout;
}

/* The stage of a process that computes a part, of those after part `part` of a global stage the last; -1:
 * none does. */
static int later_stage(const struct sp_lowering *l, int global, int part, int process)
{
    int last = part, stage = -1;

    for (int s = 0; s < layout(l)->stages; s++)
        if (sp_lowering_process(l, s) == process && sp_last_part(layout(l), global, s) > last) {
            last = sp_last_part(layout(l), global, s);
            stage = s;
        }
    return stage;
}

/* ---- keys and values ------------------------------------------------------------------------ */

/* The place in its program of the op of a stage that computes the next of its parts after that of `op`: it
 * reads those keys and values first, and adds to their gradients last. */
static int index_of_later(const struct sp_lowering *l, const struct sp_op *op, int stage)
{
    struct sp_op later = *op;

    for (int k = sp_part_at(layout(l), op->chunk, op->slice).slice; k < layout(l)->slices; k++) {
        int first, last, part;

        sp_slice_stages(layout(l), op->chunk, k, &first, &last);
        part = sp_first_part(layout(l), op->chunk, k) + stage - first;
        if (stage < first || stage > last || part <= op->slice)
            continue;
        later.slice = (unsigned short)part;
        return l->order[sp_lowering_position(l, stage, &later)].index;
    }
    return -1;
}

static struct sp_tensor_id of_op(enum sp_tensor_kind kind, const struct sp_op *op)
{
    return (struct sp_tensor_id){
        .kind = (unsigned char)kind, .slice = op->slice, .mb = op->mb, .at = op->chunk};
}

static void share_keys(struct sp_lowering *l, int stage, const struct sp_op *op, int index)
{
    for (int process = 0; process < l->processes; process++) {
        int reader = later_stage(l, op->chunk, op->slice, process);

        if (reader < 0 || process == sp_lowering_process(l, stage))
            continue;
        sp_lower_send(l, stage, reader, of_op(SP_TENSOR_KV, op), index);
        sp_lower_recv(l, stage, reader, of_op(SP_TENSOR_KV, op), index_of_later(l, op, reader));
        sp_lower_free(l, stage, of_op(SP_TENSOR_KV, op)); /* the op keeps them */
    }
}

/* The parts of other processes that read the keys and values have all been submitted. */
static void collect_gradients(struct sp_lowering *l, int stage, const struct sp_op *op, int index)
{
    for (int process = 0; process < l->processes; process++) {
        int reader = later_stage(l, op->chunk, op->slice, process);

        if (reader < 0 || process == sp_lowering_process(l, stage))
            continue;
        sp_lower_send(l, reader, stage, of_op(SP_TENSOR_DKV, op), index_of_later(l, op, reader));
        sp_lower_recv(l, reader, stage, of_op(SP_TENSOR_DKV, op), index);
        sp_lower_free(l, reader, of_op(SP_TENSOR_DKV, op));
        sp_lower_free(l, reader, of_op(SP_TENSOR_KV, op));
    }
}

static void release_gradients(struct sp_lowering *l, int stage, const struct sp_op *op)
{
    for (int process = 0; process < l->processes; process++)
        if (process != sp_lowering_process(l, stage) &&
            later_stage(l, op->chunk, op->slice, process) >= 0)
            sp_lower_free(l, stage, of_op(SP_TENSOR_DKV, op));
}

/* ---- rows from stage to stage ---------------------------------------------------------------- */

/* The place in its program of the op that reads first what an op left, of those of a stage that compute
 * parts first .. last of global stage `to`. */
static int index_of_reader(const struct sp_lowering *l, const struct sp_op *writer, int to,
                           int stage, int first, int last)
{
    struct sp_op reader = *writer;
    int found = -1;

    reader.chunk = to;
    for (int k = first; k <= last; k++) {
        int at;

        if (sp_part_at(layout(l), to, k).stage != stage)
            continue;
        reader.slice = (unsigned short)k;
        at = l->order[sp_lowering_position(l, stage, &reader)].index;
        found = found < 0 || at < found ? at : found;
    }
    return found;
}

/* To each process once: parts are in the order of stages, and stages of processes. */
static void send_rows(struct sp_lowering *l, int stage, const struct sp_op *op, int index)
{
    struct sp_tensor_id rows = of_op(op->pass == SP_F ? SP_TENSOR_X : SP_TENSOR_DX, op);
    int to = op->chunk + (op->pass == SP_F ? 1 : -1), first, last;
    int sent = sp_lowering_process(l, stage);
    bool here = false;

    if (to < 0 || to >= layout(l)->stages)
        return;
    sp_multiplexed_overlap(layout(l), op->chunk, op->slice, to, &first, &last);
    for (int k = first; k <= last; k++) {
        int reader = sp_part_at(layout(l), to, k).stage;
        int process = sp_lowering_process(l, reader);

        here |= process == sp_lowering_process(l, stage);
        if (process == sp_lowering_process(l, stage) || process == sent)
            continue;
        sp_lower_send(l, stage, reader, rows, index);
        sp_lower_recv(l, stage, reader, rows, index_of_reader(l, op, to, reader, first, last));
        sent = process;
    }
    if (!here)
        sp_lower_free(l, stage, rows);
}

/* The first part of global stage `to` in a process that reads rows, and the last in the order. */
static void readers(const struct sp_lowering *l, const struct sp_op *writer, int to, int process,
                    int *first_stage, int *last_place)
{
    int first, last;

    *first_stage = *last_place = -1;
    sp_multiplexed_overlap(layout(l), writer->chunk, writer->slice, to, &first, &last);
    for (int k = first; k <= last; k++) {
        struct sp_op op = *writer;
        int stage = sp_part_at(layout(l), to, k).stage, place;

        if (sp_lowering_process(l, stage) != process)
            continue;
        op.chunk = to;
        op.slice = (unsigned short)k;
        place = sp_lowering_position(l, stage, &op);
        *first_stage = *first_stage < 0 ? stage : *first_stage;
        *last_place = place > *last_place ? place : *last_place;
    }
}

/* Frees the rows of which the op at place i was the last reader of its process. */
static void release_rows(struct sp_lowering *l, int i)
{
    const struct sp_op *op = sp_lowering_op(l, i);
    int from = op->chunk - (op->pass == SP_F ? 1 : -1), first, last;
    int here = sp_lowering_process(l, l->order[i].stage);

    if (from < 0 || from >= layout(l)->stages)
        return;
    sp_multiplexed_overlap(layout(l), op->chunk, op->slice, from, &first, &last);
    for (int k = first; k <= last; k++) {
        int writer_stage = sp_part_at(layout(l), from, k).stage, reader, place;
        struct sp_op writer = *op;

        writer.chunk = from;
        writer.slice = (unsigned short)k;
        readers(l, &writer, op->chunk, here, &reader, &place);
        if (place == i)
            sp_lower_free(l, sp_lowering_process(l, writer_stage) == here ? writer_stage : reader,
                          of_op(op->pass == SP_F ? SP_TENSOR_X : SP_TENSOR_DX, &writer));
    }
}

void sp_multiplexed_lower(struct sp_lowering *l, int i)
{
    const struct sp_op *op = sp_lowering_op(l, i);
    int stage = l->order[i].stage, index = l->order[i].index;

    if (op->pass == SP_B)
        collect_gradients(l, stage, op, index);
    sp_lower_run(l, stage, index);
    if (op->pass == SP_F)
        share_keys(l, stage, op, index);
    else
        release_gradients(l, stage, op);
    send_rows(l, stage, op, index);
    release_rows(l, i);
}

/* ---- weights and their gradients -------------------------------------------------------------- */

/* Something of each block that a stage holds, to another one; tensors name the owner as their
 * micro-batch, as two stages may hold a table. */
struct transfer {
    struct sp_lowering *l;
    int owner, helper;
    int index; /* in the program of the helper: of the op that reads the weights first, that adds to
                * gradients last; -1: none does */
    void (*step)(struct transfer *t, struct sp_tensor_id block);
};

static int transfer_block(void *arg, enum sp_block_kind kind, int layer)
{
    struct transfer *t = arg;

    t->step(
        t, (struct sp_tensor_id){
               .kind = SP_TENSOR_BLOCK, .block = (unsigned char)kind, .mb = t->owner, .at = layer});
    return 0;
}

static void lend(struct transfer *t, struct sp_tensor_id block)
{
    sp_lower_send(t->l, t->owner, t->helper, block, -1);
    sp_lower_recv(t->l, t->owner, t->helper, block, t->index);
}

static void transfer_blocks(struct sp_lowering *l, int owner, int helper,
                            void (*step)(struct transfer *t, struct sp_tensor_id block))
{
    struct transfer t = {.l = l, .owner = owner, .helper = helper, .index = -1, .step = step};
    const struct sp_program *prog = &l->plan->programs[helper];

    for (int k = 0; k < prog->n; k++)
        if (prog->ops[k].chunk == owner && (step != lend || t.index < 0))
            t.index = k;
    if (l->shape)
        sp_stage_each_block(l->plan, &l->shape->held, owner, transfer_block, &t);
}

static void take_back(struct transfer *t, struct sp_tensor_id block)
{
    sp_lower_free(t->l, t->helper, block);
}

/* The first stage of a process, whose copies all of them read. */
static bool is_first_of_process(const struct sp_lowering *l, int stage)
{
    return stage == 0 || sp_lowering_process(l, stage - 1) != sp_lowering_process(l, stage);
}

/* For every stage, and every process but its own: each computes for every stage. */
static void each_copy(struct sp_lowering *l,
                      void (*step)(struct transfer *t, struct sp_tensor_id block))
{
    for (int owner = 0; owner < layout(l)->stages; owner++)
        for (int s = 0; s < layout(l)->stages; s++)
            if (is_first_of_process(l, s) &&
                sp_lowering_process(l, s) != sp_lowering_process(l, owner))
                transfer_blocks(l, owner, s, step);
}

int sp_multiplexed_lower_begin(struct sp_lowering *l)
{
    each_copy(l, lend);
    return 0;
}

/* The sum that a stage has added up for another, which adds it to its own. */
static void give_sum(struct transfer *t, struct sp_tensor_id block)
{
    block.kind = SP_TENSOR_GRADIENT;
    sp_lower_send(t->l, t->helper, t->owner, block, t->index);
    sp_lower_recv(t->l, t->helper, t->owner, block, -1);
    sp_lower_free(t->l, t->helper, block);
    sp_lower_add(t->l, t->owner, block);
    sp_lower_free(t->l, t->owner, block);
}

void sp_multiplexed_lower_end(struct sp_lowering *l)
{
    for (int owner = 0; owner < layout(l)->stages; owner++)
        for (int s = 0; s < layout(l)->stages; s++)
            if (s != owner)
                transfer_blocks(l, owner, s, give_sum);
    each_copy(l, take_back);
    sp_replicas_lower(l);
}
