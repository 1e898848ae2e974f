/*
 * Schedule adapipe: chooses how many layers each stage takes and what each layer recomputes, for
 * --memory-limit. As with --partition balanced, estimated costs serve until the model was measured.
 */
#include "train/start/phases.h"
#include "plan/adapipe.h"
#include "plan/memory.h"
#include "sp_error.h"
#include "transport/transport.h"
#include <stdlib.h>
#include <string.h>

bool sp_train_is_adapipe(const struct sp_trainer *t)
{
    return !strcmp(t->plan.def->name, "adapipe");
}

/* Fills row with counts[stages], then the layers' modes, as ints that can be sent to other
 * ranks. */
static int choose(struct sp_trainer *t, const struct sp_layer_costs *costs, int *row,
                  struct sp_adapipe_figures *figures)
{
    const struct sp_layout *lay = &t->plan.layout;
    struct sp_adapipe in = {.stages = lay->stages,
                            .layers = t->model.layers,
                            .micro_batches = lay->micro_batches,
                            .costs = *costs};
    unsigned char *mode = calloc((size_t)t->model.layers, 1);
    int err;

    if (!mode)
        return sp_error(ENOMEM, "no memory for the modes of %d layers", t->model.layers);
    err = sp_adapipe_memory_of(&t->shape, lay->stages, (int64_t)t->cfg.layout.memory_limit,
                               &in.memory);
    err = err ? err : sp_adapipe_plan(&in, &t->plan, &t->shape, row, mode, figures);
    for (int l = 0; !err && l < t->model.layers; l++)
        row[lay->stages + l] = mode[l];
    free(mode);
    return err;
}

static int apply(struct sp_trainer *t, const int *row)
{
    int layers = t->model.layers, err = sp_plan_partition(&t->plan, row);

    if (!t->plan.recompute)
        t->plan.recompute = calloc((size_t)layers, 1);
    if (!t->plan.recompute)
        return sp_error(ENOMEM, "no memory for the modes of %d layers", layers);
    for (int l = 0; l < layers; l++)
        t->plan.recompute[l] = (unsigned char)row[t->plan.layout.stages + l];
    return err;
}

static int *new_row(const struct sp_trainer *t)
{
    size_t n = (size_t)t->plan.layout.stages + (size_t)t->model.layers;
    int *row = calloc(n, sizeof *row);

    if (!row)
        sp_error(ENOMEM, "no memory for the layers of %d stages", t->plan.layout.stages);
    return row;
}

int sp_train_adapipe_early(struct sp_trainer *t)
{
    struct sp_layer_costs costs;
    int *row, err;

    if (strcmp(t->cfg.partition, "even"))
        return sp_error(EINVAL, "train: schedule adapipe deals the layers out itself; leave "
                                "--partition out");
    if (strcmp(t->cfg.layout.recompute, "none"))
        return sp_error(EINVAL, "train: schedule adapipe chooses what is recomputed; leave "
                                "--recompute out and give --memory-limit");
    row = new_row(t);
    if (!row)
        return -ENOMEM;
    sp_layer_costs_estimate(&t->machine, &t->shape, &costs);
    err = sp_train_check_profile(t);
    err = err ? err : choose(t, &costs, row, NULL);
    err = err ? err : apply(t, row);
    free(row);
    return err;
}

/* Prints a letter for each layer: none, selective, no attention again, full. */
static void say(const struct sp_trainer *t, const int *row, const struct sp_adapipe_figures *f)
{
    int stages = t->plan.layout.stages, layers = t->model.layers, l = 0;
    char *text = malloc((size_t)(stages + layers) + 1), *at = text;

    if (!text)
        return;
    for (int s = 0; s < stages; s++) {
        *at++ = ' ';
        for (int k = 0; k < row[s]; k++)
            *at++ = sp_recompute_letter((enum sp_recompute)row[stages + l++]);
    }
    *at = '\0';
    sp_train_say(t,
                 "adapipe, of measured times: layers%s (- keeps all, s recomputes norms and "
                 "activations, a all but attention, f everything); expected step %.2f ms, at most "
                 "%.2f MiB a stage",
                 text, f->makespan_us / 1e3, (double)f->peak_bytes / 1048576);
    free(text);
}

int sp_train_adapipe_measured(struct sp_trainer *t)
{
    struct sp_adapipe_figures figures;
    struct sp_layer_costs costs;
    int *row = new_row(t), err = row ? 0 : -ENOMEM;

    if (!err && t->world.rank == 0) {
        err = sp_train_measure(t, t->cfg.layout.micro_batch_size, t->cfg.layout.seq, &costs);
        err = err ? err : choose(t, &costs, row, &figures);
        if (!err)
            say(t, row, &figures);
    }
    if (!err) {
        size_t n = (size_t)t->plan.layout.stages + (size_t)t->model.layers;

        sp_transport_share(row, n * sizeof *row);
        err = apply(t, row);
    }
    free(row);
    return err;
}
