/*
 * Runs one stage with two chunks of one layer each, and weight gradients as separate ops. The head
 * runs in B of the second chunk only, the embedding in F and W of the first only. So F of the
 * second, B of the first and W of the second are one layer each, without a subtraction. The tasks
 * of the tables and the parts of a forward are submitted separately afterwards.
 */
#include "plan/profile.h"
#include "graphs/weights/checkpoint.h"
#include "graphs/step.h"
#include "plan/memory.h"
#include "policies/families/map.h"
#include "sp_error.h"
#include "policies/families/families.h"
#include "graphs/create.h"
#include "transport/transport.h"
#include "sinks/starpu/sink.h"
#include <math.h>
#include <stdlib.h>

enum { LAYERS = 2, MICRO_BATCHES = 2, OPS = 3 * LAYERS * MICRO_BATCHES };
/* Repetitions after one warm-up run: at least FEW, more while they are short. */
enum { FEW = 3, MOST = 60, LONG_US = 100000 };

/* The parts that are submitted separately. */
enum part { EMBED, PRE, ATTN, POST, POST_AGAIN, HEAD, EMBED_GRADIENT, PARTS };

struct samples {
    int n;
    double us[MOST * MICRO_BATCHES];
};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The lower quartile, because other processes of the machine only add time. */
static double quiet(struct samples *s)
{
    qsort(s->us, (size_t)s->n, sizeof *s->us, ascending);
    return s->us[s->n / 4];
}

static bool go_on(int done, double since_us)
{
    return done < FEW || (done < MOST && sp_now_us() - since_us < LONG_US);
}

/* ---- the model of two layers ---------------------------------------------------------- */

static void take_few_layers(struct sp_shape *sh)
{
    sh->held.layers = sh->model.layers = LAYERS;
}

static int make_plan(struct sp_plan *plan)
{
    char why[128];
    int err;

    *plan = (struct sp_plan){.layout = {.stages = 1,
                                        .micro_batches = MICRO_BATCHES,
                                        .chunks = LAYERS,
                                        .slices = 1,
                                        .layers = LAYERS,
                                        .options = ""},
                             .family = sp_family_find("layerwise")};
    plan->programs = calloc(1, sizeof *plan->programs);
    err = plan->programs ? sp_map_create(&plan->layout, 1, NULL, NULL, &plan->map, why, sizeof why)
                         : -ENOMEM;
    if (err)
        return sp_error(-err, "no plan to measure layers with");
    plan->layout.map = plan->map;
    for (int i = 0; i < MICRO_BATCHES; i++) {
        sp_program_add(plan->programs, SP_F, i, 0);
        sp_program_add(plan->programs, SP_F, i, 1);
        sp_program_add(plan->programs, SP_B, i, 1);
        sp_program_add(plan->programs, SP_W, i, 1);
        sp_program_add(plan->programs, SP_B, i, 0);
        sp_program_add(plan->programs, SP_W, i, 0);
    }
    return sp_plan_index(plan);
}

/* Tokens repeat after so many: times do not depend on the text. */
enum { TOKENS = 4096 };

static void draw_tokens(const struct sp_model *m, unsigned char bytes[2 * TOKENS],
                        struct sp_data_file *file, struct sp_data *data)
{
    int vocab = m->vocab < 65536 ? m->vocab : 65536;
    uint32_t x = 1;

    for (int i = 0; i < TOKENS; i++) {
        x = x * 1664525u + 1013904223u;
        bytes[2 * i] = (unsigned char)((x >> 8) % (unsigned)vocab);
        bytes[2 * i + 1] = (unsigned char)((x >> 8) % (unsigned)vocab >> 8);
    }
    *file = (struct sp_data_file){.bytes = bytes, .tokens = TOKENS, .width = 2};
    *data = (struct sp_data){.file = file, .files = 1, .tokens = TOKENS};
}

/* ---- the parts by themselves ---------------------------------------------------------- */

