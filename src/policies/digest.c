#include "policies/plan.h"

/* FNV-1a over the bytes of a number. */
static uint64_t mix(uint64_t hash, int64_t number)
{
    for (int i = 0; i < 8; i++)
        hash = (hash ^ ((uint64_t)number >> (8 * i) & 0xff)) * 0x100000001b3;
    return hash;
}

uint64_t sp_plan_digest(const struct sp_plan *plan)
{
    const struct sp_layout *lay = &plan->layout;
    uint64_t hash = 0xcbf29ce484222325;

    for (const char *at = plan->options; *at; at++) /* some change messages, not the order */
        hash = mix(hash, *at);
    for (int i = 0; i < lay->micro_batches; i++)
        hash = mix(hash, sp_pipe_of_mb(lay, i));
    for (int k = 0; plan->first_token && k <= lay->slices; k++)
        hash = mix(hash, plan->first_token[k]);
    for (int l = 0; plan->recompute && l < lay->layers; l++)
        hash = mix(hash, plan->recompute[l]);
    for (int s = 0; s < lay->stages; s++) {
        const struct sp_program *prog = &plan->programs[s];

        for (int c = 0; c < lay->chunks; c++)
            hash = mix(hash, sp_global_stage(lay, s, c));
        hash = mix(hash, prog->n);
        for (int k = 0; k < prog->n; k++) {
            const struct sp_op *op = &prog->ops[k];

            hash =
                mix(hash, op->pass | op->part << 8 | op->overlap << 16 | (int64_t)op->slice << 24);
            hash = mix(hash, (int64_t)op->mb << 32 | (unsigned)op->chunk);
        }
    }
    return hash;
}
