/* The weights that a run begins with, and in how many files it saves them. */
#include "train/trainer.h"
#include "model/weights_dir.h"
#include "sp_error.h"

int sp_train_open_weights(const struct sp_trainer *t, const char *model, struct sp_st_file *weights)
{
    int err;

    if (!t->args.resume && sp_model_is_preset(model))
        return 0;
    err = sp_weights_open(model, weights);
    if (err)
        return err;
    if (!weights->n_shards)
        return t->args.resume ? sp_error(ENOENT, "cannot resume: %s has no " SP_WEIGHTS_FILE, model)
                              : 0;
    return sp_weights_check(weights, &t->params);
}

void sp_train_announce_weights(const struct sp_trainer *t, const struct sp_st_file *weights)
{
    const char *model = t->args.layout.model;

    if (t->args.resume)
        return;
    if (weights->n_shards > 1)
        printf("initial weights: %s, %d shards\n", weights->path, weights->n_shards);
    else if (weights->n_shards)
        printf("initial weights: %s\n", weights->path);
    else
        printf("initial weights: random, seed %llu (%s %s)\n", (unsigned long long)t->args.seed,
               model,
               sp_model_is_preset(model) ? "is a preset" : "has a config.json and no weights");
    fflush(stdout);
}

int sp_train_check_shards(const struct sp_trainer *t)
{
    const struct sp_train_args *a = &t->args;
    int n = a->save ? sp_weights_shards(&t->params, a->shard_size) : 1;

    if (n <= SP_ST_MAX_SHARDS)
        return 0;
    return sp_error(EINVAL, "train: --shard-size %llu makes %d files, at most %d are possible",
                    (unsigned long long)a->shard_size, n, SP_ST_MAX_SHARDS);
}
