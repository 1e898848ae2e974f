#include "policies/orders/dual.h"

/* The progress of a stage: forwards and backwards done of each phase, and deferred weight
 * gradients. */
struct state {
    const struct sp_dual *dual;
    struct sp_program *prog;
    int f[2], b[2];
    struct sp_program put_off; /* first in, first out, for both phases */
    int taken;
};

static void forward(struct state *s, int phase)
{
    sp_program_add(s->prog, SP_F, s->dual->first[phase] + s->f[phase]++, s->dual->chunk[phase]);
}

static void backward(struct state *s, int phase)
{
    sp_program_add(s->prog, SP_B, s->dual->first[phase] + s->b[phase]++, s->dual->chunk[phase]);
}

/* A backward of the input gradient only; its W is deferred. */
static void backward_input(struct state *s, int phase)
{
    sp_program_add(&s->put_off, SP_W, s->dual->first[phase] + s->b[phase], s->dual->chunk[phase]);
    backward(s, phase);
}

static void weight(struct state *s)
{
    sp_program_add_op(s->prog, s->put_off.ops[s->taken++]);
}

static void overlapped(struct state *s, int f, int b)
{
    const struct sp_dual *d = s->dual;

    sp_program_add_pair(s->prog, d->first[f] + s->f[f]++, d->chunk[f], d->first[b] + s->b[b]++,
                        d->chunk[b]);
}

/* The last backwards of both phases; the second half of them defers its W. */
static void drain(struct state *s, int n)
{
    int rank = s->dual->rank;

    for (int i = 0; i < n; i++) {
        if (i > n / 2 || (i == n / 2 && rank % 2 == 1))
            backward_input(s, 1);
        else
            backward(s, 1);
        if (i >= n / 2)
            backward_input(s, 0);
        else
            backward(s, 0);
    }
}

void sp_dual_emit(const struct sp_dual *dual, struct sp_program *prog)
{
    struct state s = {.dual = dual, .prog = prog};
    int rank = dual->rank, to_turn = dual->ranks - 1 - rank;
    int steady = dual->micro_batches - 2 * dual->ranks + rank + 1;

    for (int i = 0; i < 2 * to_turn; i++)
        forward(&s, 0);
    for (int i = 0; i < rank + 1; i++) {
        forward(&s, 0);
        forward(&s, 1);
    }
    for (int i = 0; i < to_turn; i++) {
        backward_input(&s, 1);
        weight(&s);
        forward(&s, 1);
    }
    for (int i = 0; i < steady; i++) {
        /* at the turning point the first two run apart: a smaller bubble */
        if (i == 0 && to_turn == 0) {
            forward(&s, 0);
            backward(&s, 1);
        } else {
            overlapped(&s, 0, 1);
        }
        overlapped(&s, 1, 0);
    }
    for (int i = 0; i < to_turn; i++) {
        backward(&s, 1);
        overlapped(&s, 1, 0);
    }
    drain(&s, rank + 1);
    for (int i = 0; i < to_turn; i++) {
        weight(&s);
        backward_input(&s, 0);
    }
    while (s.taken < s.put_off.n)
        weight(&s);
    sp_program_clear(&s.put_off);
}
