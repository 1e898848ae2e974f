/*
 * 1F1B-V: 1F1B in a V, with whole backwards. Each stage holds the same memory for its two chunks
 * together, about two thirds of the first stage of 1F1B (Qi et al. 2024,
 * "Pipeline Parallelism with Controllable Memory", appendix; their code: v1f1b.py).
 *
 * p = 4, m = 8, a backward twice as long as a forward;
 * digits are forwards of both chunks, letters backwards (a: micro-batch 0):
 *
 *   stage 0  01234..0aa1bb...2cc...3ddaa54eebb65ffcc76ggdd.7hhee..ff..gg..hh
 *   stage 1  .0123.0.1.aa.bb24..cc3aa.dd45bbee56ccff67ddgg7ee.hhff..gg..hh..
 *   stage 2  ..012031....aa2bb.aa34ccbb4dd5cc5ee6dd6ff7ee7gg.ff.hhgg..hh....
 *   stage 3  ...001122.....aaaa33bbbb44cccc55dddd66eeee77ffffgggg.hhhh......
 *
 * A forward goes down and up in steps of one slot. A backward takes two, and every third one waits
 * three more, so that no two ops fall on one slot. Then it is squeezed (see policies/search/squeeze.h), as
 * it is and moved up slot by slot (see policies/orders/zero_bubble/vpack.c), and the better is taken.
 *
 * No makespan was published in closed form; none is below m(f+b+w) + (p-1)(f+b+w)/2, as the last
 * stage begins p-1 forwards of a chunk late and ends p-1 backwards of one early. A stage holds at
 * most 2p/3 + 1 micro-batches.
 */
#include "policies/families/map.h"
#include "policies/orders/zero_bubble/vpattern.h"

/* Slot of the k-th backward that a micro-batch meets on its way, 0 <= k < 2p. */
static int backward(int p, int k)
{
    int phase = 2 - (p + 1) % 3;

    return 2 * p + (p % 3 ? 0 : 3) + 2 * k + 3 * ((k + phase) / 3);
}

static void slots(int p, int i, int slot[SP_SLOTS])
{
    slot[SP_SLOT_F0] = i;
    slot[SP_SLOT_F1] = 2 * p - 1 - i;
    slot[SP_SLOT_B1] = backward(p, i);
    slot[SP_SLOT_B0] = backward(p, 2 * p - 1 - i);
}

static int emit_all(const struct sp_layout *lay, struct sp_program *programs, char *why, size_t n)
{
    static const struct sp_vpattern pattern = {.split = 0, .slots = slots};

    return sp_vpattern_emit(&pattern, lay, programs, why, n);
}

const struct sp_schedule_def sp_schedule_1f1b_v = {
    .abi = SP_SCHEDULE_ABI,
    .name = "1f1b-v",
    .summary = "1F1B in a V: two thirds of its memory, the same on all stages",
    .source = "Qi et al. 2024, Pipeline Parallelism with Controllable Memory; v1f1b.py of its code",
    .family = "layerwise",
    .default_chunks = 2,
    .check = sp_vpattern_check,
    .layerwise.global_stage = sp_place_wave,
    .emit_all = emit_all,
    .makespan = sp_vpattern_bound_whole,
    .makespan_source = "(m + (p-1)/2)(f+b+w), or one micro-batch alone: no order is below",
    .makespan_is = SP_LOWER_BOUND,
};