/* Handles of one micro-batch in layer 0, and weights of both ends. */
struct bench {
    struct sp_graph *g;
    struct sp_stage *st;
    struct sp_pre pre;
    struct sp_attn attn;
    struct sp_post post;
    struct sp_attn_keys keys;
    struct sp_tensor *y;
};

static struct sp_tensor *take(struct bench *b, size_t elements, const char *name)
{
    return sp_pool_get(b->st->local, elements, sp_shape_elem(&b->g->shape), name);
}

static void take_all(struct bench *b)
{
    const struct sp_shape *sh = &b->g->shape;
    size_t T = (size_t)sh->rows, hidden = T * (size_t)sh->model.hidden;

    b->pre = (struct sp_pre){
        .x = take(b, hidden, "x"),
        .saved = take(b, sp_shape_pre_saved(sh, true), "pre saved"),
        .q = take(b, T * (size_t)sh->q_width, "q"),
        .kv = take(b, T * (size_t)sh->kv_width, "kv"),
        .keep_outputs = true,
    };
    b->keys = (struct sp_attn_keys){.len = sh->seq, .kv = b->pre.kv};
    b->attn = (struct sp_attn){
        .q_len = sh->seq,
        .begins = true,
        .ends = true,
        .n_keys = 1,
        .keys = &b->keys,
        .q = b->pre.q,
        .o = take(b, T * (size_t)sh->q_width, "o"),
        .lse = take(b, sp_shape_f32(sh, T * (size_t)sh->model.heads), "lse"),
    };
    b->post = (struct sp_post){
        .x = b->pre.x,
        .o = b->attn.o,
        .saved = take(b, sp_shape_post_saved(sh, true), "post saved"),
        .keep_outputs = true,
    };
    b->y = take(b, hidden, "y");
}

static void put_all(struct bench *b)
{
    struct sp_tensor *all[] = {b->pre.x,  b->pre.saved, b->pre.q,      b->pre.kv,
                               b->attn.o, b->attn.lse,  b->post.saved, b->y};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sp_pool_put(all[i]);
}

static struct sp_tensor *weight(struct bench *b, enum sp_block_kind kind, int layer)
{
    return sp_stage_weight(b->st, kind, layer);
}

static struct sp_tensor *gradient(struct bench *b, enum sp_block_kind kind)
{
    return sp_stage_gradient(b->st, kind, -1);
}

/* Runs one micro-batch through every part; the record of op k of the stage is that of part k. */
static void submit_parts(struct bench *b)
{
    const struct sp_shape *sh = &b->g->shape;
    enum sp_block_kind table = sp_head_table(&sh->model);
    struct sp_task_context ctx = sp_stage_context(b->g, b->st, 'F');

    ctx.op_index = EMBED;
    sp_embed_fwd_insert(&ctx, sh, sp_graph_tokens(b->g)->ids[0], weight(b, SP_BLOCK_TOKENS, -1),
                        weight(b, SP_BLOCK_POSITIONS, -1), b->pre.x, 0);
    ctx.op_index = PRE;
    sp_pre_fwd_insert(&ctx, sh, &b->pre, weight(b, SP_BLOCK_NORM1, 0), weight(b, SP_BLOCK_QKV, 0),
                      0);
    ctx.op_index = ATTN;
    sp_attn_fwd_insert(&ctx, sh, &b->attn, 0);
    ctx.op_index = POST;
    sp_post_fwd_insert(&ctx, sh, &b->post, weight(b, SP_BLOCK_POST, 0), b->y, 0);
    ctx.op_index = POST_AGAIN; /* recompute does not compute the layer's output */
    sp_post_fwd_insert(&ctx, sh, &b->post, weight(b, SP_BLOCK_POST, 0), NULL, 0);
    ctx.op_index = HEAD;
    sp_head_insert(&ctx, sh, b->y, sp_graph_tokens(b->g)->targets[0], weight(b, SP_BLOCK_NORM, -1),
                   weight(b, table, -1), gradient(b, SP_BLOCK_NORM), gradient(b, table), b->pre.x,
                   sp_stage_tally(b->g, b->st), 0);
    ctx.op_index = EMBED_GRADIENT;
    sp_embed_wgrad_insert(&ctx, sh, sp_graph_tokens(b->g)->ids[0], b->pre.x,
                          gradient(b, SP_BLOCK_TOKENS), gradient(b, SP_BLOCK_POSITIONS));
}

