#include "graphs/create.h"
#include "graphs/tokens.h"
#include "graphs/families/family.h"
#include "graphs/message.h"
#include "graphs/offload/offload.h"
#include "policies/families/multiplexed/multiplex.h"
#include "sp_error.h"
#include "graphs/weights/zero.h"
#include <limits.h>
#include <stdlib.h>

/* The parameter blocks that a stage holds: weights, gradients, the optimizer's state. */

struct block_owner {
    struct sp_graph *g;
    struct sp_stage *st;
};

/* Creates a block's weights, gradient and optimizer state. */
static int add_state(struct sp_graph *g, struct sp_block *b)
{
    struct sp_sink *s = g->cfg.sink;
    int err = 0;

    if (g->shape.zero) {
        err = sp_zero_create(g, b);
    } else {
        b->w = b->state[SP_STATE_W] = sp_tensor_make(s, b->n, sp_shape_elem(&g->shape), "w");
        b->g = b->state[SP_STATE_G] = sp_tensor_make(s, b->n, sizeof(float), "g");
    }
    if (err)
        return err;
    b->state[SP_STATE_MASTER] = g->shape.dtype == SP_F32
                                    ? b->state[SP_STATE_W]
                                    : sp_tensor_make(s, b->n, sizeof(float), "master");
    b->state[SP_STATE_M] = sp_tensor_make(s, b->n, sizeof(float), "m");
    b->state[SP_STATE_V] = sp_tensor_make(s, b->n, sizeof(float), "v");
    return 0;
}

static void destroy_state(struct sp_block *b)
{
    for (int i = 0; i < SP_BLOCK_STATE; i++) {
        bool part = b->shared && ((i == SP_STATE_W && b->shared[SP_SHARED_W].whole) ||
                                  (i == SP_STATE_G && b->shared[SP_SHARED_G].whole));
        bool twice = i == SP_STATE_MASTER && b->state[i] == b->state[SP_STATE_W];

        if (b->state[i] && !part && !twice)
            sp_tensor_unmake(b->state[i]);
        sp_tensor_unmake(b->spare[i]);
    }
    if (b->shared)
        sp_zero_destroy(b);
}

static int add_block(void *arg, enum sp_block_kind kind, int layer)
{
    struct sp_graph *g = ((struct block_owner *)arg)->g;
    struct sp_stage *st = ((struct block_owner *)arg)->st;
    size_t n = sp_block_held(g->cfg.plan, &g->shape.held, kind);
    int owners[SP_MAX_OWNERS];
    int n_owners = sp_block_owners(g->cfg.plan, &g->shape.held, kind, layer, owners);
    struct sp_block *more, *b;

    if (n_owners > 2)
        return sp_error(EINVAL, "the placement keeps %d replicas of a block, at most 2 are summed",
                        n_owners);

    more = realloc(st->blocks, (size_t)(st->n_blocks + 1) * sizeof *more);
    if (!more)
        return -ENOMEM;
    st->blocks = more;
    b = &st->blocks[st->n_blocks++];
    *b = (struct sp_block){
        .kind = kind,
        .layer = layer,
        .first = sp_block_first(g->cfg.plan, &g->shape.held, kind, st->index),
        .n = n,
        .counted = owners[0] == st->index || sp_block_is_sharded(g->cfg.plan, kind),
    };
    return add_state(g, b);
}

/* Creates the blocks of a stage of this process, or the parts of them that it updates. 0, -ENOMEM,
 * or -EINVAL after one line. */
static int create_blocks(struct sp_graph *g, struct sp_stage *st)
{
    struct block_owner block_owner = {.g = g, .st = st};

    return sp_stage_each_block(g->cfg.plan, &g->shape.held, st->index, add_block, &block_owner);
}

static void destroy_blocks(struct sp_stage *st)
{
    for (int i = 0; i < st->n_blocks; i++)
        destroy_state(&st->blocks[i]);
    free(st->blocks);
}

/* ---- stages --------------------------------------------------------------------------- */

/* Only memory that evicts when it is full must know which values are dead. */
static enum sp_pool_dead dead_values(const struct sp_graph *g)
{
    if (g->cfg.evictions)
        return SP_POOL_FREES;
    return g->place.gpus || sp_checks() ? SP_POOL_FORGETS : SP_POOL_KEEPS;
}

