#include "graphs/weights/initial.h"
#include "kernels/backend.h"
#include "sinks/starpu/sink.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* Fills a complete block, read from `file` or drawn. */
static int whole_block(const struct sp_graph *g, const struct sp_block *b,
                       const struct sp_st_file *file, float *whole)
{
    if (file)
        return sp_weights_read_block(file, g->cfg.params, b->kind, b->layer, whole);
    sp_block_init(g->cfg.params, b->kind, b->layer, g->cfg.seed, whole);
    return 0;
}

int sp_initial_block(const struct sp_graph *g, const struct sp_block *b,
                     const struct sp_st_file *file, float *part)
{
    size_t all = sp_block_elements(&g->cfg.params->model, b->kind), n = 0;
    size_t held = sp_block_elements(&g->shape.held, b->kind);
    bool divided = g->shape.tensor > 1;
    float *whole = b->n == all && !divided ? part : malloc(all * sizeof *whole);
    float *own = b->n == held || !divided ? (divided ? part : whole) : malloc(held * sizeof *own);
    int err = whole && own ? whole_block(g, b, file, whole)
                           : sp_error(ENOMEM, "no memory for a block of %zu parameters", all);

    if (!err && divided)
        sp_block_take_part(&(struct sp_divided_block){g->cfg.params, &g->held, b->kind, b->layer},
                           sp_tensor_member(g), whole, own);
    if (!err && own != part) {
        n = b->first >= held ? 0 : held - b->first < b->n ? held - b->first : b->n;
        memcpy(part, own + b->first, n * sizeof *part);
        memset(part + n, 0, (b->n - n) * sizeof *part);
    }
    if (own != part && own != whole)
        free(own);
    if (whole != part)
        free(whole);
    return err;
}

/* Draws the i-th block of every local stage. */
struct drawing {
    const struct sp_graph *g;
    int i;
    int *err; /* [local stages]: workers write concurrently */
};

static void clear(struct sp_tensor *t)
{
    const struct sp_backend *k = sp_cpu_backend(SP_F32);

    k->clear(k, sp_tensor_size(t), sp_tensor_local(t));
}

static void draw_on_worker(void *arg)
{
    struct drawing *d = arg;

    for (int k = 0; k < d->g->place.n_local; k++) {
        const struct sp_stage *st = &d->g->stages[k];
        const struct sp_block *b = &st->blocks[d->i];

        if (st->worker != sp_worker_here() || d->i >= st->n_blocks)
            continue;
        d->err[k] = sp_initial_block(d->g, b, NULL, sp_tensor_local(b->state[SP_STATE_MASTER]));
        clear(b->state[SP_STATE_G]);
        clear(b->state[SP_STATE_M]);
        clear(b->state[SP_STATE_V]);
    }
}

/* Visits one block of each stage at a time: with limited memory, other blocks may have to be
 * evicted. */
static void each_handle(const struct drawing *d, void (*act)(struct sp_tensor *handle))
{
    for (int k = 0; k < d->g->place.n_local; k++) {
        const struct sp_stage *st = &d->g->stages[k];

        for (int i = 0; i < SP_STATE_W && d->i < st->n_blocks; i++)
            act(st->blocks[d->i].state[i]);
    }
}

static void acquire(struct sp_tensor *t)
{
    sp_tensor_acquire(t, SP_WRITE);
}

int sp_initial_values(struct sp_graph *g)
{
    struct drawing d = {.g = g, .err = calloc((size_t)g->place.n_local, sizeof *d.err)};
    int blocks = 0, err = 0;

    if (!d.err)
        return sp_error(ENOMEM, "no memory for %d stages", g->place.n_local);
    for (int k = 0; k < g->place.n_local; k++)
        blocks = g->stages[k].n_blocks > blocks ? g->stages[k].n_blocks : blocks;
    for (; d.i < blocks && !err; d.i++) {
        each_handle(&d, acquire);
        sp_workers_run(draw_on_worker, &d);
        each_handle(&d, sp_tensor_release);
        for (int k = 0; k < g->place.n_local && !err; k++)
            err = d.err[k];
    }
    free(d.err);
    return err;
}