/* Runs after the steps, when the graph has its tokens and its buffers. */
static void measure_parts(struct sp_graph *g, double us[PARTS])
{
    struct bench b = {.g = g, .st = &g->stages[0]};
    static struct samples part[PARTS];
    double start = sp_now_us();

    take_all(&b);
    for (int k = 0; k < PARTS; k++)
        part[k].n = 0;
    for (int done = -1; go_on(done, start); done++) {
        for (int k = 0; k < PARTS; k++)
            sp_stage_meter(b.g, b.st)->ops[k] = (struct sp_op_record){0};
        submit_parts(&b);
        b.g->cfg.sink->ops->wait();
        for (int k = 0; done >= 0 && k < PARTS; k++)
            part[k].us[part[k].n++] = sp_stage_meter(b.g, b.st)->ops[k].busy_us;
    }
    put_all(&b);
    for (int k = 0; k < PARTS; k++)
        us[k] = quiet(&part[k]);
}

/* ---- the layer ------------------------------------------------------------------------ */

struct layer_times {
    double f, b, w;
};

static void measure_steps(struct sp_graph *g, const struct sp_data *data,
                          struct sp_step_report *report, struct layer_times *us)
{
    const struct sp_op_record *ops = report->stages[0].ops;
    static struct samples pass[3];
    double start = sp_now_us();

    for (int k = 0; k < 3; k++)
        pass[k].n = 0;
    for (int done = -1; go_on(done, start); done++) {
        sp_step_gradients(g, data, (uint64_t)(done + 1), report);
        for (int i = 0; done >= 0 && i < OPS; i += 3 * LAYERS) {
            /* F.0 F.1 B.1 W.1 B.0 W.0 */
            pass[0].us[pass[0].n++] = ops[i + 1].busy_us;
            pass[1].us[pass[1].n++] = ops[i + 4].busy_us;
            pass[2].us[pass[2].n++] = ops[i + 3].busy_us;
        }
    }
    *us = (struct layer_times){quiet(&pass[0]), quiet(&pass[1]), quiet(&pass[2])};
}

/* `parts` NULL: not wanted. */
static int measure_mode(const struct sp_graph_config *cfg, const struct sp_placement *place,
                        const struct sp_data *data, struct layer_times *us, double *parts)
{
    struct sp_step_report report;
    struct sp_graph g;
    int err;

    sp_workers_reset();
    err = sp_graph_create(cfg, place, &g);
    if (err)
        return err;
    err = sp_checkpoint_init(&g, NULL);
    err = err ? err : sp_step_report_create(&g, &report);
    if (!err) {
        measure_steps(&g, data, &report, us);
        if (parts)
            measure_parts(&g, parts);
        sp_step_report_destroy(&g, &report);
    }
    sp_graph_destroy(&g);
    sp_workers_reset();
    return err;
}

/* Recomputing whole parts takes the time of those parts. `selective` recomputes inside the tasks of
 * the backward, so it is measured in a separate graph. */
