#include "train/start/phases.h"
#include "plan/recompute.h"
#include "policies/lowering/parking.h"
#include "sp_error.h"
#include "train/options.h"
#include "train/start/machine.h"
#include <stdlib.h>
#include <string.h>

/* Refuses settings that do not go with --recompute auto, and says why. */
static int check(const struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;

    if (t->plan.family->facts.parts)
        return sp_error(
            EINVAL,
            "train: --recompute auto: %s runs parts of layers, which do not choose one by one; "
            "give --recompute",
            t->plan.def->name);
    if (sp_train_is_adapipe(t))
        return sp_error(EINVAL, "train: schedule adapipe chooses what is recomputed; leave "
                                "--recompute out and give --memory-limit");
    if (!strcmp(a->partition, "balanced"))
        return sp_error(
            EINVAL,
            "train: --recompute auto: layers that are dealt out by measured times are not known "
            "early enough; give --partition a list");
    if (!a->layout.memory_limit)
        return sp_error(
            EINVAL, "train: --recompute auto chooses for a limit of memory: give --memory-limit");
    return 0;
}

/* Prints a letter for each layer: - keeps all; s, a, f compute again like --recompute selective,
 * no-attention, full. */
static void say(const struct sp_trainer *t, const struct sp_recompute_chosen *c)
{
    int layers = t->model.layers;
    char *text = malloc((size_t)layers + 1), predicted[64] = "";

    if (!text)
        return;
    for (int l = 0; l < layers; l++)
        text[l] =
            sp_recompute_letter(c->layer ? (enum sp_recompute)c->layer[l] : SP_RECOMPUTE_NONE);
    text[layers] = '\0';
    if (t->cfg.dry_run || !sp_train_machine_is_assumed(t))
        snprintf(predicted, sizeof predicted, "predicted step %.2f ms, ", c->step_ms);
    sp_train_say(
        t,
        "recompute auto: layers %s (- keeps all, s computes norms and activations again, a all but "
        "attention, f everything)%s; %sthe shortest of %d ways that fit",
        text, c->leaves ? ", and tensors leave memory" : "", predicted, c->tried);
    free(text);
}

int sp_train_choose_recompute(struct sp_trainer *t)
{
    int stages = t->plan.layout.stages, *worker, err;
    struct sp_recompute_wish wish = {.plan = &t->plan,
                                     .shape = &t->shape,
                                     .offload = t->offloads,
                                     .keys = (enum sp_offload_keys)t->cfg.layout.offload_keys,
                                     .peers = t->cfg.layout.offload_peers && sp_train_offloads(t),
                                     .limit = (int64_t)t->cfg.layout.memory_limit,
                                     .machine = &t->machine,
                                     .devices = 1};
    struct sp_recompute_chosen chosen;

    if (!sp_recompute_is_auto(t->cfg.layout.recompute))
        return 0;
    err = check(t);
    if (err)
        return err;
    worker = sp_train_stage_workers(t);
    if (worker && sp_train_predicts_workers(t)) {
        wish.worker = worker;
        wish.process = worker + stages;
    }
    err = worker ? sp_recompute_choose(&wish, &chosen) : -ENOMEM;
    free(worker);
    if (err == -ENOMEM)
        return sp_error(ENOMEM, "no memory to choose what %d stages compute again", stages);
    t->recompute = chosen.mode;
    if (t->plan.parking)
        t->plan.parking->recompute = chosen.mode;
    if (err)
        return 0; /* the check of the limit says what is needed at least */
    t->plan.recompute = chosen.layer;
    say(t, &chosen);
    return 0;
}
