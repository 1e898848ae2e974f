#include "plan/cost/shared_attention.h"
#include "kernels/kernels.h"

double sp_queries_flops(const struct sp_shape *slice, int before)
{
    const struct sp_model *m = &slice->model;
    struct sp_attention at = {.batch = slice->batch,
                              .heads = m->heads,
                              .kv_heads = m->kv_heads,
                              .head_dim = m->head_dim,
                              .q_len = slice->seq,
                              .q_pos = before};

    return sp_flops_attention(&at);
}

double sp_shared_attention_s(const struct sp_op_terms *terms, const struct sp_shape *sh,
                             enum sp_attention_pass pass, double flops)
{
    const struct sp_attention_call call = {.pass = pass,
                                           .flops = flops,
                                           .heads = (double)sh->batch * sh->model.heads,
                                           .parts = terms->devices * sp_shape_spread(sh)};

    return sp_attention_s(terms->machine, sh, &call);
}

double sp_merge_s(const struct sp_op_terms *terms, const struct sp_shape *sh, double elements)
{
    return sp_memory_s(terms->machine, sh->dtype,
                       (double)sp_shape_elem(sh) * elements / terms->devices) +
           terms->machine->rates.launch_s;
}

double sp_exchange_s(const struct sp_op_terms *terms, const struct sp_shape *sh, int from, int to,
                     double elements)
{
    const struct sp_machine *m = terms->machine;
    int each = terms->devices, per_node = m->devices_per_node / each;
    bool inside = per_node > 0 && from / per_node == to / per_node;
    double bytes = (double)sp_shape_elem(sh) * elements / each;

    if (terms->process && terms->process[from] == terms->process[to])
        return 0;
    return sp_link_s(inside ? &m->node : &m->network, bytes);
}
