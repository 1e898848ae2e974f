#include "plan/cost/part_times.h"
#include "kernels/kernels.h"
#include "model/tensor_parts.h"
#include <math.h>

struct cost {
    const struct sp_machine *machine;
    const struct sp_shape *sh;
    double devices;
};

/* Seconds of a product whose operations are shared by all devices. */
static double product_in(const struct cost *c, enum sp_dtype dtype, double flops)
{
    const struct sp_curve *curve = c->machine->rates.matmul;

    return sp_curve_s(&curve[curve[dtype].n ? dtype : sp_dtype_elements(dtype)],
                      flops / c->devices);
}

/* The same in the type of a layer's products. */
static double product_of(const struct cost *c, double flops)
{
    return product_in(c, c->sh->dtype, flops);
}

static double product(const struct cost *c, enum sp_role role)
{
    return product_of(c, c->sh->rows * sp_product_flops(&c->sh->model, role));
}

/* A product of the head, of `vocab` rows of its table. */
static double head_product(const struct cost *c, double vocab)
{
    return product_in(c, sp_dtype_elements(c->sh->dtype),
                      sp_flops_linear(c->sh->rows, c->sh->model.hidden, vocab));
}

/* Seconds to read or write `width` elements of every row. */
static double moved(const struct cost *c, double width)
{
    return sp_memory_s(c->machine, c->sh->dtype,
                       (double)sp_shape_elem(c->sh) * c->sh->rows * width / c->devices);
}

/* How many devices hold a part of a layer's parameters each. */
static double group_of(const struct cost *c)
{
    return c->devices * c->sh->tensor;
}

/* Gathers rows from the devices of the stage, or scatters their sums, around a ring. Beyond a node
 * the ring uses all interfaces of each node. If every device has all rows, a gather counts as half
 * of an all-reduce of their sums. */
static double gathered(const struct cost *c)
{
    double group = group_of(c), share = c->sh->sequence ? c->sh->tensor : 1;
    double bytes = (double)sp_shape_elem(c->sh) * c->sh->rows * share * c->sh->model.hidden;
    double sent = bytes * (group - 1) / group, within, beyond;

    if (group <= 1)
        return 0;
    if (c->sh->tensor > 1 && !c->sh->sequence)
        sent = bytes * log2(c->sh->tensor) / 2;
    within = sp_link_s(&c->machine->node, sent);
    if (group <= c->machine->devices_per_node)
        return within;
    beyond = sp_link_s(&c->machine->network,
                       sent * c->machine->network.shared_by / c->machine->devices_per_node);
    return beyond > within ? beyond : within;
}

/* The width of a row of keys and values, counting heads that several devices have. */
static double keys_width(const struct cost *c)
{
    double copies = (double)c->sh->ulysses / c->sh->held.kv_heads;

    return c->sh->kv_width * fmax(copies, 1);
}

/* The keys and values of all tokens up to these pass through all groups that share them, one after
 * the other, in the backward with their gradients. The slowest link decides. Beyond the node the
 * devices of a group send at the same time, to those of the next. */
static double passed(const struct cost *c, enum sp_attention_pass pass)
{
    int members = c->sh->ring, turns = members - 1;
    double bytes = (double)sp_shape_elem(c->sh) * c->sh->batch * (c->sh->first + c->sh->seq) /
                   c->sh->context * keys_width(c) / c->devices / sp_shape_shares(c->sh);
    double group = c->sh->ulysses * group_of(c);
    const struct sp_link *network = &c->machine->network;

    if (members == 1)
        return 0;
    if (pass == SP_ATTENTION_BACKWARD)
        turns += members;
    if (members * group <= c->machine->devices_per_node)
        return turns * sp_link_s(&c->machine->node, bytes);
    return turns * sp_link_s(network, bytes * fmin(group, network->shared_by));
}

/* An all-to-all of the devices that share tokens turns queries, keys, values and outputs from parts
 * of the tokens to parts of the heads. Beyond the node it goes through an interface that others
 * share. */
