/*
 * The layerwise family: the layers are cut into consecutive global stages, each of which is a chunk
 * of one stage (policies/families/map.h says which). For micro-batch i, slice k of n:
 *
 *   F(i,g,k) waits for F(i,g-1,k) and F(i,g,k-1): activations, and keys and values before it
 *   B(i,g,k) waits for B(i,g+1,k), on the last g for F(i,g,n-1), the loss of the whole sequence;
 *            for F(i,g,k), and for B(i,g,k+1): gradients of its keys and values
 *   W(i,g,k) waits for B(i,g,k);  R(i,g,k) for F(i,g,k)
 *
 * The bidirectional family is the same twice: two pipes of p global stages over the same p stages,
 * and each micro-batch goes through one of them. In the aligned family stages begin their ops
 * together and share the attention of these ops (families/aligned).
 */
#include "policies/families/families.h"
#include "policies/families/layerwise/layerwise.h"
#include "policies/families/ownership.h"
#include "policies/plan.h"
#include "policies/refuse.h"
#include "sp_error.h"
#include <errno.h>
#include <stdio.h>

int sp_layerwise_place(const struct sp_layout *lay, const struct sp_schedule_def *def,
                       struct sp_map **map, char *why, size_t n)
{
    return sp_map_create(lay, 1, def->layerwise.global_stage, NULL, map, why, n);
}

static int place_both_ways(const struct sp_layout *lay, const struct sp_schedule_def *def,
                           struct sp_map **map, char *why, size_t n)
{
    return sp_map_create(lay, 2, def->layerwise.global_stage, def->layerwise.pipe, map, why, n);
}

/* An id for each pass F, B, W, R, stage, micro-batch, chunk and slice. */
int sp_layerwise_ids(const struct sp_layout *lay)
{
    return SP_PASSES * lay->stages * lay->micro_batches * lay->chunks * lay->slices;
}

int sp_layerwise_id(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    int at = op->pass;

    if (op->pass >= SP_PASSES || op->part != SP_CHUNK || stage < 0 || stage >= lay->stages ||
        op->mb < 0 || op->mb >= lay->micro_batches || op->chunk < 0 || op->chunk >= lay->chunks ||
        op->slice >= lay->slices || sp_pipe_of_chunk(lay, op->chunk) != sp_pipe_of_mb(lay, op->mb))
        return -1;
    at = at * lay->stages + stage;
    at = at * lay->micro_batches + op->mb;
    at = at * lay->chunks + op->chunk;
    return at * lay->slices + op->slice;
}

bool sp_layerwise_foreign(const struct sp_layout *lay, int stage, const struct sp_op *op, char *why,
                          size_t n)
{
    (void)stage;
    if (op->part != SP_CHUNK)
        return false;
    if (op->chunk < 0 || op->chunk >= lay->chunks)
        snprintf(why, n, "%d chunk%s", lay->chunks, lay->chunks > 1 ? "s" : "");
    else if (op->slice < lay->slices &&
             sp_pipe_of_chunk(lay, op->chunk) != sp_pipe_of_mb(lay, op->mb))
        snprintf(why, n, "micro-batch %d goes through chunk %d", op->mb,
                 sp_pipe_of_mb(lay, op->mb));
    else
        return false;
    return true;
}

/* The op of a pass on global stage g, and the stage that runs it. */
static struct sp_dep at(const struct sp_layout *lay, enum sp_pass pass, int mb, int g, int slice)
{
    struct sp_chunk_owner home = sp_chunk_owner(lay, sp_pipe_of_mb(lay, mb), g);

    return (struct sp_dep){.stage = home.stage,
                           .op = {.pass = (unsigned char)pass,
                                  .mb = mb,
                                  .chunk = home.chunk,
                                  .slice = (unsigned short)slice}};
}

int sp_layerwise_deps(const struct sp_layout *lay, int stage, const struct sp_op *op,
                      struct sp_dep out[SP_MAX_DEPS])
{
    int g = sp_global_stage(lay, stage, op->chunk), last = sp_globals(lay) - 1;
    int i = op->mb, k = op->slice, n = 0;

    switch (op->pass) {
    case SP_F:
        if (g > 0)
            out[n++] = at(lay, SP_F, i, g - 1, k);
        if (k > 0)
            out[n++] = at(lay, SP_F, i, g, k - 1);
        break;
    case SP_B:
        out[n++] = at(lay, SP_F, i, g, k);
        if (g < last)
            out[n++] = at(lay, SP_B, i, g + 1, k);
        else if (k < lay->slices - 1)
            out[n++] = at(lay, SP_F, i, g, lay->slices - 1);
        if (k < lay->slices - 1)
            out[n++] = at(lay, SP_B, i, g, k + 1);
        break;
    case SP_W:
        out[n++] = at(lay, SP_B, i, g, k);
        break;
    case SP_R:
        out[n++] = at(lay, SP_F, i, g, k);
        break;
    }
    return n;
}

