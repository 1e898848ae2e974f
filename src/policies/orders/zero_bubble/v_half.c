/*
 * V-Half: the layers go down the stages and up again in a V. A stage holds its first chunk longest
 * if it holds its second shortest, so the sum is equal on all stages. Micro-batches enter at a rate
 * that makes it half the memory of the first stage of 1F1B (Qi et al. 2024, "Pipeline Parallelism
 * with Controllable Memory", section 3; their code: zbv_greedy.py).
 *
 * p = 4, m = 8, f = b = w = 1;
 * digits are forwards of both chunks, letters backwards (a: micro-batch 0), ~ and ^ W:
 *
 *   stage 0  0123...0a1b^4^2ca~^5b3d~^6c4e~^7d5f~^.e6g~^7hf~g^~.h~
 *   stage 1  .0123.0.1a^b^24ac~^b35~d^c46~e^d57~f^e6~.g7^fhg~^~h~.
 *   stage 2  ..012031..a^2ab~^4b3c~^5c4d~^6d5e~^7e6f~^7gf~gh^~h^~.
 *   stage 3  ...001122..aa^3bb~3^4cc~4^5dd~5^6ee~6^7~7ffgg^~hh^~^~
 *
 * A chunk goes down in steps of two slots and up in steps of one: F.0 of stage i at 2i, F.1 at
 * 3p-2-i, B.1 at 3p-1+2i and B.0 at 6p-2-i, all but F three later where p is even so that no two
 * fall on one slot. Then it is squeezed: see policies/search/squeeze.h.
 *
 * No makespan was published in closed form; none is below m(f+b+w) + (p-1)f/2, as the last stage
 * begins p-1 forwards of a chunk late. A stage holds at most ceil((p+2)/2) micro-batches.
 */
#include "policies/families/map.h"
#include "policies/orders/zero_bubble/vpattern.h"

static void slots(int p, int i, int slot[SP_SLOTS])
{
    int wait = p % 2 ? 0 : 3;

    slot[SP_SLOT_F0] = 2 * i;
    slot[SP_SLOT_F1] = 3 * p - 2 - i;
    slot[SP_SLOT_B1] = 3 * p - 1 + wait + 2 * i;
    slot[SP_SLOT_B0] = 6 * p - 2 + wait - i;
}

static int emit_all(const struct sp_layout *lay, struct sp_program *programs, char *why, size_t n)
{
    static const struct sp_vpattern pattern = {.split = 1, .slots = slots};

    return sp_vpattern_emit(&pattern, lay, programs, why, n);
}

const struct sp_schedule_def sp_schedule_v_half = {
    .abi = SP_SCHEDULE_ABI,
    .name = "v-half",
    .summary = "in a V, W apart: half the memory of 1F1B, and less bubble",
    .source = "Qi et al. 2024, Pipeline Parallelism with Controllable Memory, V-Half",
    .family = "layerwise",
    .default_chunks = 2,
    .check = sp_vpattern_check,
    .layerwise.global_stage = sp_place_wave,
    .emit_all = emit_all,
    .makespan = sp_vpattern_bound,
    .makespan_source = "m(f+b+w) + (p-1)f/2, or one micro-batch alone: no order in a V is below",
    .makespan_is = SP_LOWER_BOUND,
};
