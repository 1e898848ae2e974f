/*
 * The sharded family (ZeRO-3, fully sharded data parallelism): worker i mod P keeps micro-batch i
 * from its first forward to its last backward. Every parameter block lies in P shards; a worker
 * owns one of them with its gradient and optimizer state. A chunk of layers, the unit, is gathered
 * before the ops that use it. After each backward its gradient is cut up, and the owners of the
 * shards sum it.
 *
 *   F(i,c) waits for F(i,c-1)        B(i,c) for B(i,c+1) and F(i,c)
 *
 * A gather is a collective: it starts when every worker has begun the op before the one that needs
 * it, so when every worker has ended the op before that. It is enough to ask this of one other
 * worker, the previous one.
 *
 *   F(i,c) for its F(.,c-2)          B(i,c) for its B(.,c+2), the last but one chunk for its F(.,c)
 *
 * The last chunk is still gathered when its backward begins. So all workers have to take chunks in
 * the same order, whichever that is. A run is not as strict: owners send their shards whatever they
 * compute, and the sums of gradients keep workers together.
 */
#include "policies/families/families.h"
#include "policies/families/ownership.h"
#include "policies/families/workers.h"
#include "policies/refuse.h"
#include <errno.h>
#include <stdio.h>

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    int err = sp_worker_check(lay, lay->chunks, why, n);

    return err ? err : sp_refuse_rounds(lay, why, n);
}

/* Every stage has every chunk. */
static int place(const struct sp_layout *lay, const struct sp_schedule_def *def,
                 struct sp_map **map, char *why, size_t n)
{
    (void)def, (void)why, (void)n;
    return sp_map_create_all(lay, map);
}

static bool foreign(const struct sp_layout *lay, int stage, const struct sp_op *op, char *why,
                    size_t n)
{
    if (sp_worker_foreign(lay, stage, op, why, n))
        return true;
    if (op->part != SP_CHUNK || (op->chunk >= 0 && op->chunk < lay->chunks))
        return false;
    snprintf(why, n, "%d chunk%s", lay->chunks, lay->chunks > 1 ? "s" : "");
    return true;
}

static int ids(const struct sp_layout *lay)
{
    return 2 * lay->micro_batches * lay->chunks;
}

static int id(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    if (op->mb < 0 || op->mb >= lay->micro_batches || op->mb % lay->stages != stage ||
        op->part != SP_CHUNK || op->slice != 0 || op->chunk < 0 || op->chunk >= lay->chunks ||
        (op->pass != SP_F && op->pass != SP_B))
        return -1;
    return ((op->pass == SP_B) * lay->micro_batches + op->mb) * lay->chunks + op->chunk;
}

static struct sp_dep at(const struct sp_layout *lay, enum sp_pass pass, int mb, int c)
{
    return (struct sp_dep){.stage = mb % lay->stages,
                           .op = {.pass = (unsigned char)pass, .mb = mb, .chunk = c}};
}

/* The producers of an op that belong to its own micro-batch. */
static int own_deps(const struct sp_layout *lay, int stage, const struct sp_op *op,
                    struct sp_dep out[SP_MAX_DEPS])
{
    int i = op->mb, c = op->chunk, last = lay->chunks - 1, n = 0;

    (void)stage;
    if (op->pass == SP_F && c > 0)
        out[n++] = at(lay, SP_F, i, c - 1);
    if (op->pass == SP_B) {
        out[n++] = at(lay, SP_F, i, c);
        if (c < last)
            out[n++] = at(lay, SP_B, i, c + 1);
    }
    return n;
}

static int deps(const struct sp_layout *lay, int stage, const struct sp_op *op,
                struct sp_dep out[SP_MAX_DEPS])
{
    int P = lay->stages, c = op->chunk, last = lay->chunks - 1;
    int n = own_deps(lay, stage, op, out), before = op->mb - stage + (stage + P - 1) % P;

    if (P == 1)
        return n;
    if (op->pass == SP_F && c >= 2)
        out[n++] = at(lay, SP_F, before, c - 2);
    else if (op->pass == SP_B && c == last - 1)
        out[n++] = at(lay, SP_F, before, c);
    else if (op->pass == SP_B && c < last - 1)
        out[n++] = at(lay, SP_B, before, c + 2);
    return n;
}

static void required(const struct sp_layout *lay,
                     void (*need)(void *arg, int stage, const struct sp_op *op), void *arg)
{
    for (int i = 0; i < lay->micro_batches; i++) {
        for (int c = 0; c < lay->chunks; c++) {
            struct sp_dep f = at(lay, SP_F, i, c), b = at(lay, SP_B, i, c);

            need(arg, f.stage, &f.op);
            need(arg, b.stage, &b.op);
        }
    }
}

/* A worker alone does to a micro-batch what the stages of a line do one after the other. */
static double cost(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                   const struct sp_op *op)
{
    double share = (double)plan->layout.stages / plan->layout.chunks;

    (void)stage;
    return share * (op->pass == SP_F ? costs->f : costs->b + costs->w);
}

static int activations(const struct sp_layout *lay)
{
    return lay->chunks;
}

/* A gather is not a message that could arrive out of turn. */
static int stream(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    return id(lay, stage, op);
}

static const struct sp_lowerer lowers = {
    .stream = stream, .lower = sp_sharded_lower, .end = sp_sharded_lower_end};
static const struct sp_owners owners = {.is_end = sp_every_stage};

const struct sp_family sp_family_sharded = {
    .name = "sharded",
    .facts.sharded = true,
    .facts.one_line = true,
    .facts.shards_ends = true,
    .groups = sp_all_groups,
    .check = check,
    .place = place,
    .foreign = foreign,
    .id = id,
    .ids = ids,
    .deps = deps,
    .required = required,
    .cost = cost,
    .activations = activations,
    .lowers = &lowers,
    .owners = &owners,
};
