#include "policies/plan.h"
#include "sp_error.h"
#include "policies/simulation/costs.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct sp_costs sp_costs_unit = {
    .f = 1, .b = 1, .w = 1, .parts = {.pre = 1, .attn = 3, .post = 2, .backward = 2}};

double sp_op_cost(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                  const struct sp_op *op)
{
    if (costs->by_op)
        return costs->by_op[plan->family->id(&plan->layout, stage, op)];
    return plan->family->cost(plan, costs, stage, op);
}

double sp_op_again(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                   const struct sp_op *op)
{
    if (costs->by_op)
        return costs->again_by_op ? costs->again_by_op[plan->family->id(&plan->layout, stage, op)]
                                  : 0;
    return plan->family->again ? plan->family->again(plan, costs, op) : 0;
}

double sp_message_cost(const struct sp_plan *plan, const struct sp_costs *costs,
                       const struct sp_dep *dep)
{
    const struct sp_family *family = plan->family;

    return costs->comm * (family->size ? family->size(&plan->layout, &dep->op) : 1);
}

/* The keys of the two forms of costs, with their default values. */
enum {
    KEY_F,
    KEY_B,
    KEY_W,
    KEY_PRE,
    KEY_ATTN,
    KEY_POST,
    KEY_BACKWARD,
    KEY_COMM,
    KEY_WIRE,
    KEY_HEAD,
    KEYS
};
static const char *const key_name[KEYS] = {"f",    "b",        "w",    "pre",  "attn",
                                           "post", "backward", "comm", "wire", "head"};

/* Reads "key=value,..." into value[], and marks what was given. */
static int parse_keys(const char *text, double value[KEYS], bool given[KEYS])
{
    for (const char *at = text; *at;) {
        int item = (int)strcspn(at, ","), len = (int)strcspn(at, "=,"), key = 0;
        char number[64], *end;
        double v;

        while (key < KEYS &&
               ((int)strlen(key_name[key]) != len || strncmp(key_name[key], at, (size_t)len)))
            key++;
        if (len == item || key == KEYS)
            return sp_error(EINVAL,
                            "cost: '%.*s' is not one of f=, b=, w= (a stage) or pre=, attn=, "
                            "post=, backward= (a layer), comm=, wire=, head=",
                            item, at);
        snprintf(number, sizeof number, "%.*s", item - len - 1, at + len + 1);
        v = strtod(number, &end);
        if (end == number || *end || !isfinite(v) || v < 0 || v > 1e18)
            return sp_error(EINVAL, "cost: %s=%s is not a number in 0 .. 1e18", key_name[key],
                            number);
        if (given[key])
            return sp_error(EINVAL, "cost: %s is given twice", key_name[key]);
        value[key] = v;
        given[key] = true;
        at += item;
        if (*at == ',')
            at++;
    }
    return 0;
}

int sp_costs_parse(const char *text, const struct sp_plan *plan, struct sp_costs *costs)
{
    const struct sp_layout *lay = &plan->layout;
    double v[KEYS] = {1, 1, 1, 1, 3, 2, 2, 0, 0, 0}, layers, weights;
    bool given[KEYS] = {false};
    int ret = parse_keys(text, v, given);
    bool stage_keys = given[KEY_F] || given[KEY_B] || given[KEY_W];
    bool layer_keys = given[KEY_PRE] || given[KEY_ATTN] || given[KEY_POST] || given[KEY_BACKWARD];

    if (ret)
        return ret;
    if (given[KEY_HEAD] && !plan->family->facts.prices_head)
        return sp_error(EINVAL,
                        "cost: '%s': the head of %s costs nothing of its own; leave head= out",
                        text, plan->def->name);
    if (!layer_keys && !plan->family->facts.parts) {
        *costs = (struct sp_costs){.f = v[KEY_F],
                                   .b = v[KEY_B],
                                   .w = v[KEY_W],
                                   .comm = v[KEY_COMM],
                                   .wire = v[KEY_WIRE],
                                   .head = v[KEY_HEAD]};
        return 0;
    }
    if (stage_keys && layer_keys)
        return sp_error(EINVAL, "cost: '%s' mixes costs of a stage (f, b, w) and of a layer", text);
    if (stage_keys)
        return sp_error(EINVAL,
                        "cost: '%s' is of a stage, but the ops of %s are parts of layers; use "
                        "pre=1,attn=3,post=2,backward=2",
                        text, plan->def->name);
    if (lay->layers < 1)
        return sp_error(EINVAL, "cost: '%s' is per layer, but the layers are unknown; use --layers",
                        text);
    if (lay->layers % sp_globals(lay) && !plan->family->facts.parts) {
        int less = lay->layers - lay->layers % sp_globals(lay);

        return sp_error(EINVAL,
                        "cost: %d layers do not divide evenly over %d stages of %d chunk(s), as %d "
                        "do",
                        lay->layers, lay->stages, lay->chunks, less ? less : sp_globals(lay));
    }
    layers = (double)lay->layers / lay->stages;
    weights = layers * (v[KEY_PRE] + v[KEY_POST]) * v[KEY_BACKWARD] / 2;
    *costs = (struct sp_costs){
        .f = layers * (v[KEY_PRE] + v[KEY_ATTN] + v[KEY_POST]),
        .b = weights + layers * v[KEY_ATTN] * v[KEY_BACKWARD],
        .w = weights,
        .comm = v[KEY_COMM],
        .wire = v[KEY_WIRE],
        .head = v[KEY_HEAD],
        .parts = {.pre = v[KEY_PRE],
                  .attn = v[KEY_ATTN],
                  .post = v[KEY_POST],
                  .backward = v[KEY_BACKWARD]},
    };
    return 0;
}

void sp_costs_add_recompute(const struct sp_plan *plan, bool attention, struct sp_costs *costs)
{
    const struct sp_part_costs *parts = &costs->parts;
    double layers = (double)plan->layout.layers / plan->layout.stages;

    costs->parts.again = 1;
    costs->b += attention ? costs->f : layers * (parts->pre + parts->post);
}

bool sp_costs_know_parts(const struct sp_costs *costs)
{
    return costs->parts.pre + costs->parts.attn + costs->parts.post > 0;
}
