/*
 * The verifier: what makes a set of programs a schedule of its family. Every message sent is
 * received because every op that must exist does, once, and each message has one receiver.
 */
#include "policies/index.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct check {
    const struct sp_plan *plan;
    struct sp_index ix;
    char *why;
    size_t n;
    int ret;
};

static char *print(const struct check *c, const struct sp_op *op, char *text)
{
    return sp_op_print(op, c->plan->layout.slices > 1, text);
}

/* Why the family has no such op on the stage. */
static int foreign(struct check *c, int stage, int index)
{
    const struct sp_layout *lay = &c->plan->layout;
    const struct sp_op *op = &c->plan->programs[stage].ops[index];
    char text[SP_OP_TEXT], reason[96];

    if (op->mb < 0 || op->mb >= lay->micro_batches)
        snprintf(reason, sizeof reason, "%d micro-batches", lay->micro_batches);
    else if (op->part == SP_CHUNK && (op->chunk < 0 || op->chunk >= lay->chunks))
        snprintf(reason, sizeof reason, "%d chunk%s", lay->chunks, lay->chunks > 1 ? "s" : "");
    else if (op->slice >= lay->slices)
        snprintf(reason, sizeof reason, "%d slice%s", lay->slices, lay->slices > 1 ? "s" : "");
    else
        snprintf(reason, sizeof reason, "no op of the family %s there", c->plan->family->name);
    snprintf(c->why, c->n, "order: stage %d: %s does not exist (%s)", stage, print(c, op, text),
             reason);
    return -EINVAL;
}

/* Twice, or before something of the same stage that it waits for. */
static int check_op(struct check *c, int stage, int index)
{
    const struct sp_plan *plan = c->plan;
    const struct sp_op *op = &plan->programs[stage].ops[index];
    char text[SP_OP_TEXT], other[SP_OP_TEXT];
    struct sp_dep deps[SP_MAX_DEPS];
    struct sp_dep self = {.stage = stage, .op = *op};
    int first = sp_index_place(&c->ix, plan, &self), n;

    if (first != index) {
        snprintf(c->why, c->n, "order: stage %d: %s appears twice (positions %d and %d)", stage,
                 print(c, op, text), first, index);
        return -EINVAL;
    }
    n = plan->family->deps(&plan->layout, stage, op, deps);
    for (int i = 0; i < n; i++) {
        int place = sp_index_place(&c->ix, plan, &deps[i]);

        if (place < 0) {
            snprintf(c->why, c->n, "order: stage %d: %s is missing (%s of stage %d waits for it)",
                     deps[i].stage, print(c, &deps[i].op, other), print(c, op, text), stage);
            return -EINVAL;
        }
        if (deps[i].stage == stage && place > index) {
            snprintf(c->why, c->n, "order: stage %d: %s at position %d comes before its %s", stage,
                     print(c, op, text), index, print(c, &deps[i].op, other));
            return -EINVAL;
        }
    }
    return 0;
}

/* A recompute is of use only before the backward of its chunk. */
static int check_recompute(struct check *c, int stage, int index)
{
    const struct sp_op *op = &c->plan->programs[stage].ops[index];
    struct sp_dep backward = {.stage = stage, .op = *op};
    char text[SP_OP_TEXT], other[SP_OP_TEXT];

    if (op->pass != SP_R)
        return 0;
    backward.op.pass = SP_B;
    if (sp_index_place(&c->ix, c->plan, &backward) > index)
        return 0;
    snprintf(c->why, c->n, "order: stage %d: %s at position %d comes after its %s", stage,
             print(c, op, text), index, print(c, &backward.op, other));
    return -EINVAL;
}

static void need(void *arg, int stage, const struct sp_op *op)
{
    struct check *c = arg;
    struct sp_dep dep = {.stage = stage, .op = *op};
    char text[SP_OP_TEXT];

    if (c->ret || sp_index_place(&c->ix, c->plan, &dep) >= 0)
        return;
    snprintf(c->why, c->n, "order: stage %d: %s is missing", stage, print(c, op, text));
    c->ret = -EINVAL;
}

static int check_ops(struct check *c)
{
    const struct sp_plan *plan = c->plan;

    plan->family->required(&plan->layout, need, c);
    for (int s = 0; s < plan->layout.stages && !c->ret; s++) {
        for (int k = 0; k < plan->programs[s].n && !c->ret; k++) {
            c->ret = check_op(c, s, k);
            if (!c->ret)
                c->ret = check_recompute(c, s, k);
        }
    }
    return c->ret;
}

int sp_verify(const struct sp_plan *plan, char *why, size_t n)
{
    static const struct sp_costs unit = {.f = 1, .b = 1, .w = 1};
    static const enum sp_channel kinds[] = {SP_UNBOUNDED, SP_FIFO, SP_PAIRED};
    struct check c = {.plan = plan, .why = why, .n = n};
    int stage, index, ret;

    ret = sp_index_create(plan, &c.ix, &stage, &index);
    if (ret)
        return ret == -EINVAL ? foreign(&c, stage, index) : ret;
    ret = check_ops(&c);
    sp_index_destroy(&c.ix);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !ret; i++) {
        struct sp_times times;
        char reason[448] = "";

        ret = sp_listsim(plan, &unit, kinds[i], &times, reason, sizeof reason);
        if (!ret) {
            sp_times_destroy(&times);
        } else if (ret == -EDEADLK) {
            snprintf(why, n, "order: %s", reason);
            ret = -EINVAL;
        }
    }
    return ret;
}