void sp_layerwise_required(const struct sp_layout *lay, sp_need_fn need, void *arg)
{
    for (int i = 0; i < lay->micro_batches; i++) {
        for (int g = 0; g < sp_globals(lay); g++) {
            for (int k = 0; k < lay->slices; k++) {
                sp_need(need, arg, at(lay, SP_F, i, g, k));
                sp_need(need, arg, at(lay, SP_B, i, g, k));
            }
        }
    }
}

double sp_layerwise_head_cost(const struct sp_plan *plan, const struct sp_costs *costs,
                              const struct sp_op *op)
{
    return costs->head * sp_plan_slice_share(plan, op->slice);
}

double sp_layerwise_layers_cost(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                                const struct sp_op *op)
{
    const struct sp_layout *lay = &plan->layout;
    int g = sp_global_stage(lay, stage, op->chunk);
    double sf = costs->scale_f ? costs->scale_f[g] : 1;
    double sb = costs->scale_b ? costs->scale_b[g] : 1;
    double w = costs->w * (costs->scale_w ? costs->scale_w[g] : sb);
    /* A global stage does this part of a whole stage's work. */
    double part = sp_plan_slice_share(plan, op->slice) * lay->stages / sp_globals(lay);

    switch (op->pass) {
    case SP_F:
    case SP_R:
        return costs->f * sf * part;
    case SP_W:
        return w * part;
    default:
        return (costs->b * sb +
                (plan->deferred && plan->deferred[sp_layerwise_id(lay, stage, op)] ? 0 : w)) *
               part;
    }
}

/* The last global stage also has the head, all of it in the backward. */
double sp_layerwise_cost(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                         const struct sp_op *op)
{
    const struct sp_layout *lay = &plan->layout;
    bool last = sp_global_stage(lay, stage, op->chunk) == sp_globals(lay) - 1;

    return sp_layerwise_layers_cost(plan, costs, stage, op) +
           (last && op->pass == SP_B ? sp_layerwise_head_cost(plan, costs, op) : 0);
}

/* The last layer without its attention: costs do not say how much of attention was kept. */
double sp_layerwise_again(const struct sp_plan *plan, const struct sp_costs *costs,
                          const struct sp_op *op)
{
    return op->pass == SP_B && plan->layout.layers
               ? costs->parts.again * (costs->parts.pre + costs->parts.post)
               : 0;
}

const struct sp_family sp_family_layerwise = {
    .name = "layerwise", .place = sp_layerwise_place, SP_LAYERWISE};

const struct sp_family sp_family_bidirectional = {
    .name = "bidirectional", .place = place_both_ways, SP_LAYERWISE};

static const struct sp_family *sliced(const struct sp_layout *lay)
{
    return sp_layout_flag(lay, "multiplex") ? &sp_family_multiplexed : &sp_family_subsequence;
}

const struct sp_family sp_family_subsequence = {.name = "subsequence",
                                                .facts.slices = true,
                                                .variant = sliced,
                                                .place = sp_layerwise_place,
                                                SP_LAYERWISE};

int sp_weight_versions(const struct sp_plan *plan, int stage)
{
    const struct sp_program *prog = &plan->programs[stage];
    int live = 0, most = 1;

    if (plan->map && plan->map->late)
        return sp_updates(&plan->layout) > 1 ? 1 + plan->map->late : 1;
    for (int i = 0; plan->family->facts.stashes && i < prog->n; i++) {
        live += prog->ops[i].pass == SP_F ? 1 : -1;
        most = live > most ? live : most;
    }
    return most;
}

int sp_refuse_stashing(const struct sp_plan *plan, const struct sp_train_wish *wish)
{
    const struct {
        bool wanted;
        const char *what, *instead;
    } all[] = {
        {wish->clips, "--clip", "give --clip 0"},
        {wish->post_validation, "--post-validation", "leave it out"},
        {wish->dumps, "--dump-grads", "leave it out"},
        {wish->grouped, "tensor, context or data parallelism", "leave it out"},
        {wish->tied, "a table that is embedding and head on two stages", "take another model"},
    };
    int batch = plan->map->batch;
    char number[16] = "";

    if (batch > 1)
        snprintf(number, sizeof number, "%d ", batch);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].wanted)
            return sp_error(EINVAL,
                            "train: %s is not available for %s, which updates every stage by "
                            "itself after every %smicro-batch%s; %s",
                            all[i].what, plan->def->name, number, batch > 1 ? "es" : "",
                            all[i].instead);
    return 0;
}

static int place_and_update(const struct sp_layout *lay, const struct sp_schedule_def *def,
                            struct sp_map **map, char *why, size_t n)
{
    int err = sp_layerwise_place(lay, def, map, why, n);

    if (!err)
        (*map)->batch = 1;
    return err;
}

const struct sp_family sp_family_stashing = {.name = "weight-stashing",
                                             .place = place_and_update,
                                             .facts.stashes = true,
                                             .refuse = sp_refuse_stashing,
                                             SP_LAYERWISE};
