/* The tables of differences between two records, the largest difference first. */
#include "cli/compare/compare.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- parts of stages */

static int compare_parts(const void *x, const void *y)
{
    const struct sp_compared_part *a = x, *b = y;
    double d = fabs(a->time[1] - a->time[0]), e = fabs(b->time[1] - b->time[0]);

    if (d != e)
        return d > e ? -1 : 1;
    return a->stage != b->stage ? a->stage - b->stage : (int)a->part - (int)b->part;
}

static void list_parts(struct sp_comparison *c)
{
    int stages = c->t[0]->stages;

    for (int i = 0; i < SP_STEP_PARTS; i++)
        c->mean[i] = (struct sp_compared_part){.stage = -1, .part = (enum sp_part_of_step)i};
    for (int s = 0; s < stages; s++)
        for (int i = 0; i < SP_STEP_PARTS; i++) {
            struct sp_compared_part *part = &c->part[c->n_parts++];

            *part = (struct sp_compared_part){.stage = s, .part = (enum sp_part_of_step)i};
            for (int k = 0; k < 2; k++) {
                part->time[k] = c->waits[k].stage[s][i];
                c->mean[i].time[k] += part->time[k] / stages;
            }
        }
    qsort(c->part, (size_t)c->n_parts, sizeof *c->part, compare_parts);
    qsort(c->mean, SP_STEP_PARTS, sizeof *c->mean, compare_parts);
}

/* ---- ops */

/* An op of a record, sorted by its stage and by what it does, to be found in the other record. */
struct known {
    int stage;
    struct sp_op op;
    int number;
};

static int compare_known(const void *x, const void *y)
{
    const struct known *a = x, *b = y;
    const int of_a[] = {a->stage, a->op.pass, a->op.part, a->op.mb, a->op.chunk, a->op.slice};
    const int of_b[] = {b->stage, b->op.pass, b->op.part, b->op.mb, b->op.chunk, b->op.slice};

    for (size_t i = 0; i < sizeof of_a / sizeof *of_a; i++)
        if (of_a[i] != of_b[i])
            return of_a[i] < of_b[i] ? -1 : 1;
    return 0;
}

static int compare_ops(const void *x, const void *y)
{
    const struct sp_compared_op *a = x, *b = y;
    double d = fabs(a->length[1] - a->length[0]), e = fabs(b->length[1] - b->length[0]);

    if (d != e)
        return d > e ? -1 : 1;
    return a->op[0] - b->op[0];
}

static void sort_ops(const struct sp_timeline *t, struct known *known)
{
    for (int i = 0; i < t->n_ops; i++)
        known[i] = (struct known){t->op[i].stage, t->op[i].op, i};
    qsort(known, (size_t)t->n_ops, sizeof *known, compare_known);
}

static void add_op(struct sp_comparison *c, int a, int b)
{
    struct sp_compared_op *op = &c->op[c->n_ops++];
    const int number[] = {a, b};

    for (int k = 0; k < 2; k++) {
        op->op[k] = number[k];
        op->start[k] = c->t[k]->op[number[k]].start;
        op->length[k] = c->t[k]->op[number[k]].end - op->start[k];
    }
}

static int list_ops(struct sp_comparison *c)
{
    size_t a = (size_t)c->t[0]->n_ops, b = (size_t)c->t[1]->n_ops;
    struct known *known = calloc(a + b, sizeof *known);
    size_t i = 0, k = 0;

    if (!known)
        return -ENOMEM;
    sort_ops(c->t[0], known);
    sort_ops(c->t[1], known + a);
    while (i < a && k < b) {
        int order = compare_known(&known[i], &known[a + k]);

        if (!order)
            add_op(c, known[i].number, known[a + k].number);
        i += order <= 0;
        k += order >= 0;
    }
    c->alone[0] = (int)a - c->n_ops;
    c->alone[1] = (int)b - c->n_ops;
    free(known);
    qsort(c->op, (size_t)c->n_ops, sizeof *c->op, compare_ops);
    return 0;
}

int sp_comparison_make(const struct sp_timeline *a, const struct sp_timeline *b,
                       struct sp_comparison *c)
{
    int err = 0;

    *c = (struct sp_comparison){.t = {a, b},
                                .part = calloc((size_t)a->stages * SP_STEP_PARTS, sizeof *c->part),
                                .op = calloc((size_t)a->n_ops + 1, sizeof *c->op)};
    if (!c->part || !c->op)
        err = -ENOMEM;
    for (int k = 0; !err && k < 2; k++)
        err = sp_waits_create(c->t[k], &c->waits[k]);
    if (!err) {
        list_parts(c);
        err = list_ops(c);
    }
    if (err)
        sp_comparison_destroy(c);
    return err;
}

void sp_comparison_destroy(struct sp_comparison *c)
{
    for (int k = 0; k < 2; k++)
        sp_waits_destroy(&c->waits[k]);
    free(c->part);
    free(c->op);
    *c = (struct sp_comparison){0};
}