static double exchanged(const struct cost *c)
{
    double members = c->sh->ulysses, inside = c->machine->devices_per_node / group_of(c);
    double bytes = (double)sp_shape_elem(c->sh) * c->sh->rows / c->devices *
                   (2 * c->sh->q_width + keys_width(c)) / members;
    double within, beyond;

    if (members == 1)
        return 0;
    inside = inside < 1 ? 1 : inside < members ? inside : members;
    within = inside > 1 ? sp_link_s(&c->machine->node, bytes * (inside - 1)) : 0;
    if (inside >= members)
        return within;
    beyond =
        sp_link_s(&c->machine->network, bytes * (members - inside) * c->machine->network.shared_by);
    return beyond > within ? beyond : within;
}

double sp_memory_s(const struct sp_machine *machine, enum sp_dtype dtype, double bytes)
{
    const enum sp_dtype elements = sp_dtype_elements(dtype);
    const struct sp_curve *curve = machine->rates.memory;

    return sp_curve_s(&curve[curve[elements].n ? elements : SP_F32], bytes);
}

double sp_attention_s(const struct sp_machine *machine, const struct sp_shape *sh,
                      const struct sp_attention_call *call)
{
    const enum sp_dtype elements = sp_dtype_elements(sh->dtype);
    const struct sp_curve *curve = &machine->rates.attention[elements][call->pass];
    const struct sp_curve *pairs = &machine->rates.pairs[elements][call->pass];
    double times = call->pass == SP_ATTENTION_FORWARD ? 1 : 2.5, one = call->flops / call->heads;

    if (call->flops <= 0)
        return 0;
    if (!pairs->n)
        return times * call->flops / call->parts / sp_curve_rate(curve, call->flops / call->parts);
    return call->heads / call->parts *
           (sp_curve_s(curve, times * one) + sp_curve_s(pairs, one / 4 / sh->model.head_dim));
}

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

double sp_stage_attention_s(const struct sp_machine *machine, double devices,
                            const struct sp_shape *sh, enum sp_attention_pass pass, double flops)
{
    const struct sp_attention_call call = {.pass = pass,
                                           .flops = flops,
                                           .heads = (double)sh->batch * sh->model.heads,
                                           .parts = devices * sp_shape_spread(sh)};

    return sp_attention_s(machine, sh, &call);
}

static double attention(const struct cost *c, enum sp_attention_pass pass)
{
    double s = sp_stage_attention_s(c->machine, c->devices, c->sh, pass,
                                    sp_queries_flops(c->sh, c->sh->first));

    if (c->sh->context == 1)
        return s;
    /* in a ring, the keys of the next turn arrive while attention reads those of this one */
    return fmax(s, passed(c, pass)) + exchanged(c);
}

static void again(struct sp_part_times *t, double norm, double activation, double down)
{
    t->pre_again[SP_RECOMPUTE_SELECTIVE] = norm;
    t->post_again[SP_RECOMPUTE_SELECTIVE] = norm + activation;
    /* the MLP's last product gives the layer's output, which no backward of the layer needs */
    t->pre_again[SP_RECOMPUTE_NO_ATTENTION] = t->pre_again[SP_RECOMPUTE_FULL] = t->pre;
    t->post_again[SP_RECOMPUTE_NO_ATTENTION] = t->post_again[SP_RECOMPUTE_FULL] = t->post - down;
    t->attention_again[SP_RECOMPUTE_FULL] = t->attention;
}

static double head(const struct cost *c)
{
    const double h = c->sh->model.hidden, vocab = c->sh->model.vocab;

    bool shared = c->sh->tensor > 1, again = shared && !sp_shape_keeps_logits(c->sh);

    /* logits are written, read twice and overwritten by their gradient; if they are many and the
     * vocabulary is shared, they are computed and written twice */
    return (3 + again) * head_product(c, vocab) + moved(c, 6 * h) +
           moved(c, (4 + 2 * again) * vocab) + (shared ? 2 * gathered(c) : 0) +
           (1 + shared) * c->machine->rates.launch_s;
}

