#include "graphs/turns.h"
#include "sp_error.h"
#include <stdlib.h>
#include <ucontext.h>

/* The second op's stack; pages that it does not reach are not used. */
enum { STACK_BYTES = 1 << 20 };

/* The ops are expanded by one thread that leaves one of them for the other in the middle: all calls
 * of StarPU come from the thread that submits, or, simulated, from its actor. */
struct sp_turns {
    struct sp_op_ctx *op[2];
    void (*expand)(struct sp_op_ctx *c);
    ucontext_t at[2]; /* where each of them goes on */
    int layers[2];
    bool ended[2];
};

/* Lets the other op go on until it passes too, or ends. */
static void pass(struct sp_turns *t, int me)
{
    if (!t->ended[!me])
        SP_NEED(!swapcontext(&t->at[me], &t->at[!me]), "two ops that overlap cannot take turns");
}

void sp_op_await(struct sp_op_ctx *c)
{
    c->ctx.exchanged = true;
    if (c->turns)
        pass(c->turns, c->second);
}

void sp_turns_layer(struct sp_op_ctx *c)
{
    struct sp_turns *t = c->turns;
    int me = c->second;

    t->layers[me]++;
    while (t->layers[!me] < t->layers[me] && !t->ended[!me])
        pass(t, me);
}

/* makecontext takes functions of ints: the two halves of an address. */
static void expand_second(unsigned high, unsigned low)
{
    struct sp_turns *t = (struct sp_turns *)(((uintptr_t)high << 16 << 16) | low);

    t->expand(t->op[1]);
    t->ended[1] = true; /* the first goes on, as uc_link says */
}

void sp_turns_run(struct sp_op_ctx *first, struct sp_op_ctx *second,
                  void (*expand_op)(struct sp_op_ctx *c))
{
    struct sp_turns t = {.op = {first, second}, .expand = expand_op};
    uintptr_t at = (uintptr_t)&t;
    void *stack = malloc(STACK_BYTES);

    SP_NEED(stack && !getcontext(&t.at[1]), "no memory for two ops that overlap");
    t.at[1].uc_stack.ss_sp = stack;
    t.at[1].uc_stack.ss_size = STACK_BYTES;
    t.at[1].uc_link = &t.at[0];
    makecontext(&t.at[1], (void (*)(void))expand_second, 2, (unsigned)(at >> 16 >> 16),
                (unsigned)at);
    first->turns = second->turns = &t;
    second->second = true;
    expand_op(first);
    t.ended[0] = true;
    pass(&t, 0);
    first->turns = second->turns = NULL;
    free(stack);
}
