#include "plan/expected.h"
#include "sp_error.h"
#include <math.h>
#include <stdlib.h>

/* Measured times of the ops of one global stage, over micro-batches and slices. */
struct measured {
    double f, full, input, w; /* sums, ms */
    int n_f, n_full, n_input, n_w;
};

static void add(const struct sp_plan *plan, int stage, const struct sp_op *op, double ms,
                struct measured *m)
{
    const struct sp_layout *lay = &plan->layout;

    if (op->part == SP_HEAD)
        return;
    if (op->pass == SP_F) {
        m->f += ms;
        m->n_f++;
    } else if (op->pass == SP_W) {
        m->w += ms;
        m->n_w++;
    } else if (plan->deferred && plan->deferred[plan->family->id(lay, stage, op)]) {
        m->input += ms;
        m->n_input++;
    } else {
        m->full += ms;
        m->n_full++;
    }
}

/*
 * Costs of the ops in `share`s of a whole stage, such that all ops together take their measured
 * time: a full backward is an input gradient and a weight gradient.
 */
static void scales(const struct measured *m, double share, double *f, double *b, double *w)
{
    *f = m->n_f ? m->f / m->n_f / share : 0;
    if (!m->n_input) {
        *b = m->n_full ? m->full / m->n_full / share : 0;
        *w = 0;
        return;
    }
    *b = m->input / m->n_input / share;
    *w = (m->w + m->full) / (m->n_w + m->n_full) / share - *b * m->n_full / (m->n_w + m->n_full);
    *w = *w > 0 ? *w : 0;
}

int sp_expected_costs(const struct sp_plan *plan, const struct sp_step_report *report,
                      struct sp_costs *costs)
{
    const struct sp_layout *lay = &plan->layout;
    size_t globals = (size_t)sp_globals(lay);
    double share = (double)lay->stages / ((double)globals * lay->slices);
    double head = 0; /* of one micro-batch, on all stages */
    struct measured *m = calloc(globals, sizeof *m);
    double *scale = calloc(3 * globals, sizeof *scale);

    SP_NEED(m && scale, "out of memory for measured costs");
    for (int s = 0; s < lay->stages; s++)
        for (int i = 0; i < plan->programs[s].n; i++) {
            const struct sp_op *op = &plan->programs[s].ops[i];

            if (op->part == SP_HEAD)
                head += 1e-3 * report->stages[s].ops[i].busy_us / lay->micro_batches;
            add(plan, s, op, 1e-3 * report->stages[s].ops[i].busy_us,
                &m[sp_global_stage(lay, s, op->chunk)]);
        }
    for (size_t g = 0; g < globals; g++)
        scales(&m[g], share, &scale[g], &scale[globals + g], &scale[2 * globals + g]);
    free(m);
    *costs = (struct sp_costs){.f = 1,
                               .b = 1,
                               .w = 1,
                               .scale_f = scale,
                               .scale_b = scale + globals,
                               .scale_w = scale + 2 * globals,
                               .head = head};
    return 0;
}

void sp_expected_costs_free(struct sp_costs *costs)
{
    free((double *)costs->scale_f);
    *costs = (struct sp_costs){0};
}