static int add_stage(struct sp_graph *g, struct sp_stage *st, int index)
{
    int err;

    st->index = index;
    st->worker = sp_stage_worker(&g->place, index);
    st->local = sp_pool_create(g->cfg.sink, 0, dead_values(g));
    st->boundary = sp_pool_create(g->cfg.sink, 2, dead_values(g));
    if (!st->local || !st->boundary)
        return -ENOMEM;
    for (int turn = 0; turn < 2; turn++) {
        struct sp_meter *meter = &st->meter[turn];

        st->tally[turn] = sp_tensor_make(g->cfg.sink, SP_TALLIES, sizeof(double), "tally");
        meter->n_ops = g->cfg.plan->programs[index].n;
        meter->moves = g->cfg.evictions;
        meter->ops = calloc((size_t)meter->n_ops, sizeof *meter->ops);
        if (!meter->ops)
            return -ENOMEM;
    }
    if (sp_offload_stage_create(g, st))
        return -ENOMEM;
    err = create_blocks(g, st);
    err = err ? err : sp_states_create(g, st);
    return err ? err : sp_zero_stage_create(g, st);
}

static void destroy_cut(struct sp_cut *cut)
{
    for (int i = 0; cut->chunks && i < 2; i++)
        destroy_cut(&cut->chunks[i]);
    free(cut->chunks);
    if (cut->joined)
        destroy_cut(cut->joined);
    free(cut->joined);
    free(cut->shapes);
    free(cut->heads);
    free(cut->shares);
}

static int allocate_chunks(struct sp_cut *cut)
{
    size_t n = (size_t)cut->n, m = n * (size_t)cut->n_shares;

    cut->chunks = calloc(2, sizeof *cut->chunks);
    for (int i = 0; cut->chunks && i < 2; i++) {
        cut->chunks[i] = (struct sp_cut){.n = cut->n, .n_shares = cut->n_shares};
        cut->chunks[i].shapes = calloc(n, sizeof *cut->shapes);
        cut->chunks[i].shares = calloc(m, sizeof *cut->shares);
        if (!cut->chunks[i].shapes || !cut->chunks[i].shares)
            return -ENOMEM;
    }
    return cut->chunks ? 0 : -ENOMEM;
}

static int allocate_cut(const struct sp_graph *g, struct sp_cut *cut)
{
    bool exchanges = sp_shape_exchanges(&g->shape), shared = g->shape.tensor > 1;
    size_t n = (size_t)cut->n, m = n * (size_t)cut->n_shares;

    cut->shapes = calloc(n, sizeof *cut->shapes);
    cut->heads = exchanges && !g->shape.joins ? calloc(n, sizeof *cut->heads) : NULL;
    cut->shares = shared ? calloc(m, sizeof *cut->shares) : NULL;
    cut->joined = g->shape.joins ? calloc(1, sizeof *cut->joined) : NULL;
    if (!cut->shapes || (exchanges && !g->shape.joins && !cut->heads) || (shared && !cut->shares) ||
        (g->shape.joins && !cut->joined))
        return -ENOMEM;
    if (shared && g->shape.mlp_rows < g->shape.rows && allocate_chunks(cut))
        return -ENOMEM;
    if (!cut->joined)
        return 0;
    *cut->joined = (struct sp_cut){.n = cut->n, .n_shares = 1};
    cut->joined->shapes = calloc(n, sizeof *cut->shapes);
    cut->joined->heads = exchanges ? calloc(n, sizeof *cut->heads) : NULL;
    return cut->joined->shapes && (!exchanges || cut->joined->heads) ? 0 : -ENOMEM;
}

/* Cuts the rows of a slice into chunks. */
static void cut_chunks(struct sp_cut *cut, int k)
{
    const struct sp_shape *own = &cut->shapes[k];
    int rows[] = {own->mlp_rows, (own->rows - 1) % own->mlp_rows + 1};

    for (int i = 0; i < 2; i++) {
        sp_shape_rows(own, rows[i], &cut->chunks[i].shapes[k]);
        for (int j = k * cut->n_shares; j < (k + 1) * cut->n_shares; j++)
            sp_shape_rows(&cut->shares[j], rows[i], &cut->chunks[i].shares[j]);
    }
}

/* Cuts out this process's tokens of a slice. */
static void cut_slice(const struct sp_graph *g, const struct sp_shape *slice, int k,
                      struct sp_cut *cut)
{
    int part = sp_graph_member(g);
    struct sp_shape joined;

