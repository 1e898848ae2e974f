#include "graphs/tokens.h"
#include "kernels/kernels.h"
#include "model/documents.h"
#include "policies/families/ownership.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* The number of copies of the targets: 1, or one per local stage. */
static int copies_of(const struct sp_graph *g)
{
    return sp_graph_shares_vocabulary(g) ? g->place.n_local : 1;
}

struct sp_tensor **sp_stage_targets(const struct sp_graph *g, const struct sp_stage *st)
{
    const struct sp_cut *cut = &g->cuts[g->n_cuts - 1];
    int each = g->cfg.plan->layout.micro_batches * cut->n * cut->n_shares;

    return sp_graph_tokens(g)->targets + (copies_of(g) > 1 ? (st - g->stages) * each : 0);
}

/* Makes the handles of ids, or with `last` of targets, on the stages that read them: one for each
 * slice of a micro-batch. This thread writes them between steps. */
static int add(struct sp_graph *g, bool last, int32_t **memory, struct sp_tensor ***handles,
               const char *name)
{
    const struct sp_layout *lay = &g->cfg.plan->layout;
    struct sp_sink *s = g->cfg.sink;
    const struct sp_cut *cut = &g->cuts[last ? g->n_cuts - 1 : 0];
    size_t parts = (size_t)cut->n_shares, T = (size_t)g->shape.rows * parts;
    size_t copies = last ? (size_t)copies_of(g) : 1;
    size_t m = copies * (size_t)lay->micro_batches, n = (size_t)cut->n * parts;
    bool local = last && sp_graph_shares_vocabulary(g);

    for (int k = 0; k < g->place.n_local; k++)
        local |= sp_is_end_stage(g->cfg.plan, g->place.first_local + k, last);
    if (!local)
        return 0;
    *memory = sp_sink_computes(s) ? calloc(m * T, sizeof **memory) : NULL;
    *handles = calloc(m * n, sizeof **handles);
    if ((sp_sink_computes(s) && !*memory) || !*handles)
        return -ENOMEM;
    if (*memory && g->place.gpus)
        s->ops->pin(*memory, m * T * sizeof **memory);
    for (size_t i = 0, at = 0; i < m * n; i++) {
        int rows = cut->shapes[i % n / parts].rows;

        (*handles)[i] = sp_tensor_make_at(s, *memory ? *memory + at : NULL, (size_t)rows,
                                          sizeof(int32_t), name);
        at += (size_t)rows;
    }
    return 0;
}

int sp_tokens_create(struct sp_graph *g)
{
    int err = 0;

    for (int turn = 0; !err && turn < 2; turn++) {
        struct sp_tokens *t = &g->tokens[turn];

        err = add(g, false, &t->ids_memory, &t->ids, "ids");
        err = err ? err : add(g, true, &t->targets_memory, &t->targets, "targets");
    }
    return err;
}

static void destroy(struct sp_graph *g, bool last, struct sp_tensor **handles, int32_t *memory)
{
    const struct sp_cut *cut = &g->cuts[last ? g->n_cuts - 1 : 0];
    int m = g->cfg.plan->layout.micro_batches * (last ? copies_of(g) : 1);

    for (int i = 0; handles && i < m * cut->n * cut->n_shares; i++)
        sp_tensor_unmake_at(handles[i]);
    free(handles);
    if (memory && g->place.gpus)
        g->cfg.sink->ops->unpin(memory, (size_t)(m * cut->n_shares) * (size_t)g->shape.rows *
                                            sizeof *memory);
    free(memory);
}

