#include "cli/train/train.h"
#include "cli/options.h"
#include "train/checkpoint/resume.h"
#include "sp_error.h"
#include "train/config.h"
#include "train/groups.h"
#include "train/layout_auto.h"
#include "transport/transport.h"
#include <string.h>

static const char summary[] = "Trains a model, pipelined over stages.";

/* Takes over the words, which may make use of what a resumed run was told. */
static int read_words(int argc, char **argv, struct sp_train_config *cfg)
{
    struct sp_option options[SP_TRAIN_OPTIONS];

    sp_train_options(cfg, options);
    return sp_options_read(options, summary, argc, argv, NULL);
}

static int parse_options(int argc, char **argv, struct sp_train_config *cfg)
{
    struct sp_option options[SP_TRAIN_OPTIONS];

    sp_train_options(cfg, options);
    sp_layout_auto_watch(options, &cfg->layout.kept);
    return sp_options_parse(options, summary, argc, argv);
}

static int world_size(void)
{
    struct sp_world world;

    return sp_transport_join(NULL, NULL, &world) ? 1 : world.size;
}

/* Processes of a group: none were asked for where there is one. */
static int given_or(int given, int stored)
{
    return given > 1 ? given : stored;
}

/* A step of as many sequences, of which a layout is chosen anew. */
static void forget_layout(struct sp_train_config *cfg, const struct sp_train_config *none)
{
    struct sp_layout_args *l = &cfg->layout;
    const struct sp_layout_args *n = &none->layout;

    l->micro_batches *= l->micro_batch_size * cfg->groups.data_parallel;
    l->micro_batch_size = n->micro_batch_size;
    l->stages = n->stages;
    l->stages_set = false;
    l->recompute = n->recompute;
    l->offload = n->offload;
    l->offload_keys = n->offload_keys;
    l->offload_optimizer = n->offload_optimizer;
    l->optimizer_device = n->optimizer_device;
    l->offload_peers = n->offload_peers;
    l->vocabulary_parallel = n->vocabulary_parallel;
    cfg->groups = none->groups;
}

/* Drops from what a run was told that which says how to do something that is told otherwise now: by
 * other data, another schedule, or as many processes as were started. */
static void forget_replaced(struct sp_train_config *cfg, const struct sp_train_config *given,
                            const struct sp_train_config *none)
{
    struct sp_layout_args *l = &cfg->layout;
    const struct sp_group_args wanted = {
        .data_parallel = given_or(given->groups.data_parallel, cfg->groups.data_parallel),
        .context_parallel = given_or(given->groups.context_parallel, cfg->groups.context_parallel),
        .tensor_parallel = given_or(given->groups.tensor_parallel, cfg->groups.tensor_parallel)};
    bool schedule = given->layout.schedule != none->layout.schedule &&
                    strcmp(given->layout.schedule, l->schedule) != 0;

    if (schedule && sp_layout_is_auto(&given->layout))
        forget_layout(cfg, none);
    if (given->layout.model && cfg->layout.model &&
        strcmp(given->layout.model, cfg->layout.model) != 0)
        sp_warn("--model %s has no effect: --resume %s goes on with the model of its run",
                given->layout.model, given->resume);
    if (cfg->eval && !given->eval &&
        (given->data     ? cfg->tokens
         : given->tokens ? cfg->data
                         : NULL)) {
        sp_warn("--eval %s is left out: it has %s, and this run has not", cfg->eval,
                given->data ? "tokens" : "text");
        cfg->eval = none->eval;
    }
    if (given->data || given->tokens)
        cfg->data = cfg->tokens = NULL;
    if (!given->dry_run && world_size() % sp_groups_pipelines(&wanted))
        cfg->groups = none->groups;
    if (schedule) {
        l->chunks = none->layout.chunks;
        l->slices = none->layout.slices;
        l->partition_slices = none->layout.partition_slices;
    }
    if (schedule || (given->layout.stages_set && given->layout.stages != l->stages) ||
        given->layout.chunks != none->layout.chunks)
        cfg->partition = none->partition;
    sp_train_drop_unused(cfg); /* as how it saved: what it saves now, if it does, it is told anew */
}

/* A run that goes on is told what it was told before; what it is told now, *cfg, is still to be
 * told then. */
static int continue_run(struct sp_train_config *cfg)
{
    struct sp_train_config given = *cfg, none;
    int err = sp_train_config_init(&none);

    *cfg = none;
    cfg->resume = given.resume;
    /* on data of its own it is another run, which begins with the weights and moments of this
     * one */
    err = err ? err : sp_train_restore(cfg, !given.data && !given.tokens);
    if (err)
        return err;
    forget_replaced(cfg, &given, &none);
    return 0;
}

int sp_train_parse(int argc, char **argv, struct sp_train_config *cfg)
{
    int err = sp_train_config_init(cfg);

    err = err ? err : read_words(argc, argv, cfg);
    if (!err && cfg->resume)
        err = continue_run(cfg);
    err = err ? err : parse_options(argc, argv, cfg);
    if (!err && cfg->resume)
        sp_train_drop_unused(cfg);
    return err;
}
