#include "plan/slices.h"
#include "policies/families/multiplexed/multiplex.h"
#include "plan/cost/part_times.h"
#include "plan/partition.h"
#include "model/tensor_parts.h"
#include "policies/families/ownership.h"
#include "sp_error.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sp_slice_costs sp_slice_flops(const struct sp_shape *sh)
{
    const struct sp_model *m = &sh->model;

    return (struct sp_slice_costs){
        .token = sp_product_flops(m, SP_ROLE_QKV) + sp_product_flops(m, SP_ROLE_OUT) +
                 sp_product_flops(m, SP_ROLE_UP) + sp_product_flops(m, SP_ROLE_DOWN),
        /* a product and a sum of d for the score, as many for the output, each head */
        .pair = 4.0 * sh->q_width,
    };
}

double sp_slice_cost(const struct sp_slice_costs *c, int first, int len)
{
    double pairs = (double)len * first + 0.5 * len * (len + 1.0);

    return c->token * len + c->pair * pairs;
}

/* The position x before which the tokens of a sequence cost `cost`. */
static double boundary(const struct sp_slice_costs *c, double cost)
{
    double a = 0.5 * c->pair, b = c->token + 0.5 * c->pair;

    return a > 0 ? (sqrt(b * b + 4 * a * cost) - b) / (2 * a) : cost / b;
}

void sp_slices_by_flops(const struct sp_slice_costs *c, int seq, int n, int *len)
{
    double all = sp_slice_cost(c, 0, seq);
    int first = 0;

    for (int k = 0; k < n; k++) {
        int end = k == n - 1 ? seq : (int)lrint(boundary(c, all * (k + 1) / n));

        end = end > first + 1 ? end : first + 1;
        end = end < seq - (n - 1 - k) ? end : seq - (n - 1 - k);
        len[k] = end - first;
        first = end;
    }
}

/* ---- the plan ---------------------------------------------------------------------------- */

static double time_by_flops(const void *costs, int first, int len)
{
    return sp_slice_cost(costs, first, len);
}

/* A shape priced on a machine. */
struct priced {
    const struct sp_shape *shape;
    const struct sp_machine *machine;
};

/* Seconds of a layer, forward and backward. */
static double time_on_machine(const void *arg, int first, int len)
{
    const struct priced *on = arg;
    struct sp_part_times t;
    struct sp_shape part;

    sp_shape_slice(on->shape, first, len, &part);
    sp_part_times(on->machine, 1, &part, &t);
    return sp_part_times_sum(&t);
}

static int cut_by_program(const struct sp_layout *lay, const struct sp_shape *sh,
                          const struct sp_machine *machine, int *len)
{
    struct sp_slice_costs c = sp_slice_flops(sh);
    const struct priced on = {.shape = sh, .machine = machine};
    const struct sp_slice_time t = {.of = machine ? time_on_machine : time_by_flops,
                                    .arg = machine ? (const void *)&on : &c};

    /* the start: boundaries to the token */
    sp_slices_by_flops(&c, sh->seq, lay->slices, len);
    return sp_slices_by_program(&t, sh->seq, lay->slices, lay->stages, lay->micro_batches, len)
               ? sp_error(ENOMEM, "no memory for the lengths of %d slices", lay->slices)
               : 0;
}

/* Rounds lengths so that the devices that share tokens can divide them: to the nearest boundaries
 * that leave every slice some tokens. */
static void align(const struct sp_shape *sh, int n, int *len)
{
    int C = sp_shape_unit(sh), end = 0, before = 0;

    for (int k = 0; k < n; k++) {
        int at = (end += len[k], (end + C / 2) / C * C);
        int least = before + C, most = sh->seq - (n - 1 - k) * C;

        at = at < least ? least : at > most ? most : at;
        len[k] = at - before;
        before = at;
    }
}

