#include "plan/search/bounds.h"
#include "model/tensor_parts.h"
#include "plan/cost/op_times.h"
#include "plan/cost/part_times.h"
#include "plan/search/trial.h"

/* Rates of small and of large products, and what single families leave out, differ a little from what the bound
 * counts. */
static const double CERTAIN = 0.97;

/* Both bounds start from the sizes of one device. */
struct device {
    struct sp_shape shape;
    int apart;       /* devices that share what the shape has, as in a trial */
    double elements; /* parameters, on average over the stages */
    double updated;  /* of these, that it updates */
};

static struct device device_of(const struct sp_search *want, const struct sp_found *f)
{
    char why[128];
    bool apart = f->devices > 1 && !sp_model_is_divisible(want->model, f->devices, why, sizeof why);
    struct device d = {.apart = apart ? f->devices : 1};

    sp_trial_shape(want, f, apart, &d.shape);
    d.elements = (double)sp_model_parameters(&d.shape.held) / d.apart / f->stages;
    d.updated = f->zero ? d.elements / (f->context * f->data) : d.elements;
    return d;
}

double sp_bound_step(const struct sp_search *want, const struct sp_found *f)
{
    const struct device d = device_of(want, f);
    const struct sp_op_terms terms = {.machine = want->machine, .devices = d.apart};
    struct sp_part_times t;
    double layer, all;

    sp_part_times(want->machine, d.apart, &d.shape, &t);
    layer = t.pre + t.attention + t.post + t.pre_input + t.attention_input + t.post_input +
            t.qkv_weight + t.post_weight;
    all = want->model->layers * layer + t.embed + t.embed_weight + t.head;
    return CERTAIN * (1e3 * all * f->micro_batches / f->stages +
                      1e3 * sp_update_time(want->machine, d.updated) +
                      sp_share_time(&d.shape, &terms, d.elements));
}

int64_t sp_bound_memory(const struct sp_search *want, const struct sp_found *f)
{
    const struct device d = device_of(want, f);
    double elem = (double)sp_shape_elem(&d.shape), f32 = sizeof(float);
    double optimizer = 2 * f32 + (f->dtype == SP_F32 ? 0 : f32);

    return (int64_t)(CERTAIN * ((elem + f32) * d.elements + optimizer * d.updated));
}
