/*
 * Orders of the families in which weights travel that no built-in schedule has, so that the engine is
 * seen to follow the program and not the schedule it was made for. None of them is a good one.
 */
#include <starpipe/schedule.h>

/* Sharded: worker 0 runs all its forwards first, the others each micro-batch by itself, so that their
 * gradients come to the owners at other times than usual. */
static void emit_uneven(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    int P = lay->stages, m = lay->micro_batches;

    for (int i = stage; i < m; i += P) {
        for (int c = 0; c < lay->chunks; c++)
            sp_program_add(prog, SP_F, i, c);
        for (int c = lay->chunks - 1; stage > 0 && c >= 0; c--)
            sp_program_add(prog, SP_B, i, c);
    }
    for (int i = stage; stage == 0 && i < m; i += P)
        for (int c = lay->chunks - 1; c >= 0; c--)
            sp_program_add(prog, SP_B, i, c);
}

static const struct sp_schedule_def uneven = {
    .abi = SP_SCHEDULE_ABI,
    .name = "uneven",
    .summary = "sharded, worker 0 all forwards first",
    .source = "tests/plugins/travel.c",
    .family = "sharded",
    .default_chunks = 1,
    .emit = emit_uneven,
};

/* The passes of rounds one after the other, a chunk a turn: 'F', 'B', 'W' and the round. */
static int passes(const struct sp_layout *lay, int k, const char (*order)[2], int n,
                  struct sp_op ops[SP_TURN_OPS])
{
    int P = lay->stages, at = k % P;
    struct sp_op op = {.chunk = at};

    if (k / P >= n)
        return -1;
    op.mb = order[k / P][1] - '0';
    op.pass = order[k / P][0] == 'F' ? SP_F : order[k / P][0] == 'B' ? SP_B : SP_W;
    if (op.pass == SP_B)
        op.chunk = P - 1 - at;
    ops[0] = op;
    ops[1] = (struct sp_op){.pass = SP_F, .part = SP_HEAD, .mb = op.mb};
    return op.pass == SP_F && at == P - 1 ? 2 : 1;
}

/* The last round first: the gradient of a chunk is whole with round 0. */
static int turn_reversed(const struct sp_layout *lay, int k, struct sp_op ops[SP_TURN_OPS])
{
    static const char order[][2] = {{'F', '1'}, {'B', '1'}, {'W', '1'},
                                    {'F', '0'}, {'B', '0'}, {'W', '0'}};

    return passes(lay, k, order, 6, ops);
}

/* Two micro-batches of a worker between B and W. */
static int turn_waiting(const struct sp_layout *lay, int k, struct sp_op ops[SP_TURN_OPS])
{
    static const char order[][2] = {{'F', '0'}, {'F', '1'}, {'B', '0'},
                                    {'B', '1'}, {'W', '0'}, {'W', '1'}};

    return passes(lay, k, order, 6, ops);
}

/* Whole backwards. */
static int turn_whole(const struct sp_layout *lay, int k, struct sp_op ops[SP_TURN_OPS])
{
    static const char order[][2] = {{'F', '0'}, {'F', '1'}, {'B', '1'}, {'B', '0'}};

    return passes(lay, k, order, 4, ops);
}

static int owner(const struct sp_layout *lay, int chunk)
{
    return (chunk + 2) % lay->stages;
}

#define LINE(variable, text, function)                                                             \
    static const struct sp_schedule_def variable = {                                               \
        .abi = SP_SCHEDULE_ABI,                                                                    \
        .name = text,                                                                              \
        .summary = "down the line, two rounds",                                                    \
        .source = "tests/plugins/travel.c",                                                        \
        .family = "weight-ring",                                                                   \
        .default_chunks = 1,                                                                       \
        .weight_ring = {.turn = function, .layout = SP_RING_LINE, .owner = owner}}

LINE(reversed, "reversed", turn_reversed);
LINE(waiting, "waiting", turn_waiting);
LINE(whole, "whole", turn_whole);

SP_PLUGIN(&uneven, &reversed, &waiting, &whole);
