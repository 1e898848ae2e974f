/* AdaPipe inside a stage: the bytes it holds, and the cheapest mix of recompute modes that fits. */
#include "policies/families/activations.h"
#include "plan/adapipe.h"
#include "plan/memory.h"
#include "policies/plan_create.h"
#include "sp_error.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MODES SP_RECOMPUTE_MODES

int sp_adapipe_memory_of(const struct sp_shape *sh, int stages, int64_t limit,
                         struct sp_adapipe_memory *mem)
{
    const struct sp_model *m = &sh->model;
    struct sp_layout lay = {.stages = stages,
                            .micro_batches = 2 * stages,
                            .chunks = 1,
                            .slices = 1,
                            .layers = m->layers,
                            .options = ""};
    struct sp_memory first[MODES], middle = {0}, last, *all;
    int first_layers, last_layers, at, ret;
    int64_t tokens;
    struct sp_plan plan;

    ret = sp_plan_create("1f1b", &lay, &plan);
    if (ret)
        return ret;
    plan.processes = stages;
    all = calloc((size_t)stages, sizeof *all);
    SP_NEED(all, "no memory for what %d stages hold", stages);
    sp_chunk_layers(&plan, m->layers, 0, 0, &at, &first_layers);
    sp_chunk_layers(&plan, m->layers, stages - 1, 0, &at, &last_layers);
    for (int j = MODES - 1; !ret && j >= 0; j--) {
        ret = sp_memory_of_plan(&plan, sh, (enum sp_recompute)j, 1, all);
        first[j] = all[0];
    }
    last = all[stages - 1];
    if (stages > 2)
        middle = all[1];
    free(all);
    sp_plan_destroy(&plan);
    if (ret)
        return ret;

    *mem = (struct sp_adapipe_memory){.limit_bytes = limit,
                                      .stage_bytes = middle.workspace,
                                      .tokens_bytes = sp_memory_tokens(sh)};
    for (int i = 0; i < SP_LAYER_BLOCKS; i++)
        mem->layer_bytes += 16 * (int64_t)sp_block_elements(&sh->held, sp_layer_block(i));
    tokens = lay.micro_batches * mem->tokens_bytes;
    mem->first_bytes = first[0].states + first[0].workspace - first_layers * mem->layer_bytes -
                       middle.workspace - (stages > 1 ? 1 : 2) * tokens;
    if (stages > 1)
        mem->last_bytes = last.states + last.workspace - last_layers * mem->layer_bytes -
                          middle.workspace - tokens;
    for (int j = 0; j < MODES; j++)
        mem->stash_bytes[j] = sp_stash_bytes(sh, (enum sp_recompute)j, 1, 1, false);
    mem->head_stash_bytes = sp_stash_bytes(sh, SP_RECOMPUTE_NONE, 1, 0, true);
    for (int set = 1; set < 1 << MODES; set++) {
        int64_t part[MODES] = {0};

        for (int j = 0; j < MODES; j++)
            part[j] = set & 1 << j ? first[j].workspace - first[0].workspace : 0;
        /* full and no-attention recompute use the same buffers */
        mem->workspace_bytes[set] = part[SP_RECOMPUTE_SELECTIVE] +
                                    (part[SP_RECOMPUTE_FULL] > part[SP_RECOMPUTE_NO_ATTENTION]
                                         ? part[SP_RECOMPUTE_FULL]
                                         : part[SP_RECOMPUTE_NO_ATTENTION]);
    }
    return 0;
}

/* Sets *bytes to those of the fullest stage of a plan with such layers and modes. 0 or -errno. */
static int count_bytes(const struct sp_plan *plan, const struct sp_shape *sh, const int *counts,
                       unsigned char *mode, int64_t *bytes)
{
    int stages = plan->layout.stages, err;
    int *first = calloc((size_t)stages + 1, sizeof *first);
    struct sp_plan tried = *plan;
    struct sp_memory most;

    SP_NEED(first, "no memory for the layers of %d stages", stages);
    for (int s = 0; s < stages; s++)
        first[s + 1] = first[s] + counts[s];
    tried.first_layer = first;
    tried.recompute = mode;
    tried.order = NULL;
    err = sp_memory_fullest(&tried, sh, SP_RECOMPUTE_NONE, 1, &most, NULL);
    free(first);
    *bytes = sp_memory_sum(&most);
    return err;
}

int sp_adapipe_plan(struct sp_adapipe *in, const struct sp_plan *plan, const struct sp_shape *sh,
                    int *counts, unsigned char *mode, struct sp_adapipe_figures *figures)
{
    int64_t limit = in->memory.limit_bytes, bytes;
    struct sp_adapipe_figures fig;

    for (;;) {
        int err = sp_adapipe_choose(in, counts, mode, &fig);

        err = err ? err : count_bytes(plan, sh, counts, mode, &bytes);
        if (err)
            return err;
        if (!limit || bytes <= limit)
            break;
        in->memory.stage_bytes += bytes - limit;
    }
    fig.peak_bytes = bytes;
    if (figures)
        *figures = fig;
    return 0;
}

