/* --offload and --memory-limit of `show --model`: plan the offloading before the plan is
 * simulated. */
#include "cli/print.h"
#include "cli/show/show.h"
#include "plan/offload/offload.h"
#include "sp_figure.h"
#include "sp_error.h"
#include "train/options.h"
#include <string.h>

/* Turns the options into a request; its mode is SP_OFFLOAD_NONE if nothing leaves memory. */
static int make_request(const struct sp_show *show, const struct sp_layout_args *l,
                        const struct sp_plan *plan, struct sp_offload_request *want)
{
    enum sp_offload_mode mode;
    struct sp_op_terms terms = {.machine = show->machine,
                                .devices = 1,
                                .recompute = show->recompute.mode,
                                .every = show->recompute.every};

    if (sp_parse_offload("show", l, &mode))
        return -EINVAL;
    *want = (struct sp_offload_request){.mode = mode};
    if (mode == SP_OFFLOAD_NONE)
        return 0;
    if (plan->recompute)
        return sp_error(EINVAL,
                        "show: --offload %s: %s recomputes as much as memory wants; leave "
                        "out one of the two",
                        l->offload, plan->def->name);
    *want = sp_offload_request(&terms, show->shape, mode, (int64_t)l->memory_limit);
    want->keys = (enum sp_offload_keys)l->offload_keys;
    want->peers = l->offload_peers;
    if (want->rates.write <= 0 || want->rates.read <= 0)
        return sp_error(EINVAL, "show: --offload %s: %s has no disk for what leaves memory",
                        l->offload, show->machine->name);
    return 0;
}

int sp_show_plan_memory(struct sp_show *show, const struct sp_layout_args *l, struct sp_plan *plan,
                        struct sp_offload *offload)
{
    struct sp_offload_request want;
    int err = make_request(show, l, plan, &want);

    if (err)
        return err;
    if (want.mode == SP_OFFLOAD_NONE)
        return l->memory_limit ? sp_memory_check(plan, show->shape, show->recompute.mode,
                                                 show->recompute.every, l->memory_limit)
                               : 0;
    err = sp_offload_create(plan, show->shape, &want, offload);
    if (err)
        return err;
    show->offload = offload;
    return sp_offload_apply(offload, show->shape, plan)
               ? sp_error(ENOMEM, "show: no memory for what leaves %d stages", plan->layout.stages)
               : 0;
}

int sp_show_memory(const struct sp_show *show, struct sp_memory *m)
{
    if (!show->offload)
        return sp_memory_of_plan(show->plan, show->shape, show->recompute.mode,
                                 show->recompute.every, m);
    memcpy(m, show->offload->memory, (size_t)show->plan->layout.stages * sizeof *m);
    return 0;
}

static struct sp_tier_bytes tiers_of(const struct sp_show *show, int stage)
{
    return sp_offload_tiers(show->plan, show->shape, show->recompute.mode, show->recompute.every,
                            stage);
}

json_t *sp_show_tiers_json(const struct sp_show *show)
{
    json_t *stages = json_array();

    for (int s = 0; s < show->plan->layout.stages; s++)
        json_array_append_new(stages, sp_tiers_json(tiers_of(show, s)));
    return stages;
}

void sp_show_parked_text(const struct sp_show *show, FILE *out)
{
    fprintf(out, "parked on other stages, MiB a stage (of a step):");
    for (int s = 0; s < show->plan->layout.stages; s++)
        fprintf(out, " %.4g", (double)tiers_of(show, s).parked / (1024 * 1024));
    putc('\n', out);
}

json_t *sp_show_offload_json(const struct sp_show *show)
{
    json_t *stages = json_array();

    for (int s = 0; s < show->offload->stages; s++)
        json_array_append_new(
            stages,
            json_pack("{s:I,s:f}", "evicted_bytes",
                      (json_int_t)sp_eviction_plan_bytes(&show->offload->evictions[s]),
                      "stalled_ms", sp_figure(show->prediction->when.stalled[s], SP_FIGURE_ALL)));
    return stages;
}

void sp_show_offload_text(const struct sp_show *show, FILE *out)
{
    fprintf(out, "evicted, MiB a stage (of a step), and what the stage waits for it:");
    for (int s = 0; s < show->offload->stages; s++)
        fprintf(out, " %.4g (%.3g ms)",
                (double)sp_eviction_plan_bytes(&show->offload->evictions[s]) / (1024 * 1024),
                sp_figure(show->prediction->when.stalled[s], SP_FIGURE_ALL));
    putc('\n', out);
}
