#include "trace/timeline/timeline.h"
#include "sp_grow.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int sp_timeline_create(int stages, int ops, int deps, struct sp_timeline *t)
{
    *t = (struct sp_timeline){.stages = stages,
                              .n_ops = ops,
                              .n_deps = deps,
                              .step = -1,
                              .share = 1,
                              .stage = calloc((size_t)stages, sizeof *t->stage),
                              .first_op = calloc((size_t)stages + 1, sizeof *t->first_op),
                              .op = calloc((size_t)ops + 1, sizeof *t->op),
                              .dep = calloc((size_t)deps + 1, sizeof *t->dep),
                              .order = calloc((size_t)ops + 1, sizeof *t->order)};
    if (!t->stage || !t->first_op || !t->op || !t->dep || !t->order) {
        sp_timeline_destroy(t);
        return -ENOMEM;
    }
    for (int i = 0; i < ops; i++)
        t->op[i].submitted = t->op[i].ready = t->op[i].arrived = NAN;
    return 0;
}

void sp_timeline_destroy(struct sp_timeline *t)
{
    free(t->options);
    free(t->stage);
    free(t->first_op);
    free(t->op);
    free(t->dep);
    free(t->message);
    free(t->order);
    *t = (struct sp_timeline){0};
}

int sp_timeline_add_message(struct sp_timeline *t, const struct sp_timeline_message *m)
{
    if (!sp_grow(&t->message, (size_t)t->n_messages + 1, &t->cap_messages, sizeof *t->message))
        return -ENOMEM;
    t->message[t->n_messages++] = *m;
    return 0;
}

/* ---- derived values -------------------------------------------------------------------------- */

static int set_order(struct sp_timeline *t)
{
    for (int i = 0; i < t->n_ops; i++)
        t->order[i] = -1;
    for (int i = 0; i < t->n_ops; i++) {
        int turn = t->op[i].turn;

        if (turn < 0 || turn >= t->n_ops || t->order[turn] >= 0)
            return -EINVAL;
        t->order[turn] = i;
    }
    return 0;
}

/* A message, to sort by the time it was given to the network. */
struct turn {
    double sent;
    int message;
};

static int compare(const void *x, const void *y)
{
    const struct turn *a = x, *b = y;

    if (a->sent != b->sent)
        return a->sent < b->sent ? -1 : 1;
    return a->message - b->message;
}

/* A message gets its interfaces once all messages given to MPI before it, from the same process or
 * to the same one, have arrived. */
int sp_timeline_queue(struct sp_timeline *t)
{
    struct turn *turn = malloc(((size_t)t->n_messages + 1) * sizeof *turn);
    double *free_at = malloc(2 * ((size_t)t->processes + 1) * sizeof *free_at);

    if (!turn || !free_at) {
        free(turn);
        free(free_at);
        return -ENOMEM;
    }
    for (int i = 0; i < t->n_messages; i++)
        turn[i] = (struct turn){t->message[i].sent, i};
    for (int i = 0; i < 2 * t->processes; i++)
        free_at[i] = -INFINITY;
    qsort(turn, (size_t)t->n_messages, sizeof *turn, compare);
    for (int i = 0; i < t->n_messages; i++) {
        struct sp_timeline_message *m = &t->message[turn[i].message];
        double *out, *in;

        if (!sp_timeline_crosses(t, m))
            continue;
        out = &free_at[2 * t->stage[m->from].rank];
        in = &free_at[2 * t->stage[m->to].rank + 1];
        m->sent = fmin(m->arrived, fmax(m->sent, fmax(*out, *in)));
        *out = fmax(*out, m->arrived);
        *in = fmax(*in, m->arrived);
    }
    free(turn);
    free(free_at);
    return 0;
}

int sp_timeline_finish(struct sp_timeline *t)
{
    int err = set_order(t);

    for (int i = 0; !err && i < t->n_messages; i++) {
        const struct sp_timeline_message *m = &t->message[i];

        if (m->reader >= 0 && sp_timeline_crosses(t, m))
            t->op[m->reader].arrived = fmax(t->op[m->reader].arrived, m->arrived);
    }
    return err;
}

/* ---- words ----------------------------------------------------------------------------------- */

char *sp_timeline_name(const struct sp_timeline *t, int op, char text[SP_OP_TEXT])
{
    return sp_op_print(&t->op[op].op, t->slices > 1, text);
}

const char *sp_timeline_source_name(enum sp_timeline_source source)
{
    static const char *const names[] = {[SP_TIMELINE_MEASURED] = "measured",
                                        [SP_TIMELINE_SIMULATED] = "simulated",
                                        [SP_TIMELINE_PREDICTED] = "predicted"};

    return names[source];
}
