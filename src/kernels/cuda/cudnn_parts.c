/*
 * Plans of cuDNN by shape. A deterministic backward keeps dS, (b, a, q_len, kv_len) in bf16, for the
 * product that gives dQ; where that is more than MOST_BYTES, sequences and heads are taken in parts.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifdef HAVE_CUDNN_FRONTEND
#include "kernels/cuda/cudnn_parts.h"
#include "kernels/cuda/device.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 512 << 20 };

static int largest_divisor(int n, double most)
{
    int d = n;

    while (d > 1 && (n % d || d > most))
        d--;
    return d;
}

/*
 * Fewer sequences, then fewer heads, for a workspace of MOST_BYTES; false if there is no less. The
 * lse of some heads is dense in one sequence only, and must stay aligned.
 */
static bool take_part(struct sp_cudnn_shape *part, size_t bytes)
{
    double share = (double)MOST_BYTES / (double)bytes;
    int batch = part->batch, group = part->heads / part->kv_heads, kv_heads = part->kv_heads;

    if (part->q_len % 4)
        return false;
    part->batch = largest_divisor(batch, batch * share);
    part->kv_heads = largest_divisor(kv_heads, kv_heads * batch * share); /* all, if batch > 1 */
    part->heads = part->kv_heads * group;
    return part->batch < batch || part->kv_heads < kv_heads;
}

static void complain(struct sp_cudnn_plans *plans, const struct sp_cudnn_shape *s, const char *why)
{
    if (!plans->warned)
        sp_warn("cuda: attention%s of %d heads of %d, %d queries on %d keys, is not done by cuDNN "
                "but by slower kernels: %s",
                s->backward ? "'s backward" : "", s->heads, s->head_dim, s->q_len, s->kv_len, why);
    plans->warned = true;
}

static void make_plan(struct sp_cudnn_plans *plans, struct sp_cudnn_known *known)
{
    const char *why = "";

    if (known->whole.head_dim % 8) {
        complain(plans, &known->whole, "the head size is no multiple of 8");
        return;
    }
    for (;;) {
        known->plan =
            sp_cudnn_plan_create(plans->cudnn, &known->part, &known->workspace_bytes, &why);
        if (!known->plan || known->workspace_bytes <= MOST_BYTES ||
            !take_part(&known->part, known->workspace_bytes))
            break;
        sp_cudnn_plan_destroy(known->plan);
    }
    if (known->plan && known->workspace_bytes > 4 * (size_t)MOST_BYTES) {
        sp_cudnn_plan_destroy(known->plan);
        known->plan = NULL;
        why = "its scores take too much memory; SP_CUDA_FAST=1 does without";
    }
    if (!known->plan)
        complain(plans, &known->whole, why);
}

const struct sp_cudnn_known *sp_cudnn_find(struct sp_cudnn_plans *plans,
                                           const struct sp_cudnn_shape *shape)
{
    struct sp_cudnn_known *known;

    for (known = plans->known; known; known = known->next)
        if (memcmp(&known->whole, shape, sizeof *shape) == 0)
            return known->plan ? known : NULL;
    known = calloc(1, sizeof *known);
    if (!known)
        sp_cuda_fatal("cuda: no memory for a plan of attention");
    known->whole = known->part = *shape;
    known->next = plans->known;
    plans->known = known;
    make_plan(plans, known);
    return known->plan ? known : NULL;
}

void sp_cudnn_run(struct sp_cudnn_plans *plans, const struct sp_cudnn_known *known,
                  const struct sp_cudnn_tensors *t, void *workspace)
{
    const struct sp_cudnn_shape *s = &known->whole, *part = &known->part;
    size_t d = (size_t)s->head_dim, q_len = (size_t)s->q_len, heads = (size_t)s->heads;
    const char *why = "";

    for (size_t b = 0; b < (size_t)s->batch; b += (size_t)part->batch)
        for (size_t h = 0, g = 0; h < heads;
             h += (size_t)part->heads, g += (size_t)part->kv_heads) {
            size_t q = b * q_len * (size_t)s->q_row + h * d;
            size_t kv = b * (size_t)s->kv_rows * (size_t)s->kv_row + g * d;
            size_t dkv = b * (size_t)s->dkv_rows * (size_t)s->kv_row + g * d;
            struct sp_cudnn_tensors piece = {
                .q = sp_cudnn_offset(t->q, q),
                .k = sp_cudnn_offset(t->k, kv),
                .v = sp_cudnn_offset(t->v, kv),
                .o = sp_cudnn_offset(t->o, q),
                .lse = (float *)t->lse + (b * heads + h) * q_len,
            };

            if (t->dq) {
                piece.d_o = sp_cudnn_offset(t->d_o, q);
                piece.dq = sp_cudnn_offset(t->dq, q);
                piece.dk = sp_cudnn_offset(t->dk, dkv);
                piece.dv = sp_cudnn_offset(t->dv, dkv);
            }
            if (!sp_cudnn_plan_run(plans->cudnn, known->plan, &piece, workspace, &why))
                sp_cuda_fatal("cuda: cuDNN %s refuses an attention that it had planned: %s",
                              sp_cudnn_about(), why);
        }
}

void sp_cudnn_forget(struct sp_cudnn_plans *plans)
{
    while (plans->known) {
        struct sp_cudnn_known *known = plans->known;

        plans->known = known->next;
        if (known->plan)
            sp_cudnn_plan_destroy(known->plan);
        free(known);
    }
}
#endif
