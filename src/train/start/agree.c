/*
 * Processes with different settings, or that read different files, would train on without a word,
 * or wait for each other for ever. So they compare both before they do anything else.
 */
#include "train/start/agree.h"
#include "config.h"
#include "model/files/file_digest.h"
#include "sp_error.h"
#include "train/config.h"
#include "train/settings.h"
#include "transport/transport.h"
#include <stdlib.h>
#include <string.h>

bool sp_train_disagree(int rank, int err)
{
    int first;

    if (!sp_transport_agree(err, &first))
        return false;
    sp_error_release(first == rank);
    return true;
}

/* Compares the text with rank 0's, and frees `mine`. 0, or -EINVAL on ranks that differ. */
static int compare(char *mine)
{
    char *root = sp_transport_root_text(mine ? mine : "");
    int err = !mine || !root ? sp_error(ENOMEM, "out of memory for settings")
                             : sp_settings_same(mine, root);

    free(root);
    free(mine);
    return err;
}

int sp_train_agree_settings(struct sp_trainer *t)
{
    char *mine = sp_train_settings(&t->cfg, false);
    const char *traced = getenv("STARPU_FXT_TRACE");

    mine = sp_settings_add(mine, "the program", "%s", PACKAGE_STRING);
    /* If only some processes were traced, those would wait for the others in StarPU's start. */
    mine = sp_settings_add(mine, "STARPU_FXT_TRACE", "%d", traced && atoi(traced) > 0);
    return compare(mine);
}

static char *add_model(char *text, const struct sp_model *m)
{
    return sp_settings_add(
        text, "--model",
        "%s of %d layers, hidden size %d, %d heads of %d (%d of keys), MLP width %d, "
        "%d tokens, %d positions, %s head, epsilon %g, theta %g, biases %d%d%d, rope type %d of "
        "%g, "
        "%g, %g, %d, window %d, activation %d",
        sp_model_type(m), m->layers, m->hidden, m->heads, m->head_dim, m->kv_heads, m->mlp,
        m->vocab, m->positions, m->tied ? "tied" : "own", m->norm_eps, m->rope.theta, m->qkv_bias,
        m->out_bias, m->mlp_bias, (int)m->rope.type, m->rope.factor, m->rope.low, m->rope.high,
        m->rope.original, m->window, (int)sp_model_act(m));
}

static char *add_data(char *text, const char *name, const struct sp_data *data)
{
    uint64_t bytes, digest;

    if (!data->files || sp_data_digest(data, &bytes, &digest))
        return text;
    return sp_settings_add(text, name, "%llu bytes in %d files (digest %016llx)",
                           (unsigned long long)bytes, data->files, (unsigned long long)digest);
}

static char *add_file(char *text, const char *name, const char *path, int fd)
{
    uint64_t bytes, digest;

    if (sp_file_digest(fd, path, &bytes, &digest))
        return text;
    return sp_settings_add(text, name, "%llu bytes (digest %016llx)", (unsigned long long)bytes,
                           (unsigned long long)digest);
}

int sp_train_agree_inputs(struct sp_trainer *t)
{
    const struct sp_st_file *weights = &t->weights;
    const struct sp_train_config *a = &t->cfg;
    char *mine = add_model(NULL, &t->model);

    mine = add_data(mine, a->tokens ? "--tokens" : "--data", &t->data);
    mine = add_data(mine, "--eval", &t->eval_data);
    if (a->resume) {
        mine = sp_settings_add(mine, "the step that --resume goes on from", "%d", t->first_step);
        mine = sp_settings_add(mine, "the sample that --resume goes on from", "%llu",
                               (unsigned long long)sp_train_samples(t, t->first_step));
    }
    mine = sp_settings_add(mine, "what --logit-rows comes to (with a GPU, without)", "%d",
                           a->logit_rows);
    mine =
        sp_settings_add(mine, "the number of files with initial weights", "%d", weights->n_shards);
    for (int i = 0; i < weights->n_shards; i++) {
        const char *name = strrchr(weights->shards[i].path, '/');

        mine = add_file(mine, name ? name + 1 : weights->shards[i].path, weights->shards[i].path,
                        fileno(weights->shards[i].f));
    }
    return compare(mine);
}