static int cut(const struct sp_plan *plan, const struct sp_shape *sh, const char *how,
               const struct sp_machine *machine, int *len)
{
    const struct sp_layout *lay = &plan->layout;
    struct sp_slice_costs c = sp_slice_flops(sh);
    struct sp_counts want = {.option = "partition-slices",
                             .least = 1,
                             .unit = "tokens",
                             .whole = "the sequence",
                             .parts = "slices",
                             .total = sh->seq,
                             .n = lay->slices};
    int err = 0;

    if (!strcmp(how, "length")) {
        for (int k = 0; k < lay->slices; k++) /* the first ones take the rest */
            len[k] = sh->seq / lay->slices + (k < sh->seq % lay->slices);
        align(sh, lay->slices, len);
        return 0;
    }
    if (!strcmp(how, "flops") || !strcmp(how, "dp")) {
        sp_slices_by_flops(&c, sh->seq, lay->slices, len);
        err = *how == 'd' ? cut_by_program(lay, sh, machine, len) : 0;
        if (!err)
            align(sh, lay->slices, len);
        return err;
    }
    if (!strpbrk(how, "0123456789"))
        return sp_error(EINVAL,
                        "--partition-slices %s: want length, flops, dp or the tokens of each "
                        "slice, as 96,64,48,48",
                        how);
    err = sp_counts_parse(how, &want, len);
    for (int k = 0; !err && k < lay->slices; k++) /* the lengths of a list are not rounded */
        if (len[k] % sp_shape_unit(sh))
            err = sp_error(EINVAL,
                           "--partition-slices: slice %d has %d tokens, no multiple of %d, which "
                           "%d devices could share evenly",
                           k, len[k], sp_shape_unit(sh), sp_shape_spread(sh));
    return err;
}

int sp_plan_cut(struct sp_plan *plan, const struct sp_shape *sh, const char *how,
                const struct sp_machine *machine)
{
    int n = plan->layout.slices, first = 0, err;
    struct sp_slice_costs c = sp_slice_flops(sh);
    int *len;
    double *share;

    how = how ? how : plan->def->slicing ? plan->def->slicing : "length";
    if (n > sh->seq)
        return sp_error(EINVAL, "%d slices of a sequence of %d tokens: there are at most %d", n,
                        sh->seq, sh->seq);
    if (plan->family->facts.shares_attention && strcmp(how, "length"))
        return sp_error(EINVAL,
                        "--partition-slices %s: stages of %s share the attention of slices of one "
                        "length; use length, or %s:exchange=off",
                        how, plan->def->name, plan->def->name);
    len = calloc((size_t)n, sizeof *len);
    share = calloc((size_t)n, sizeof *share);
    SP_NEED(len && share, "no memory for %d slices", n);
    err = cut(plan, sh, how, machine, len);
    for (int k = 0; !err && k < n; k++) {
        share[k] = sp_slice_cost(&c, first, len[k]) / sp_slice_cost(&c, 0, sh->seq);
        first += len[k];
    }
    err = err ? err : sp_plan_slices(plan, len, share);
    if (!err && plan->family->shared) {
        /* stages that compute a slice together take equal times, or parts of equal length if slices
         * have equal lengths */
        bool equal = !strcmp(how, "length");

        err = plan->family->shared->cut(plan, sp_shape_unit(sh), equal ? 1 : c.token,
                                        equal ? 0 : c.pair);
    }
    free(len);
    free(share);
    return err;
}

/* A sequence, and each of its slices, must have `unit` tokens or more. */
static int check_tokens(const char *command, const char *option, int devices,
                        const struct sp_plan *plan, const struct sp_shape *sh)
{
    int unit = sp_shape_unit(sh), slices = plan->layout.slices;
    int parts = plan->family->facts.shares_attention ? unit : sp_shape_parts(sh);

    if (sh->seq % unit)
        return sp_error(EINVAL, "%s: --%s %d: sequences of %d tokens are no multiple of %d",
                        command, option, devices, sh->seq, unit);
    if (slices * unit > sh->seq)
        return sp_error(EINVAL, "%s: --%s %d: %d slices have %d parts, a sequence has %d tokens",
                        command, option, devices, slices, slices * unit, sh->seq);
    if (slices * parts > SP_MAX_SLICES)
        return sp_error(EINVAL,
                        "%s: --%s %d: %d slices have %d parts, at most %d of a sequence are "
                        "possible",
                        command, option, devices, slices, slices * parts, SP_MAX_SLICES);
    return 0;
}

