#include "graphs/step.h"
#include "graphs/report.h"
#include <math.h>
#include <string.h>

/* The rows of every micro-batch of step k: sample n = (k M + i) B + b. */
static void fill_tokens(struct sp_graph *g, const struct sp_data *data, uint64_t k)
{
    int M = g->cfg.plan->layout.micro_batches, B = g->shape.batch, S = g->shape.seq;

    for (int i = 0; i < M; i++) {
        if (g->ids)
            starpu_data_acquire(g->ids[i], STARPU_W);
        if (g->targets)
            starpu_data_acquire(g->targets[i], STARPU_W);
        for (int b = 0; b < B && (g->ids || g->targets); b++) {
            uint64_t n = (k * (uint64_t)M + (uint64_t)i) * (uint64_t)B + (uint64_t)b;
            size_t at = ((size_t)i * (size_t)B + (size_t)b) * (size_t)S;

            sp_data_sample(data, n, S, g->ids ? g->ids_memory + at : NULL,
                           g->targets ? g->targets_memory + at : NULL);
        }
        if (g->ids)
            starpu_data_release(g->ids[i]);
        if (g->targets)
            starpu_data_release(g->targets[i]);
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

/* Replicas of a table add up their gradients, both in the same order: a + b is b + a. */
static void sum_twins(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];
        struct sp_lane lane = sp_stage_lane(g, st, 'T');

        for (int i = 0; i < st->n_blocks; i++) {
            struct sp_block *b = &st->blocks[i];
            struct sp_stage *other = b->twin < 0 ? NULL : sp_graph_stage(g, b->twin);
            starpu_data_handle_t theirs;
            int rank;

            if (b->twin < 0)
                continue;
            if (other) {
                if (b->counted)
                    sp_sum_insert(&lane, b->g, sp_stage_block(other, b->kind, b->layer)->g, true);
                continue;
            }
            rank = sp_stage_rank(&g->place, b->twin);
            theirs = sp_pool_get(st->local, b->n, sizeof(float), "twin gradient");
            sp_transport_send(b->g, rank, sp_tag(g, SP_MSG_TWIN, b->kind, st->index));
            st->bytes_sent += b->n * sizeof(float);
            sp_transport_recv(theirs, rank, sp_tag(g, SP_MSG_TWIN, b->kind, b->twin));
            sp_sum_insert(&lane, b->g, theirs, false);
            sp_pool_put(st->local, theirs);
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
    for (int i = 0; i < g->n_order; i++) {
        struct sp_stage *st = sp_graph_stage(g, g->order[i].stage);

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