static int measure_modes(struct sp_graph_config cfg, const struct sp_placement *place,
                         const struct sp_data *data, struct sp_layer_costs *costs)
{
    struct layer_times keep, selective;
    double part[PARTS], share, again, more;
    int err;

    cfg.recompute = SP_RECOMPUTE_NONE;
    err = measure_mode(&cfg, place, data, &keep, part);
    cfg.recompute = SP_RECOMPUTE_SELECTIVE;
    err = err ? err : measure_mode(&cfg, place, data, &selective, NULL);
    if (err)
        return err;
    share = keep.f / (part[PRE] + part[ATTN] + part[POST]);
    /* This small difference of large times is clamped to the time of all of pre and post. */
    again = (part[PRE] + part[POST_AGAIN]) * share;
    more = fmin(fmax(0, selective.b + selective.w - keep.b - keep.w), again);
    *costs = (struct sp_layer_costs){
        .embed_fwd_us = part[EMBED],
        .embed_bwd_us = part[EMBED_GRADIENT],
        .pre_fwd_us = part[PRE] * share,
        .attn_fwd_us = part[ATTN] * share,
        .post_fwd_us = part[POST] * share,
        .bwd_us = keep.b,
        .wgrad_us = keep.w,
        .head_us = part[HEAD],
        .recompute_us = {[SP_RECOMPUTE_SELECTIVE] = more,
                         [SP_RECOMPUTE_NO_ATTENTION] = again,
                         [SP_RECOMPUTE_FULL] = again + part[ATTN] * share},
    };
    return 0;
}

int sp_profile_layers(const struct sp_graph_config *like, const struct sp_placement *place,
                      struct sp_layer_costs *costs)
{
    static unsigned char bytes[2 * TOKENS];
    struct sp_graph_config cfg = *like;
    struct sp_placement alone = *place;
    struct sp_shape shape = *like->shape;
    struct sp_params params = {0};
    struct sp_plan plan = {0};
    struct sp_data_file file;
    struct sp_data data;
    bool profiling;
    int err;

    take_few_layers(&shape);
    alone.world = (struct sp_world){.size = 1, .node_size = 1};
    alone.stages = alone.n_local = alone.pipelines = 1;
    alone.first_local = alone.pipeline = 0;
    draw_tokens(&shape.model, bytes, &file, &data);
    err = sp_params_create(&shape.model, &params);
    if (err)
        return err;
    err = make_plan(&plan);
    cfg.params = &params;
    cfg.shape = &shape;
    cfg.plan = &plan;
    cfg.every = 1;
    cfg.window = 0;
    profiling = sp_starpu_profile(true);
    err = err ? err : measure_modes(cfg, &alone, &data, costs);
    sp_starpu_profile(profiling);
    sp_plan_destroy(&plan);
    sp_params_destroy(&params);
    return err;
}

int64_t sp_profile_bytes(const struct sp_shape *sh)
{
    struct sp_shape two = *sh;
    struct sp_plan plan = {0};
    struct sp_memory m;
    int64_t most = 0;

    take_few_layers(&two);
    if (make_plan(&plan))
        return 0;
    for (int mode = SP_RECOMPUTE_NONE; mode <= SP_RECOMPUTE_SELECTIVE; mode++) {
        int64_t bytes;

        if (sp_memory_of_plan(&plan, &two, (enum sp_recompute)mode, 1, &m))
            continue;
        bytes = m.states / 2 + m.activations + m.workspace; /* no moments */
        most = bytes > most ? bytes : most;
    }
    sp_plan_destroy(&plan);
    return most;
}

/* ---- messages ------------------------------------------------------------------------- */

double sp_profile_comm_us(const struct sp_world *world, int peer, size_t bytes)
{
    struct samples s = {0};
    struct sp_tensor *t;
    char *x;

    if (peer >= world->size || (world->rank != 0 && world->rank != peer))
        return 0;
    x = calloc(bytes, 1);
    SP_NEED(x, "out of memory for a message of %zu bytes", bytes);
    t = sp_tensor_make_at(sp_starpu_sink(), x, bytes / 2, 2, "ping");
    for (int done = -1; done < 2 * FEW; done++) {
        double start = sp_now_us();

        if (world->rank == 0) {
            sp_tensor_send_wait(t, peer, SP_TAG_PING);
            sp_tensor_receive_wait(t, peer, SP_TAG_PING);
        } else {
            sp_tensor_receive_wait(t, 0, SP_TAG_PING);
            sp_tensor_send_wait(t, 0, SP_TAG_PING);
        }
        if (done >= 0)
            s.us[s.n++] = (sp_now_us() - start) / 2;
    }
    sp_tensor_unmake_at(t);
    free(x);
    return quiet(&s);
}