    sp_shape_member(slice, part, sp_graph_share(g), &cut->shapes[k]);
    if (cut->heads)
        sp_shape_heads(&cut->shapes[k], &cut->heads[k]);
    for (int j = 0; cut->shares && j < cut->n_shares; j++) {
        struct sp_shape member;

        sp_shape_member(slice, part, j, &member);
        sp_shape_share_of(&member, &cut->shares[k * cut->n_shares + j]);
    }
    if (cut->chunks)
        cut_chunks(cut, k);
    if (!cut->joined)
        return;
    sp_shape_joined(slice, &joined);
    sp_shape_member(&joined, part, 0, &cut->joined->shapes[k]);
    if (cut->joined->heads)
        sp_shape_heads(&cut->joined->shapes[k], &cut->joined->heads[k]);
}

/* Points all slices to the longest one, whose sizes scratch buffers have. */
static void take_longest(struct sp_shape *shapes, int n, const struct sp_shape *longest)
{
    for (int i = 0; i < n; i++)
        shapes[i].longest = longest;
}

static int add_cut(struct sp_graph *g, int global)
{
    struct sp_cut *cut = &g->cuts[global];
    const struct sp_plan *plan = g->cfg.plan;
    struct sp_op op = {.chunk = global};
    int longest = 0;

    cut->n = sp_slices_of(plan, global);
    cut->n_shares = sp_shape_shares(&g->shape);
    if (allocate_cut(g, cut))
        return -ENOMEM;
    for (int k = 0; k < cut->n; k++) {
        struct sp_shape slice;
        int first, len;

        op.slice = (unsigned short)k;
        sp_plan_op_tokens(plan, g->shape.seq, &op, &first, &len);
        sp_shape_slice(&g->shape, first, len, &slice);
        cut_slice(g, &slice, k, cut);
        longest = cut->shapes[k].seq > cut->shapes[longest].seq ? k : longest;
    }
    take_longest(cut->shapes, cut->n, cut->shapes + longest);
    if (cut->heads)
        take_longest(cut->heads, cut->n, cut->heads + longest);
    if (cut->shares)
        take_longest(cut->shares, cut->n * cut->n_shares, cut->shares + longest * cut->n_shares);
    if (cut->joined)
        take_longest(cut->joined->shapes, cut->n, cut->joined->shapes + longest);
    if (cut->joined && cut->joined->heads)
        take_longest(cut->joined->heads, cut->n, cut->joined->heads + longest);
    for (int i = 0; cut->chunks && i < 2; i++) { /* a last chunk is no longer than a first one */
        struct sp_shape *shapes = cut->chunks[0].shapes, *shares = cut->chunks[0].shares;

        take_longest(cut->chunks[i].shapes, cut->n, &shapes[longest]);
        take_longest(cut->chunks[i].shares, cut->n * cut->n_shares,
                     &shares[longest * cut->n_shares]);
    }
    return 0;
}

static int add_cuts(struct sp_graph *g)
{
    int err = 0;

    g->n_cuts = g->cfg.plan->family->shared ? g->cfg.plan->layout.stages : 1;
    g->cuts = calloc((size_t)g->n_cuts, sizeof *g->cuts);
    if (sp_sink_computes(g->cfg.sink))
        g->row = calloc(3 * (size_t)g->shape.seq, sizeof *g->row);
    if (!g->cuts || (sp_sink_computes(g->cfg.sink) && !g->row))
        return -ENOMEM;
    for (int i = 0; !err && i < g->n_cuts; i++)
        err = add_cut(g, i);
    return err;
}

/* Every stage computes attention, so it needs the documents of all micro-batches. */
static int add_documents(struct sp_graph *g)
{
    int m = g->cfg.plan->layout.micro_batches, err = 0;

    for (int turn = 0; g->cfg.separates && !err && turn < 2; turn++) {
        g->documents[turn] = calloc((size_t)m, sizeof **g->documents);
        err = g->documents[turn] ? 0 : -ENOMEM;
        for (int i = 0; !err && i < m; i++)
            err = sp_documents_create(&g->documents[turn][i], g->shape.batch);
    }
    return err;
}

/* Sets the order of submission and the index of all ops. The plan is verified: only memory can
 * lack. */
