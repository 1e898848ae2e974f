#include "plan/search/bounds.h"
#include "model/tensor_parts.h"
#include "plan/cost/op_times.h"
#include "plan/cost/part_times.h"
#include <math.h>
#include <string.h>

/* The bound ignores differences between the rates of small and large products, and work that single
 * families leave out; this covers them. */
static const double CERTAIN = 0.97;

/* The sizes of one device, from which both bounds start. */
struct device {
    struct sp_shape shape;
    int apart;       /* devices that share the sizes of `shape`, as in a trial */
    double elements; /* parameters, on average over the stages */
    double updated;  /* the part of them that it updates */
    bool hides;      /* ops that overlap may hide all exchanges behind each other */
};

static struct device device_of(const struct sp_search *want, const struct sp_found *f)
{
    char why[128];
    bool apart = f->devices > 1 && !sp_model_is_divisible(want->model, f->devices, why, sizeof why);
    struct device d = {.apart = apart ? f->devices : 1};

    sp_found_shape(want, f, apart, &d.shape);
    d.elements = (double)sp_model_parameters(&d.shape.held) / d.apart / f->stages;
    d.hides = f->devices * f->context > 1 && !strncmp(f->schedule, "dualpipe", 8);
    d.updated = f->zero ? d.elements / (f->context * f->data) : d.elements;
    return d;
}

static void part_times(const struct sp_machine *machine, const struct device *d,
                       struct sp_part_times *t)
{
    struct sp_machine alone;

    if (!d->hides) {
        sp_part_times(machine, d->apart, &d->shape, t);
        return;
    }
    sp_machine_cut_links(machine, &alone);
    sp_part_times(&alone, d->apart, &d->shape, t);
}

/* Seconds of one device for all layers, embedding and head of a micro-batch. */
static double whole_model(const struct sp_search *want, const struct sp_machine *machine,
                          const struct device *d)
{
    struct sp_part_times t;

    part_times(machine, d, &t);
    return want->model->layers * sp_part_times_sum(&t) + t.embed + t.embed_weight + t.head;
}

/* The same for a mean device of all kinds of nodes; if some devices are idle, for the fastest. */
static double mean_model(const struct sp_search *want, const struct sp_found *f,
                         const struct device *d)
{
    const struct sp_machine *m = want->machine;
    int64_t all = (int64_t)sp_machine_nodes(m) * m->devices_per_node;
    double rate = 0, fastest = 0;

    if (!m->kinds)
        return whole_model(want, m, d);
    for (int k = 0; k < m->kinds; k++) {
        double its = 1 / whole_model(want, m->kind[k].machine, d);

        rate += m->kind[k].count * its;
        fastest = fmax(fastest, its);
    }
    return sp_found_processes(f) < all ? 1 / fastest : sp_machine_nodes(m) / rate;
}

static double least_update(const struct sp_search *want, double elements)
{
    double least = sp_update_time(want->machine, elements);

    if (want->states_evicted && want->optimizer != SP_UPDATE_GPU &&
        !sp_machine_is_cpu(want->machine))
        return 0; /* cores may update for GPUs */
    for (int k = 0; k < want->machine->kinds; k++)
        least = fmin(least, sp_update_time(want->machine->kind[k].machine, elements));
    return least;
}

double sp_bound_step(const struct sp_search *want, const struct sp_found *f)
{
    const struct device d = device_of(want, f);
    const struct sp_op_terms terms = {.machine = want->machine, .devices = d.apart};
    bool shares = !want->machine->kinds && f->zero < 2; /* else while ops run */
    double share_ms = shares ? sp_share_time(&d.shape, &terms, d.elements, d.elements) : 0;

    return CERTAIN * (1e3 * mean_model(want, f, &d) * f->micro_batches / f->stages +
                      1e3 * least_update(want, d.updated) + share_ms);
}

double sp_bound_balanced(const struct sp_search *want, const struct sp_found *f)
{
    const struct device d = device_of(want, f);
    int layers = want->model->layers, chunks = f->chunks > 1 ? f->chunks : 1;
    int most = (layers + f->stages * chunks - 1) / (f->stages * chunks);
    struct sp_part_times t;
    double layer, first, last, slowest;

    if (want->machine->kinds)
        return 0;
    sp_part_times(want->machine, d.apart, &d.shape, &t);
    layer = sp_part_times_sum(&t);
    first = t.embed + t.embed_weight;
    last = f->vocabulary ? 0 : t.head;
    slowest = chunks * most * layer; /* the first stages take the remaining layers */
    slowest = fmax(slowest + (chunks == 1 ? first : 0),
                   layers / (f->stages * chunks) * chunks * layer + last);
    return (layers * layer + first + last) / f->stages / slowest;
}

int64_t sp_bound_memory(const struct sp_search *want, const struct sp_found *f)
{
    const struct device d = device_of(want, f);
    double elem = (double)sp_shape_elem(&d.shape), f32 = sizeof(float);
    double optimizer = 2 * f32 + (f->dtype == SP_F32 ? 0 : f32);

    double weights = f->zero >= 3 ? d.updated : d.elements;
    double gradients = f->zero >= 2 ? d.updated : d.elements;

    return (int64_t)(CERTAIN * (elem * weights + f32 * gradients +
                                (want->states_evicted ? 0 : optimizer * d.updated)));
}