void sp_head_times(const struct sp_machine *machine, int devices, const struct sp_shape *sh,
                   int stages, struct sp_head_times *t)
{
    const struct cost c = {.machine = machine, .sh = sh, .devices = devices};
    const double h = sh->model.hidden, vocab = sp_vocabulary_rows(&sh->model, stages);
    double product = head_product(&c, vocab);
    double input = sh->tensor > 1 && !sh->sequence ? 0 : gathered(&c);
    bool again = !sp_shape_keeps_logits(sh);

    /* forward: logits are written and read; backward: they are read and overwritten by their
     * gradient, which both products read */
    *t = (struct sp_head_times){
        .norm = moved(&c, 2 * h) + machine->rates.launch_s,
        .forward = product + moved(&c, h + 2 * vocab) + input + machine->rates.launch_s,
        .backward = (2 + again) * product + moved(&c, 2 * h + (3 + again) * vocab) + gathered(&c) +
                    machine->rates.launch_s,
        .norm_input = moved(&c, (3 + stages) * h) + machine->rates.launch_s,
    };
}

void sp_part_times(const struct sp_machine *machine, int devices, const struct sp_shape *sh,
                   struct sp_part_times *t)
{
    const struct cost c = {.machine = machine, .sh = sh, .devices = devices};
    const double h = sh->model.hidden, f = sh->model.mlp, up = sh->up_width;
    const double task = machine->rates.launch_s, ring = gathered(&c);
    const double ring_w = sh->tensor > 1 && !sh->sequence ? 0 : ring; /* inputs are already there */
    const double ends = sh->tensor > 1 ? ring : 0;
    double norm = moved(&c, 2 * h), norm_input = moved(&c, 4 * h), activation = moved(&c, up + f);
    double down = product(&c, SP_ROLE_DOWN);
    double in_post = product(&c, SP_ROLE_OUT) + product(&c, SP_ROLE_UP) + down;
    /* norms of heads are read and written; the backward repeats the products and the norms */
    const double width = sh->model.qk_norm ? sh->q_width + sh->kv_width / 2 : 0;
    double heads = moved(&c, 2 * width), qkv = product(&c, SP_ROLE_QKV);

    *t = (struct sp_part_times){
        .qkv = qkv + heads,
        .qkv_input = qkv + 3 * heads + product_of(&c, sp_flops_linear(sh->rows, h, width)),
        .qkv_weight = qkv + ring_w + task,
        .out = product(&c, SP_ROLE_OUT),
        .up = product(&c, SP_ROLE_UP) + ring_w,
        .attention = attention(&c, SP_ATTENTION_FORWARD) + task,
        .post = in_post + norm + activation + 3 * ring + task,
        .attention_input = attention(&c, SP_ATTENTION_BACKWARD) + task,
        /* activation: u and dg read, du written */
        .post_input = in_post + norm_input + moved(&c, 2 * up + f) + 3 * ring + task,
        .post_weight = in_post + ring_w + task,
        .embed =
            moved(&c, 3 * h) + ends + task, /* token and position rows read, their sum written */
        .embed_weight = moved(&c, 3 * h) + ends + task,
        .head = head(&c),
    };
    t->pre = t->qkv + norm + ring + task;
    /* x, dy, dr read, dx written */
    t->pre_input = t->qkv_input + norm_input + ring + task;
    again(t, norm, activation, down);
}

double sp_update_time(const struct sp_machine *machine, double elements)
{
    /* one pass reads the gradient for its norm; one reads it, the weight and two moments, writes
     * three */
    return sp_memory_s(machine, SP_F32, sizeof(float) * elements) +
           sp_memory_s(machine, SP_F32, 7 * sizeof(float) * elements) + 2 * machine->rates.launch_s;
}