static int check_context(const char *command, const char *schedule, const struct sp_plan *plan,
                         const struct sp_model *whole, const struct sp_shape *sh)
{
    const struct sp_model *m = &sh->held; /* a device has part of its heads */
    int C = sh->context, U = sh->ulysses;

    if (!(sp_plan_groups(plan) & SP_GROUP_TOKENS))
        return sp_error(EINVAL, "%s: --context-parallel %d is not available for %s; leave it out",
                        command, C, schedule);
    if (plan->family->shared && sh->ring > 1)
        return sp_error(EINVAL,
                        "%s: --context-parallel %d: stages of %s:multiplex share keys already, "
                        "which a ring would pass on; take --context-method ulysses",
                        command, C, plan->def->name);
    if (!sp_shape_divides_heads(m, U))
        return sp_error(
            EINVAL,
            "%s: --context-parallel %d: %s has %d heads and %d of keys and values%s, "
            "which %d processes cannot share evenly; with --context-method ulysses,ring "
            "as many do as can",
            command, C, whole->name, m->heads, m->kv_heads,
            sh->tensor > 1 ? " in each part of --tensor-parallel" : "", U);
    return check_tokens(command, "context-parallel", C, plan, sh);
}

static int check_tensor(const char *command, const char *schedule, const struct sp_plan *plan,
                        const struct sp_model *m, const struct sp_shape *sh)
{
    int T = sh->tensor;
    char what[64];

    if (!(sp_plan_groups(plan) & SP_GROUP_PARAMETERS))
        return sp_error(EINVAL, "%s: --tensor-parallel %d is not available for %s; leave it out",
                        command, T, schedule);
    if (plan->family->shared && sh->sequence)
        return sp_error(
            EINVAL,
            "%s: --tensor-parallel %d: stages of %s:multiplex share tokens already; add "
            "--sequence-parallel off",
            command, T, plan->def->name);
    if (!sp_model_is_divisible(m, T, what, sizeof what))
        return sp_error(EINVAL,
                        "%s: --tensor-parallel %d: %s has %s, which %d processes cannot share",
                        command, T, m->name, what, T);
    return check_tokens(command, "tensor-parallel", T, plan, sh);
}

/* Refuses a vocabulary of which some device would have no row. */
static int check_vocabulary(const char *command, const struct sp_plan *plan,
                            const struct sp_model *m, const struct sp_shape *sh)
{
    int p = plan->layout.stages, each = sp_vocabulary_rows(&sh->held, p), first, count;

    sp_vocabulary_part(m, sh->tensor, sh->tensor - 1, &first, &count);
    if ((p - 1) * each < count)
        return 0;
    if (sh->tensor > 1)
        return sp_error(
            EINVAL,
            "%s: --vocabulary-parallel: %s has %d tokens, of which not all of %d stages "
            "of %d devices would have some; use fewer",
            command, m->name, m->vocab, p, sh->tensor);
    return sp_error(EINVAL,
                    "%s: --vocabulary-parallel: %s has %d tokens, of which %d stages would have %d "
                    "each, and the last one none; use --stages %d",
                    command, m->name, m->vocab, p, each, (m->vocab + each - 1) / each);
}

int sp_plan_check_members(const char *command, const char *schedule, const struct sp_plan *plan,
                          const struct sp_model *model, const struct sp_shape *sh)
{
    int err = 0;

    if (sh->zero > 1 && !plan->family->facts.by_layer)
        return sp_error(EINVAL,
                        "%s: --zero %d is not available for %s, whose stages %s; take --zero 1",
                        command, sh->zero, schedule,
                        plan->family->facts.sharded ? "keep shards of all layers already"
                                                    : "send each other whole chunks of weights");
    if (sh->tensor > 1)
        err = check_tensor(command, schedule, plan, model, sh);
    if (!err && plan->layout.vocabulary_parallel)
        err = check_vocabulary(command, plan, model, sh);
    if (!err && sh->context > 1)
        err = check_context(command, schedule, plan, model, sh);
    return err;
}

void sp_slices_text(const struct sp_plan *plan, int seq, char *text, size_t n)
{
    enum { HEAD = 12, TAIL = 2 };
    int slices = plan->layout.slices;
    size_t used = 0;

    *text = '\0';
    for (int k = 0, first, len; k < slices && used < n; k++) {
        if (k == HEAD && slices > HEAD + TAIL) {
            used += (size_t)snprintf(text + used, n - used, " ...");
            k = slices - TAIL;
        }
        sp_plan_slice_tokens(plan, seq, k, &first, &len);
        if (used < n)
            used += (size_t)snprintf(text + used, n - used, "%s%d", k ? " " : "", len);
    }
}