static int add_order(struct sp_graph *g)
{
    int stage, index;

    if (g->cfg.lowering) {
        g->lowering = *g->cfg.lowering;
        return 0;
    }
    if (sp_lowering_create(g->cfg.plan, &g->shape, sp_pipeline_size(&g->place), &g->lowering))
        return -ENOMEM;
    return sp_sink_computes(g->cfg.sink) ? sp_index_create(g->cfg.plan, &g->places, &stage, &index)
                                         : 0;
}

/* Bounds `starpipe-ready` on each worker by the peak that the strict order of its stages
 * reaches. */
static int bound_memory(struct sp_graph *g)
{
    size_t workers = (size_t)(g->place.first_worker + g->place.workers);
    int64_t *live = calloc(2 * workers, sizeof *live), *peak;

    if (!live)
        return -ENOMEM;
    peak = live + workers;
    for (int k = 0; k < g->lowering.n; k++) {
        int s = g->lowering.order[k].stage, w;
        const struct sp_op *op = &g->cfg.plan->programs[s].ops[g->lowering.order[k].index];
        int64_t bytes;

        if (!sp_stage_is_local(&g->place, s))
            continue;
        w = sp_stage_worker(&g->place, s);
        bytes = sp_stash_of_op(g->cfg.plan, &g->shape, g->cfg.recompute, g->cfg.every, s, op);
        if (op->pass == SP_F)
            live[w] += bytes;
        peak[w] = live[w] > peak[w] ? live[w] : peak[w];
        live[w] -=
            sp_stash_freed_by_op(g->cfg.plan, &g->shape, g->cfg.recompute, g->cfg.every, s, op);
    }
    for (int w = g->place.first_worker; w < g->place.first_worker + g->place.workers; w++)
        g->cfg.sink->ops->bound(w, peak[w]);
    free(live);
    return 0;
}

/* The largest number of rows of a tensor that crosses stages. */
static int longest_rows(const struct sp_graph *g)
{
    int rows = 0;

    for (int i = 0; i < g->n_cuts; i++)
        rows =
            g->cuts[i].shapes[0].longest->rows > rows ? g->cuts[i].shapes[0].longest->rows : rows;
    return rows;
}

/* MPI counts the bytes of a message in an int. */
static int check_messages(const struct sp_graph *g)
{
    const struct sp_model *m = &g->shape.held;
    const struct sp_family *family = g->cfg.plan->family;
    const size_t most = INT_MAX / sizeof(float);
    size_t width = (size_t)m->hidden, activations;

    if (g->place.world.size == 1 || !g->cfg.sink->ops->counts_in_int())
        return 0;
    if ((family->facts.parts || family->facts.shares_attention) && (size_t)g->shape.q_width > width)
        width = (size_t)g->shape.q_width;
    if ((family->facts.parts || family->shared || family->facts.shares_attention) &&
        (size_t)g->shape.kv_width > width)
        width = (size_t)g->shape.kv_width;
    activations = (size_t)longest_rows(g) * width;
    if (activations > INT_MAX / sp_shape_elem(&g->shape))
        return sp_error(EINVAL,
                        "activations of %zu bytes between processes, a message has at most %d: "
                        "take a shorter sequence%s or a smaller micro-batch",
                        activations * sp_shape_elem(&g->shape), INT_MAX,
                        g->cfg.plan->layout.slices > 1 ? ", more slices" : "");
    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++)
        if (sp_block_held(g->cfg.plan, m, (enum sp_block_kind)kind) > most)
            return sp_error(EINVAL,
                            "a block of %zu parameter bytes, a message between processes has at "
                            "most %d: run in one process",
                            sp_block_held(g->cfg.plan, m, (enum sp_block_kind)kind) * sizeof(float),
                            INT_MAX);
    return 0;
}

/* Default number of unfinished ops per stage. If keys are streamed through, an op has several tasks
 * for each earlier slice, so fewer ops are enough. */
static int default_window(const struct sp_graph_config *cfg, const struct sp_placement *place)
{
    for (int k = 0; cfg->evictions && k < place->n_local; k++)
        if (cfg->evictions[place->first_local + k].streamed_in)
            return 2;
    return 6;
}

