/* Turns options into a plan as `starpipe train` does, without anything that needs a measurement. */
#include "parity/run.h"
#include "plan/memory.h"
#include "cli/train/train.h"
#include "train/options.h"
#include "plan/partition.h"
#include "plan/slices.h"
#include "policies/plan_create.h"
#include "transport/transport.h"
#include <stdlib.h>
#include <string.h>

void must(int err, const char *what)
{
    if (!err)
        return;
    fprintf(stderr, "parity: %s: %s\n", what, strerror(err < 0 ? -err : err));
    sp_transport_abort(1);
}

/* Options of all runs unless they override them. Epsilon is large: if a gradient is zero but for
 * rounding (key biases), AdamW's usual epsilon turns the rounding into steps of full size. */
static const char common[] =
    "train --data text --seq 24 --micro-batches 8 --steps 2 --eps 1e-3 --threads 1 ";

static void parse(struct setup *s, const char *options)
{
    char *save = NULL;
    int n = 0;

    must(snprintf(s->text, sizeof s->text, "%s%s", common, options) >= (int)sizeof s->text,
         options);
    for (char *w = strtok_r(s->text, " ", &save); w; w = strtok_r(NULL, " ", &save))
        s->words[n++] = w;
    must(sp_train_parse(n, s->words, &s->args), options);
    must(s->args.steps > MOST_STEPS || s->args.layout.stages > MOST_STAGES, options);
}

static void partition(struct setup *s)
{
    int globals = sp_globals(&s->plan.layout), counts[64];

    if (!strcmp(s->args.partition, "even"))
        return;
    must(globals > 64, "partition");
    must(sp_partition_parse(s->args.partition, s->model.layers, globals, counts), "partition");
    must(sp_plan_partition(&s->plan, counts), "partition");
}

void setup_create(struct setup *s, const char *options, int processes)
{
    struct sp_train_config *a = &s->args;
    struct sp_layout_args *l = &a->layout;
    struct sp_recompute_option recompute;
    struct sp_layout layout;

    *s = (struct setup){0};
    parse(s, options);
    must(sp_model_load(l->model, &s->model), options);
    must(sp_params_create(&s->model, &s->params), options);
    layout = sp_layout_of_args(l, s->model.layers);
    layout.lists_layers = sp_partition_is_list(a->partition);
    must(sp_plan_create(l->schedule, &layout, &s->plan), options);
    if (!l->recompute)
        l->recompute = s->plan.def->recompute ? s->plan.def->recompute : "none";
    must(sp_parse_recompute("train", l->recompute, &recompute), options);
    must(sp_parse_offload("train", l, &s->offloads), options);
    s->recompute = recompute.mode;
    s->every = recompute.every;
    sp_shape_init(&s->shape, &s->model, l->micro_batch_size, l->seq, l->micro_batches);
    sp_shape_cut(&s->shape, a->mlp_chunk, a->logit_rows);
    s->shape.dtype = (enum sp_dtype)a->dtype;
    if (s->plan.layout.slices > 1)
        must(sp_plan_cut(&s->plan, &s->shape, l->partition_slices, NULL), options);
    s->plan.processes = processes;
    partition(s);
    s->plan.states_twice = a->post_validation && a->clip > 0;
}

void setup_destroy(struct setup *s)
{
    sp_plan_destroy(&s->plan);
    sp_params_destroy(&s->params);
}
