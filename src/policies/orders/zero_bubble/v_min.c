/*
 * V-Min: the layers go down the stages and up again in a V, and micro-batches enter so late that a
 * stage holds at most a third of the memory of the first stage of 1F1B, plus a constant (Qi et al.
 * 2024, "Pipeline Parallelism with Controllable Memory", section 3; their code: zbv_greedy.py).
 *
 * p = 4, m = 8, f = b = w = 1;
 * digits are forwards of both chunks, letters backwards (a: micro-batch 0), ~ and ^ W:
 *
 *   stage 0  01.....0a^2..1ba^~32cb^~43dc^~54ed^~65fe^~76gf^~.7hg^~...h~
 *   stage 1  .0....01.a^.12ab~^23bc~^34cd~^45de~^56ef~^67fg~^7.gh~^..h~.
 *   stage 2  ..0..0..1.a1^a2~b2^b3~c3^c4~d4^d5~e5^e6~f6^f7~g7^g~.h^.h~..
 *   stage 3  ...00....11aa^~22bb^~33cc^~44dd^~55ee^~66ff^~77gg^~..hh^~..
 *
 * A chunk goes down and up in steps of one slot: F.0 of stage i at i, F.1 at 2p-1-i, B.1 at 2p+i
 * and B.0 at 4p-1-i, B two later where 3 divides p so that no two fall on one slot. Then it is
 * squeezed: see policies/search/squeeze.h.
 *
 * No makespan was published in closed form; none is below m(f+b+w) + (p-1)f/2. A stage holds at
 * most ceil((p+4)/3) micro-batches.
 */
#include "policies/families/map.h"
#include "policies/orders/zero_bubble/vpattern.h"

static void slots(int p, int i, int slot[SP_SLOTS])
{
    int wait = p % 3 ? 0 : 2;

    slot[SP_SLOT_F0] = i;
    slot[SP_SLOT_F1] = 2 * p - 1 - i;
    slot[SP_SLOT_B1] = 2 * p + wait + i;
    slot[SP_SLOT_B0] = 4 * p - 1 + wait - i;
}

static int emit_all(const struct sp_layout *lay, struct sp_program *programs, char *why, size_t n)
{
    static const struct sp_vpattern pattern = {.split = 1, .slots = slots};

    return sp_vpattern_emit(&pattern, lay, programs, why, n);
}

const struct sp_schedule_def sp_schedule_v_min = {
    .abi = SP_SCHEDULE_ABI,
    .name = "v-min",
    .summary = "in a V, W apart: a third of the memory of 1F1B and a constant",
    .source = "Qi et al. 2024, Pipeline Parallelism with Controllable Memory, V-Min",
    .family = "layerwise",
    .default_chunks = 2,
    .check = sp_vpattern_check,
    .layerwise.global_stage = sp_place_wave,
    .emit_all = emit_all,
    .makespan = sp_vpattern_bound,
    .makespan_source = "m(f+b+w) + (p-1)f/2, or one micro-batch alone: no order in a V is below",
    .makespan_is = SP_LOWER_BOUND,
};