int sp_graph_create(const struct sp_graph_config *cfg, const struct sp_placement *place,
                    struct sp_graph *g)
{
    const struct sp_plan *plan = cfg->plan;
    bool computes = sp_sink_computes(cfg->sink);
    int err = 0, window = cfg->window > 0 ? cfg->window : default_window(cfg, place);

    *g =
        (struct sp_graph){.cfg = *cfg, .place = *place, .family = sp_graph_family_of(plan->family)};
    g->shape = *cfg->shape;
    g->shape.replica = place->pipeline / g->shape.tensor;
    if (g->shape.tensor > 1)
        g->shape.table_first = place->pipeline % g->shape.tensor * g->shape.held.positions;
    g->cfg.shape = NULL;
    g->losses = sp_updates(&plan->layout);
    g->shape.loss_scale *= (float)g->losses;
    /* the whole of a partitioned block is not known to have been used by tasks on its parts */
    g->in_stream = cfg->in_stream && place->gpus == 1 && place->world.size == 1 &&
                   !sp_block_is_sharded(plan, SP_BLOCK_TOKENS);
    g->stages = calloc((size_t)place->n_local, sizeof *g->stages);
    g->free_at = calloc((size_t)place->stages, sizeof *g->free_at);
    g->ended = calloc((size_t)place->stages, sizeof *g->ended);
    g->worker_order = calloc((size_t)sp_update_worker(place) + 1, sizeof *g->worker_order);
    if (plan->paired && window < 2)
        window = 2; /* two ops that overlap are unfinished at once */
    g->window = sp_window_create(window * place->n_local);
    if (!g->stages || !g->free_at || !g->ended || !g->worker_order || !g->window)
        err = -ENOMEM;
    if (!err && !cfg->evictions != !plan->evictions)
        err = sp_error(EINVAL,
                       "internal: what leaves memory is chosen, and the plan does not say so");
    if (computes || g->shape.tensor > 1)
        err = err ? err : sp_params_create(&g->shape.held, &g->held);
    err = err ? err : add_cuts(g);
    err = err ? err : check_messages(g);
    for (int k = 0; !err && k < place->n_local; k++)
        err = add_stage(g, &g->stages[k], place->first_local + k);
    err = err ? err : sp_tokens_create(g);
    err = err ? err : add_documents(g);
    err = err ? err : add_order(g);
    err = err || !computes ? err : sp_message_logs_create(g);
    err = err ? err : g->family->create(g);
    err = err || !computes ? err : bound_memory(g);
    if (err == -ENOMEM)
        sp_error(ENOMEM, "out of memory laying out %d stages", place->n_local);
    return err;
}

int sp_graph_reorder(struct sp_graph *g)
{
    sp_lowering_destroy(&g->lowering);
    sp_index_destroy(&g->places);
    if (add_order(g) || sp_message_logs_create(g) || bound_memory(g))
        return sp_error(ENOMEM, "out of memory for an order");
    return 0;
}

void sp_graph_destroy(struct sp_graph *g)
{
    g->cfg.sink->ops->step(0);
    if (g->stages && g->family)
        g->family->destroy(g);
    if (g->stages) /* a task's callback uses its stage and runs after the release of its data */
        g->cfg.sink->ops->wait();
    sp_message_logs_destroy(g);
    for (int k = 0; g->stages && k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];

        sp_zero_stage_destroy(st);
        destroy_blocks(st);
        for (int turn = 0; turn < 2; turn++) {
            sp_tensor_unmake(st->tally[turn]);
            free(st->meter[turn].ops);
        }
        sp_offload_stage_destroy(g, st);
        sp_store_clear(&st->store);
        sp_pool_destroy(st->local);
        sp_pool_destroy(st->boundary);
    }
    sp_tokens_destroy(g);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; g->documents[turn] && i < g->cfg.plan->layout.micro_batches; i++)
            sp_documents_destroy(&g->documents[turn][i]);
        free(g->documents[turn]);
    }
    sp_sink_release_scratch(g->cfg.sink);
    for (int i = 0; g->cuts && i < g->n_cuts; i++)
        destroy_cut(&g->cuts[i]);
    free(g->cuts);
    sp_params_destroy(&g->held);
    free(g->row);
    free(g->stages);
    free(g->free_at);
    free(g->ended);
    free(g->worker_order);
    if (!g->cfg.lowering)
        sp_lowering_destroy(&g->lowering);
    sp_index_destroy(&g->places);
    sp_window_destroy(g->window);
}
