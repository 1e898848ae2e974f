/*
 * Moves the ops of a V pattern of whole backwards to earlier slots. Each op in turn takes the first
 * free slots of its stage after the ops that it waits for; a forward takes none at which the stage
 * already holds all that it may. This closes the slots that micro-batches before the first would
 * fill, as in the code of Qi et al. 2024 (v1f1b.py). A replay chooses among the ops that are ready
 * when a stage is free; here an op may pass others of its stage that begin before it is ready.
 */
#include "policies/orders/zero_bubble/vpattern.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#define NOTHING (-1)
#define HALF (-2) /* the second slot of a backward */

struct pack {
    int p, m, n; /* n: slots of a stage */
    int limit;
    int *from; /* [p][SP_SLOTS] slots of micro-batch 0 in the pattern */
    int *cell; /* [p][n] op that begins there: micro-batch * SP_SLOTS + step, or one of the above */
    int *held; /* [p][n] activations after the slot; of later ones, as in the pattern */
    int *end;  /* [p][SP_SLOTS] first slot after the last op placed of each step */
    int *done; /* [p][SP_SLOTS][m] first slot after an op */
};

static int length(int step)
{
    return step == SP_SLOT_F0 || step == SP_SLOT_F1 ? 1 : 2;
}

static int create(const struct sp_vpattern *pattern, const struct sp_layout *lay, int limit,
                  struct pack *k)
{
    size_t p = (size_t)lay->stages, m = (size_t)lay->micro_batches;

    *k = (struct pack){.p = lay->stages, .m = lay->micro_batches, .limit = limit};
    k->from = calloc(p * SP_SLOTS, sizeof *k->from);
    k->end = calloc(p * SP_SLOTS, sizeof *k->end);
    k->done = calloc(p * SP_SLOTS * m, sizeof *k->done);
    if (!k->from || !k->end || !k->done)
        return -ENOMEM;
    for (int s = 0; s < k->p; s++) {
        pattern->slots(k->p, s, &k->from[s * SP_SLOTS]);
        for (int i = 0; i < SP_SLOTS; i++) {
            int last = k->from[s * SP_SLOTS + i] + SP_VPATTERN_PERIOD * (k->m - 1) + length(i);

            k->n = last > k->n ? last : k->n;
        }
    }
    k->cell = calloc(p * (size_t)k->n, sizeof *k->cell);
    k->held = calloc(p * (size_t)k->n, sizeof *k->held);
    return k->cell && k->held ? 0 : -ENOMEM;
}

static void destroy(struct pack *k)
{
    free(k->from);
    free(k->end);
    free(k->done);
    free(k->cell);
    free(k->held);
}

/* The step of the pattern that begins in a slot, NOTHING if none does. */
static int step_at(const struct pack *k, int stage, int t)
{
    for (int i = 0; i < SP_SLOTS; i++) {
        int since = t - k->from[stage * SP_SLOTS + i];

        if (since >= 0 && since % SP_VPATTERN_PERIOD == 0 && since / SP_VPATTERN_PERIOD < k->m)
            return i;
    }
    return NOTHING;
}

static void clear(struct pack *k)
{
    for (int s = 0; s < k->p; s++) {
        int *held = k->held + (size_t)s * (size_t)k->n, live = 0;

        for (int t = 0; t < k->n; t++) {
            int step = step_at(k, s, t), before = t > 0 ? step_at(k, s, t - 1) : NOTHING;

            live += step != NOTHING && length(step) == 1;
            live -= before != NOTHING && length(before) == 2;
            held[t] = live;
            k->cell[(size_t)s * (size_t)k->n + (size_t)t] = NOTHING;
        }
    }
}

/* First slot after the ops that an op waits for, including the same op of the micro-batch
 * before. */
static int earliest(const struct pack *k, int s, int step, int mb)
{
    bool down = step == SP_SLOT_F0 || step == SP_SLOT_B1;
    int from = s + (down ? -1 : 1), what = step, end = k->end[s * SP_SLOTS + step], given;

    if (from < 0 || from == k->p) {
        if (step == SP_SLOT_F0)
            return end;
        from = s;
        what = step - 1;
    }
    given = k->done[((size_t)from * SP_SLOTS + (size_t)what) * (size_t)k->m + (size_t)mb];
    return given > end ? given : end;
}

/* Places the op that begins in slot t of the pattern; all before t are placed. */
static void place(struct pack *k, int s, int step, int t)
{
    int *cell = k->cell + (size_t)s * (size_t)k->n, *held = k->held + (size_t)s * (size_t)k->n;
    int mb = (t - k->from[s * SP_SLOTS + step]) / SP_VPATTERN_PERIOD, n = length(step);
    int q = earliest(k, s, step, mb);

    if (n == 1) {
        int first = t;

        while (first > q && held[first - 1] < k->limit)
            first--;
        q = first;
    }
    while (q < t && (cell[q] != NOTHING || (n == 2 && cell[q + 1] != NOTHING)))
        q++;
    cell[q] = mb * SP_SLOTS + step;
    if (n == 2)
        cell[q + 1] = HALF;
    for (int i = q + n - 1; i < t + n - 1; i++)
        held[i] += n == 1 ? 1 : -1;
    k->end[s * SP_SLOTS + step] = q + n;
    k->done[((size_t)s * SP_SLOTS + (size_t)step) * (size_t)k->m + (size_t)mb] = q + n;
}

int sp_vpattern_pack(const struct sp_vpattern *pattern, const struct sp_layout *lay, int limit,
                     struct sp_program *programs)
{
    struct pack k;
    int ret = create(pattern, lay, limit, &k);

    if (ret)
        goto err_create;
    clear(&k);
    for (int t = 0; t < k.n; t++) {
        for (int s = 0; s < k.p; s++) {
            int step = step_at(&k, s, t);

            if (step != NOTHING)
                place(&k, s, step, t);
        }
    }
    for (int s = 0; s < k.p; s++) {
        for (int t = 0; t < k.n; t++) {
            int op = k.cell[(size_t)s * (size_t)k.n + (size_t)t];

            if (op >= 0)
                sp_vpattern_add(&programs[s], op % SP_SLOTS, op / SP_SLOTS);
        }
    }
err_create:
    destroy(&k);
    return ret;
}
