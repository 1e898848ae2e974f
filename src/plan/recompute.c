#include "plan/recompute.h"
#include "plan/memory.h"
#include "plan/offload/offload.h"
#include "policies/families/families.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* A way to compute again, on its way. */
struct trial {
    const struct sp_recompute_wish *wish;
    struct sp_recompute_chosen *best;
    enum sp_recompute mode;
    unsigned char *layer; /* [layers] */
    int again;            /* layers that compute again */
};

static int layers_of(const struct trial *t, int stage)
{
    const struct sp_plan *plan = t->wish->plan;
    int sum = 0, first, count;

    for (int c = 0; c < sp_chunks_of(plan); c++) {
        sp_chunk_layers(plan, t->wish->shape->model.layers, stage, c, &first, &count);
        sum += count;
    }
    return sum;
}

/* k of the n layers of a stage compute again, evenly spread. */
static void spread(struct trial *t, int stage, int k)
{
    const struct sp_plan *plan = t->wish->plan;
    int n = layers_of(t, stage), i = 0, first, count;

    for (int c = 0; c < sp_chunks_of(plan); c++) {
        sp_chunk_layers(plan, t->wish->shape->model.layers, stage, c, &first, &count);
        for (int l = first; l < first + count; l++, i++) {
            bool again = (i + 1) * k / n > i * k / n;

            t->layer[l] = again ? (unsigned char)t->mode : SP_RECOMPUTE_NONE;
        }
    }
}

static int most_layers(const struct trial *t)
{
    int most = 0;

    for (int s = 0; s < t->wish->plan->layout.stages; s++)
        most = layers_of(t, s) > most ? layers_of(t, s) : most;
    return most;
}

/* ---- one way ------------------------------------------------------------------------------------ */

static struct sp_op_terms terms_of(const struct trial *t)
{
    return (struct sp_op_terms){.machine = t->wish->machine,
                                .devices = t->wish->devices,
                                .recompute = t->mode,
                                .every = 1,
                                .process = t->wish->process};
}

/* Whether the layers of a stage that keep all fit. */
static bool fits(const struct trial *t, int stage)
{
    struct sp_memory m = sp_memory_of_stage(t->wish->plan, t->wish->shape, t->mode, 1, stage);

    return sp_memory_sum(&m) <= t->wish->limit;
}

/* What may leave of a stage that has so many bytes. */
static struct sp_offload_request request_of(const struct trial *t, int64_t limit)
{
    const struct sp_recompute_wish *w = t->wish;
    struct sp_op_terms terms = terms_of(t);
    struct sp_offload_request want = sp_offload_request(&terms, w->shape, w->offload, limit);

    want.keys = w->keys;
    return want;
}

/* What leaves of the others, into the plan. 0, -ENOMEM or -EINVAL: that is not enough. */
static int let_leave(const struct trial *t)
{
    const struct sp_recompute_wish *w = t->wish;
    struct sp_offload_request want = request_of(t, w->limit);
    struct sp_offload offload = {0};
    struct sp_offload_lack lack;
    int err = sp_offload_try(w->plan, w->shape, &want, &offload, &lack);

    err = err ? err : sp_offload_apply(&offload, w->shape, w->plan);
    sp_offload_destroy(&offload);
    return err;
}

/* Predicts the step, and takes it if it is the best so far. */
static int weigh(struct trial *t, bool leaves)
{
    const struct sp_recompute_wish *w = t->wish;
    struct sp_recompute_chosen *best = t->best;
    size_t layers = (size_t)w->shape->model.layers;
    struct sp_predict_request request = {.plan = w->plan,
                                         .shape = w->shape,
                                         .terms = terms_of(t),
                                         .worker = w->worker,
                                         .tier = sp_offload_tier(w->machine, w->devices)};
    struct sp_prediction p;
    int err = sp_predict(&request, &p);

    if (err)
        return err;
    if (!best->tried++ || p.step_ms < best->step_ms * (1 - 1e-9)) {
        best->step_ms = p.step_ms;
        best->mode = t->again ? t->mode : SP_RECOMPUTE_NONE;
        best->layers = t->again;
        best->leaves = leaves;
        memcpy(best->layer, t->layer, layers);
    }
    sp_prediction_destroy(&p);
    return 0;
}

static int count_again(const struct trial *t)
{
    int n = 0;

    for (int l = 0; l < t->wish->shape->model.layers; l++)
        n += t->layer[l] != SP_RECOMPUTE_NONE;
    return n;
}