void sp_tokens_destroy(struct sp_graph *g)
{
    for (int turn = 0; turn < 2; turn++) {
        destroy(g, false, g->tokens[turn].ids, g->tokens[turn].ids_memory);
        destroy(g, true, g->tokens[turn].targets, g->tokens[turn].targets_memory);
    }
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Converts ids to rows of part `member` of a vocabulary in `parts` parts; -1: not in the part. No
 * target stays none. */
static void localise(const struct sp_model *m, int parts, int member, const int32_t *ids, int n,
                     int32_t *rows)
{
    int first, count;

    sp_vocabulary_part(m, parts, member, &first, &count);
    for (int i = 0; i < n; i++)
        rows[i] = ids[i] == SP_NO_TARGET                      ? SP_NO_TARGET
                  : ids[i] >= first && ids[i] < first + count ? ids[i] - first
                                                              : -1;
}

/* Copies the tokens of one sequence, slice by slice, as far as this process has them, to row b of
 * each (B, len) piece. */
static void scatter(const struct sp_cut *cut, int b, const int32_t *row, int32_t *memory)
{
    for (int k = 0; k < cut->n * cut->n_shares; k++) {
        const struct sp_shape *sh = cut->shares ? &cut->shares[k] : &cut->shapes[k];

        for (int i = 0; i < sp_shape_runs(sh); i++) {
            struct sp_tokens_run run = sp_shape_run(sh, i);

            for (int t = 0; t < run.len; t++)
                memory[run.row + (size_t)b * (size_t)run.len + (size_t)t] =
                    row[run.first + t * sh->stride];
        }
        memory += sh->rows;
    }
}

static void acquire_tokens(struct sp_graph *g, int mb, void (*call)(struct sp_tensor *))
{
    const struct sp_tokens *t = sp_graph_tokens(g);
    const struct sp_cut *begin = &g->cuts[0], *end = &g->cuts[g->n_cuts - 1];
    int first = begin->n * begin->n_shares, last = end->n * end->n_shares;

    for (int k = 0; t->ids && k < first; k++)
        call(t->ids[mb * first + k]);
    for (int c = 0; t->targets && c < copies_of(g); c++)
        for (int k = 0; k < last; k++)
            call(t->targets[(c * g->cfg.plan->layout.micro_batches + mb) * last + k]);
}

static void acquire(struct sp_tensor *t)
{
    sp_tensor_acquire(t, SP_WRITE);
}

/* Writes row b of the targets of micro-batch i. If stages split the vocabulary, each stage gets its
 * own rows of it. */
static void scatter_targets(struct sp_graph *g, int i, int b, size_t rows)
{
    const struct sp_tokens *t = sp_graph_tokens(g);
    int S = g->shape.seq, M = g->cfg.plan->layout.micro_batches;
    int32_t *row = g->row + S;

    for (int c = 0; c < copies_of(g); c++) {
        if (sp_graph_shares_vocabulary(g)) {
            row = g->row + 2 * S;
            localise(&g->shape.held, g->place.stages, g->place.first_local + c, g->row + S, S, row);
        }
        scatter(&g->cuts[g->n_cuts - 1], b, row, t->targets_memory + (size_t)(c * M + i) * rows);
    }
}

void sp_tokens_fill(struct sp_graph *g, const struct sp_data *data, uint64_t k)
{
    int M = g->cfg.plan->layout.micro_batches, B = g->shape.batch, S = g->shape.seq;
    int members = sp_graph_members(g) * g->shape.tensor;
    uint64_t turn =
        k * (uint64_t)(g->place.pipelines / members) + (uint64_t)(g->place.pipeline / members);
    const struct sp_tokens *t = sp_graph_tokens(g);
    size_t T = (size_t)g->shape.rows * (size_t)g->cuts[0].n_shares;

    if (!data || (!t->ids && !t->targets && !g->cfg.separates))
        return;
    for (int i = 0; i < M; i++) {
        acquire_tokens(g, i, acquire);
        for (int b = 0; b < B; b++) {
            uint64_t n = (turn * (uint64_t)M + (uint64_t)i) * (uint64_t)B + (uint64_t)b;

            if (sp_data_sample(data, n, S, g->row, g->row + S))
                sp_error_said_end(); /* other processes wait for results of these tokens */
            if (g->cfg.separates &&
                sp_documents_read(&g->documents[g->turn][i], b, g->row, S, g->cfg.separator))
                sp_error_end("no memory for the documents of a step");
            if (g->shape.tensor > 1)
                localise(&g->cfg.params->model, g->shape.tensor, sp_tensor_member(g), g->row, 2 * S,
                         g->row);
            if (t->ids)
                scatter(&g->cuts[0], b, g->row, t->ids_memory + (size_t)i * T);
            if (t->targets)
                scatter_targets(g, i, b, T);
        }
        acquire_tokens(g, i, sp_tensor_release);
    }
}
