#include "plan/offload/pages.h"
#include "policies/families/slice_buffers.h"

void sp_pages_of_layer(const struct sp_shape *part, enum sp_recompute recompute, bool keeps_x,
                       bool sliced, int64_t bytes[SP_STASH_TENSORS])
{
    sp_stash_of_layer(part, recompute, keeps_x, sliced, bytes);
    for (int k = 0; k < SP_STASH_TENSORS; k++)
        bytes[k] = sp_pages(bytes[k]);
}

struct blocks {
    const struct sp_plan *plan;
    const struct sp_model *model;
    size_t elem;
    int64_t more;
};

static int add_block(void *arg, enum sp_block_kind kind, int layer)
{
    struct blocks *b = arg;
    int64_t bytes = (int64_t)b->elem * (int64_t)sp_block_held(b->plan, b->model, kind);

    (void)layer;
    b->more += sp_pages(bytes) - bytes;
    return 0;
}

/* Bytes that whole pages add to a stage's blocks, one buffer each. */
static int64_t beyond_blocks(const struct sp_plan *plan, const struct sp_model *m, int stage,
                             size_t elem)
{
    struct blocks b = {.plan = plan, .model = m, .elem = elem};

    sp_stage_each_block(plan, m, stage, add_block, &b);
    return b.more;
}

int64_t sp_offload_idle_bytes(const struct sp_plan *plan, const struct sp_shape *sh)
{
    struct sp_shape part;

    sp_memory_longest_slice(plan, sh, &part);
    /* the gradients of a layer: dy, dr, dx, du, do, dq */
    return (int64_t)sp_shape_elem(sh) * part.rows *
           (3 * part.model.hidden + part.up_width + 2 * part.q_width);
}

bool sp_weights_travel(const struct sp_plan *plan)
{
    return plan->family->facts.sharded ||
           (plan->family->facts.names_global && !plan->family->shared);
}

struct sp_memory sp_pages_fixed(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                                const struct sp_memory *held)
{
    enum {
        OTHERS = 24,    /* buffers that cross stages, scratch */
        TRAVELLING = 12 /* weights of a chunk, their gradients, and tensors that are kept apart */
    };
    const struct sp_family *family = plan->family;
    size_t elem = sp_shape_elem(sh);
    int64_t rounded = elem < sizeof(float) ? beyond_blocks(plan, &sh->held, stage, elem) : 0;
    struct sp_memory m = {
        /* weights, gradients, two moments; rounded weights */
        .states = held->states + 4 * beyond_blocks(plan, &sh->held, stage, sizeof(float)) + rounded,
        .workspace = held->workspace + sp_offload_idle_bytes(plan, sh) + OTHERS * SP_HOST_PAGE,
    };

    if (sp_weights_travel(plan)) /* weights and gradients that travel use one buffer a block */
        m.workspace += TRAVELLING * SP_LAYER_BLOCKS * SP_HOST_PAGE *
                       sp_most_layers(plan, sh->model.layers, stage);
    if (family->shared) { /* the same for weights and summed gradients of two others */
        int64_t most = 0;

        for (int s = 0; s < plan->layout.stages; s++) {
            int64_t beyond = s == stage ? 0 : beyond_blocks(plan, &sh->held, s, sizeof(float));

            most = beyond > most ? beyond : most;
        }
        m.workspace += 2 * (plan->processes > 1 ? 2 : 1) * most;
    }
    return m;
}