static int64_t in_flight(const struct sp_adapipe *in, int stage)
{
    return in->stages - stage < in->micro_batches ? in->stages - stage : in->micro_batches;
}

/* Bytes that do not depend on the modes. */
static int64_t fixed_bytes(const struct sp_adapipe *in, int stage, int count)
{
    const struct sp_adapipe_memory *mem = &in->memory;
    int64_t bytes = mem->stage_bytes + count * mem->layer_bytes;

    int64_t tokens = in->micro_batches * mem->tokens_bytes;

    if (stage == 0)
        bytes += mem->first_bytes + tokens;
    if (stage == in->stages - 1)
        bytes += mem->last_bytes + tokens + in_flight(in, stage) * mem->head_stash_bytes;
    return bytes;
}

int64_t sp_adapipe_least_bytes(const struct sp_adapipe *in, int stage, int count)
{
    int64_t least = INT64_MAX;

    /* One mode for all layers suffices: the mode of a mix that keeps least needs no more room. */
    for (int j = 0; j < MODES; j++) {
        int64_t bytes = in_flight(in, stage) * count * in->memory.stash_bytes[j] +
                        in->memory.workspace_bytes[1 << j];

        least = bytes < least ? bytes : least;
    }
    return fixed_bytes(in, stage, count) + least;
}

struct inner {
    const struct sp_adapipe *in;
    int modes, mode[MODES];    /* of the set, the cheapest first */
    int64_t in_flight, budget; /* bytes for stash */
    int64_t fixed;             /* bytes of everything else */
    int n[MODES];
    struct sp_adapipe_mix *best;
};

/* Shares `count` layers between the two cheapest modes, with as few as possible in the second. */
static void close_mix(struct inner *x, int count, int64_t bytes, double us)
{
    const struct sp_adapipe *in = x->in;
    int cheap = x->mode[0], other = x->mode[x->modes > 1];
    int64_t gain = x->in_flight * (in->memory.stash_bytes[cheap] - in->memory.stash_bytes[other]);
    int64_t over = bytes + count * x->in_flight * in->memory.stash_bytes[cheap] - x->budget,
            moved = 0;

    if (over > 0) {
        moved = gain > 0 ? (over + gain - 1) / gain : (int64_t)count + 1;
        if (moved > count)
            return;
    }
    us += (double)(count - moved) * in->costs.recompute_us[cheap] +
          (double)moved * in->costs.recompute_us[other];
    bytes = x->fixed + x->budget + over - moved * gain;
    if (us > x->best->us || (us >= x->best->us && bytes >= x->best->bytes))
        return;
    x->best->us = us;
    x->best->bytes = bytes;
    memcpy(x->best->n, x->n, sizeof x->n);
    x->best->n[cheap] = count - (int)moved;
    if (other != cheap)
        x->best->n[other] = (int)moved;
}

/* Tries every number of layers in each of the first k modes of the set except the two cheapest. */
static void try_counts(struct inner *x, int k, int count, int64_t bytes, double us)
{
    int j;

    if (k <= 2) {
        close_mix(x, count, bytes, us);
        return;
    }
    j = x->mode[k - 1];
    for (int n = 0; n <= count; n++) {
        x->n[j] = n;
        try_counts(x, k - 1, count - n, bytes + n * x->in_flight * x->in->memory.stash_bytes[j],
                   us + n * x->in->costs.recompute_us[j]);
    }
    x->n[j] = 0;
}

void sp_adapipe_cheapest(const struct sp_adapipe *in, int stage, int count,
                         struct sp_adapipe_mix *best)
{
    const double *us = in->costs.recompute_us;
    int64_t limit = in->memory.limit_bytes ? in->memory.limit_bytes : INT64_MAX;

    *best = (struct sp_adapipe_mix){.us = INFINITY};
    /* Larger sets contain the mixes of smaller ones too, and only leave them less room. */
    for (int set = 1; set < 1 << MODES; set++) {
        struct inner x = {.in = in, .in_flight = in_flight(in, stage), .best = best};

        x.fixed = fixed_bytes(in, stage, count) + in->memory.workspace_bytes[set];
        x.budget = limit - x.fixed;
        if (x.budget < 0)
            continue;
        for (int j = 0; j < MODES; j++) {
            int at = x.modes;

            if (!(set & 1 << j))
                continue;
            for (; at > 0 && us[x.mode[at - 1]] > us[j]; at--)
                x.mode[at] = x.mode[at - 1];
            x.mode[at] = j;
            x.modes++;
        }
        try_counts(&x, x.modes, count, 0, 0);
    }
}