/* As many layers of every stage as it needs. */
static int need(struct trial *t)
{
    for (int s = 0; s < t->wish->plan->layout.stages; s++) {
        int n = layers_of(t, s), k = 0;

        spread(t, s, 0);
        while (!fits(t, s)) {
            if (k == n || t->mode == SP_RECOMPUTE_NONE)
                return 0;
            spread(t, s, ++k);
        }
    }
    t->again = count_again(t);
    return weigh(t, false);
}

/* k of the layers of a stage with most of them, as large a part of every other's. */
static int leave(struct trial *t, int k, int most)
{
    int err;

    for (int s = 0; s < t->wish->plan->layout.stages; s++)
        spread(t, s, k * layers_of(t, s) / most);
    t->again = count_again(t);
    err = let_leave(t);
    err = err ? err : weigh(t, true);
    sp_evictions_destroy(t->wish->plan->evictions, t->wish->plan->layout.stages);
    t->wish->plan->evictions = NULL;
    return err == -EINVAL ? 0 : err;
}

/* ---- all of them -------------------------------------------------------------------------------- */

static bool refused(const struct trial *t)
{
    const struct sp_train_wish wish = {
        .recompute = t->mode, .recompute_text = sp_recompute_name(t->mode), .partition = "even"};
    bool quiet = sp_error_quiet(true), refuses = sp_plan_refuse(t->wish->plan, &wish);

    sp_error_quiet(quiet);
    return refuses;
}

/* Bytes of the fullest stage with all its layers in the mode, and all away that may leave. */
static int64_t least_of(const struct trial *t)
{
    const struct sp_recompute_wish *w = t->wish;
    struct sp_offload_request want = request_of(t, 1);
    struct sp_offload offload = {0};
    struct sp_offload_lack lack;
    struct sp_memory most;

    if (!w->offload) {
        sp_memory_fullest(w->plan, w->shape, t->mode, 1, &most);
        return sp_memory_sum(&most);
    }
    sp_offload_try(w->plan, w->shape, &want, &offload, &lack); /* says what a byte lacks */
    sp_offload_destroy(&offload);
    return sp_memory_sum(&lack.memory) + lack.least;
}

/* The mode that needs least, where nothing fits. */
static void take_least(struct trial *t)
{
    int64_t least = INT64_MAX;

    t->wish->plan->recompute = NULL;
    for (int mode = SP_RECOMPUTE_NONE; mode <= SP_RECOMPUTE_FULL; mode++) {
        int64_t bytes;

        t->mode = (enum sp_recompute)mode;
        bytes = refused(t) ? INT64_MAX : least_of(t);
        if (bytes < least) {
            least = bytes;
            t->best->mode = t->mode;
        }
    }
}

static int try_mode(struct trial *t)
{
    enum { STEPS = 16 }; /* for stages of very many layers */
    int most = most_layers(t), step = (most + STEPS - 1) / STEPS, first, err;

    if (refused(t))
        return 0;
    memset(t->layer, SP_RECOMPUTE_NONE, (size_t)t->wish->shape->model.layers);
    err = need(t);
    first = t->mode == SP_RECOMPUTE_NONE ? 0 : step;
    for (int k = first; !err && t->wish->offload && k <= most; k += step) {
        err = leave(t, k, most);
        if (t->mode == SP_RECOMPUTE_NONE)
            break;
    }
    return err;
}

int sp_recompute_choose(const struct sp_recompute_wish *wish, struct sp_recompute_chosen *chosen)
{
    size_t layers = (size_t)wish->shape->model.layers;
    struct trial t = {.wish = wish, .best = chosen, .layer = calloc(layers, 1)};
    int err = 0;

    *chosen = (struct sp_recompute_chosen){.layer = calloc(layers, 1)};
    if (!t.layer || !chosen->layer)
        err = -ENOMEM;
    wish->plan->recompute = t.layer;
    for (int mode = SP_RECOMPUTE_NONE; !err && mode <= SP_RECOMPUTE_FULL; mode++) {
        t.mode = (enum sp_recompute)mode;
        err = try_mode(&t);
    }
    if (!err && !chosen->tried) {
        take_least(&t);
        err = -EINVAL;
    }
    wish->plan->recompute = NULL;
    free(t.layer);
    if (err || !chosen->layers) {
        free(chosen->layer);
        chosen->layer = NULL;
    }
    return err;
}
