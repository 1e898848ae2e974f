#include "graphs/inference/inference.h"
#include "graphs/weights/checkpoint.h"

int sp_evaluate(struct sp_graph *g, const struct sp_data *data, int steps, double *loss)
{
    struct sp_step_report report;
    const struct sp_layout *lay = &g->cfg.plan->layout;
    int pipelines = g->place.pipelines / (sp_graph_members(g) * g->shape.tensor);
    double step_tokens = (double)pipelines * lay->micro_batches * g->shape.batch * g->shape.seq;
    double sum = 0;
    int err = sp_step_report_create(g, &report);

    if (err)
        return err;
    for (int k = 0; k < steps; k++) {
        sp_step_gradients(g, data, (uint64_t)k, &report);
        sum += report.loss * step_tokens;
        sp_checkpoint_clear(g, SP_FIELD_G); /* every step: sums of many steps could overflow */
    }
    g->finished_us = 0; /* the next step's time begins when it begins */
    sp_step_report_destroy(g, &report);
    *loss = sum / (data->once ? (double)(data->tokens - 1) : steps * step_tokens);
    return 0;
}
