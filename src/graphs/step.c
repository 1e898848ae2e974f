#include "graphs/step.h"
#include "graphs/report.h"
#include <math.h>
#include <string.h>

/* The tokens of one row of a sequence, each slice to its place: row b of its (B, len) piece. */
static void scatter(const struct sp_graph *g, int b, const int32_t *row, int32_t *memory)
{
    for (int k = 0; k < g->cfg.plan->layout.slices; k++) {
        const struct sp_shape *sh = &g->slices[k];
        size_t at = (size_t)sh->batch * (size_t)sh->first + (size_t)b * (size_t)sh->seq;

        memcpy(memory + at, row + sh->first, sizeof *row * (size_t)sh->seq);
    }
}

static void acquire_tokens(struct sp_graph *g, int mb, void (*call)(starpu_data_handle_t))
{
    int n = g->cfg.plan->layout.slices;

    for (int k = 0; k < n; k++) {
        if (g->ids)
            call(g->ids[mb * n + k]);
        if (g->targets)
            call(g->targets[mb * n + k]);
    }
}

static void acquire(starpu_data_handle_t handle)
{
    starpu_data_acquire(handle, STARPU_W);
}

/* The rows of every micro-batch of step k: sample n = (k M + i) B + b. */
static void fill_tokens(struct sp_graph *g, const struct sp_data *data, uint64_t k)
{
    int M = g->cfg.plan->layout.micro_batches, B = g->shape.batch, S = g->shape.seq;
    size_t T = (size_t)g->shape.rows;

    if (!g->ids && !g->targets)
        return;
    for (int i = 0; i < M; i++) {
        acquire_tokens(g, i, acquire);
        for (int b = 0; b < B; b++) {
            uint64_t n = (k * (uint64_t)M + (uint64_t)i) * (uint64_t)B + (uint64_t)b;

            sp_data_sample(data, n, S, g->row, g->row + S);
            if (g->ids)
                scatter(g, b, g->row, g->ids_memory + (size_t)i * T);
            if (g->targets)
                scatter(g, b, g->row + S, g->targets_memory + (size_t)i * T);
        }
        acquire_tokens(g, i, starpu_data_release);
    }
}

static void clear_meters(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];
        double *tally;

        st->meter.peak_bytes = st->meter.live_bytes;
        memset(st->meter.ops, 0, sizeof *st->meter.ops * (size_t)st->meter.n_ops);
        starpu_data_acquire(st->tally, STARPU_W);
        tally = starpu_data_get_local_ptr(st->tally);
        memset(tally, 0, sizeof *tally * SP_TALLIES);
        starpu_data_release(st->tally);
    }
}

/* Replicas of a block add up their gradients, both in the same order: a + b is b + a. */
static void sum_twins(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];
        struct sp_lane lane = sp_stage_lane(g, st, 'T');

        for (int i = 0; i < st->n_blocks; i++) {
            struct sp_block *b = &st->blocks[i];
            struct sp_stage *other = b->twin < 0 ? NULL : sp_graph_stage(g, b->twin);
            starpu_data_handle_t theirs;
            int64_t block;
            int rank;

            if (b->twin < 0)
                continue;
            if (other) {
                if (b->counted)
                    sp_sum_insert(&lane, b->g, sp_stage_block(other, b->kind, b->layer)->g, true);
                continue;
            }
            rank = sp_stage_rank(&g->place, b->twin);
            block = (int64_t)(b->layer + 1) * SP_BLOCK_KINDS + b->kind;
            theirs = sp_pool_get(st->boundary, b->n, sizeof(float), "twin gradient");
            sp_transport_send(b->g, rank, sp_tag(g, SP_MSG_TWIN, block, st->index));
            st->bytes_sent += b->n * sizeof(float);
            sp_transport_recv(theirs, rank, sp_tag(g, SP_MSG_TWIN, block, b->twin));
            sp_sum_insert(&lane, b->g, theirs, false);
            sp_pool_put(st->boundary, theirs);
        }
    }
}

static void norm_tasks(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];
        struct sp_lane lane = sp_stage_lane(g, st, 'N');

        for (int i = 0; i < st->n_blocks; i++) {
            lane.layer = st->blocks[i].layer;
            if (st->blocks[i].counted)
                sp_sumsq_insert(&lane, st->blocks[i].g, st->tally);
        }
    }
}

void sp_step_gradients(struct sp_graph *g, const struct sp_data *data, uint64_t k,
                       struct sp_step_report *report)
{
    double start = sp_now_us();

    g->step++;
    fill_tokens(g, data, k);
    clear_meters(g);
    for (int i = 0, ops; i < g->n_order; i += ops) {
        struct sp_stage *st = sp_graph_stage(g, g->order[i].stage);
        const struct sp_program *prog = &g->cfg.plan->programs[g->order[i].stage];

        ops = prog->ops[g->order[i].index].overlap ? 2 : 1;
        if (st)
            sp_layerwise_submit(g, st, g->order[i].index);
    }
    sum_twins(g);
    norm_tasks(g);
    sp_transport_wait_all();
    sp_report_gather(g, report);
    report->step_us = sp_now_us() - start;
}

void sp_step_update(struct sp_graph *g, const struct sp_update *hp, struct sp_step_report *report)
{
    double start = sp_now_us();

    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];
        struct sp_lane lane = sp_stage_lane(g, st, 'U');

        st->meter.update_us = 0;
        for (int i = 0; i < st->n_blocks; i++) {
            struct sp_block *b = &st->blocks[i];

            lane.layer = b->layer;
            sp_update_insert(&lane, g->cfg.params, b->kind, b->layer, hp, b->w, b->g, b->m, b->v);
        }
    }
    sp_transport_wait_all();
    report->step_us += sp_now_us() - start;
}
