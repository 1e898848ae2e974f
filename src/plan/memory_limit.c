/* Checks that stages keep to a memory limit. */
#include "plan/memory.h"
#include "sp_error.h"
#include <math.h>
#include <stdlib.h>

int sp_memory_fullest(const struct sp_plan *plan, const struct sp_shape *sh,
                      enum sp_recompute recompute, int every, struct sp_memory *fullest, int *stage)
{
    int stages = plan->layout.stages, most = 0, err;
    struct sp_memory *m = calloc((size_t)stages, sizeof *m);

    if (!m)
        return sp_error(ENOMEM, "no memory for what %d stages hold", stages);
    err = sp_memory_of_plan(plan, sh, recompute, every, m);
    for (int s = 1; !err && s < stages; s++)
        if (sp_memory_sum(&m[s]) > sp_memory_sum(&m[most]))
            most = s;
    *fullest = m[most];
    if (stage)
        *stage = most;
    free(m);
    return err;
}

int sp_memory_check(const struct sp_plan *plan, const struct sp_shape *sh,
                    enum sp_recompute recompute, int every, uint64_t limit)
{
    const double MiB = 1024 * 1024;
    const int most = INT32_MAX / (sh->model.qk_norm ? sh->model.heads : 1); /* a head is a row */
    struct sp_memory worst;
    int stage, err;

    if ((int64_t)sh->batch * sh->seq > most)
        return sp_error(EINVAL, "%d sequences of %d tokens: a micro-batch has at most %d tokens",
                        sh->batch, sh->seq, most);
    if (!limit)
        return 0;
    err = sp_memory_fullest(plan, sh, recompute, every, &worst, &stage);
    if (err || (uint64_t)sp_memory_sum(&worst) <= limit)
        return err;
    return sp_error(
        EINVAL,
        "memory limit %.2f MiB: stage %d needs %.2f MiB (parameters and optimizer "
        "%.2f, activations %.2f, workspace %.2f); raise the limit%s",
        (double)limit / MiB, stage, ceil(100 * (double)sp_memory_sum(&worst) / MiB) / 100,
        (double)worst.states / MiB, (double)worst.activations / MiB, (double)worst.workspace / MiB,
        recompute == SP_RECOMPUTE_NONE ? " or try --recompute" : "");
}
