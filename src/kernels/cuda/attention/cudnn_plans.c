/* Plans of cuDNN by shape, and how they are run where a shape is done in parts. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifdef HAVE_CUDNN_FRONTEND
#include "kernels/cuda/attention/cudnn_plans.h"
#include "kernels/cuda/device/device.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

static void forget_plans(struct sp_cudnn_known *known)
{
    for (int i = 0; i < known->parts.pieces; i++)
        if (known->plan[i])
            sp_cudnn_plan_destroy(known->plan[i]);
    memset(known->plan, 0, sizeof known->plan);
}

static bool plan_piece(struct sp_cudnn_plans *plans, struct sp_cudnn_known *known, int i,
                       const char **why)
{
    struct sp_fused_shape shape = sp_cudnn_piece(&known->parts, i);
    size_t bytes = 0;

    known->plan[i] = sp_cudnn_plan_create(plans->cudnn, &shape, &bytes, why);
    if (bytes > known->plan_bytes)
        known->plan_bytes = bytes;
    return known->plan[i];
}

static bool make_plans(struct sp_cudnn_plans *plans, struct sp_cudnn_known *known, const char **why)
{
    size_t most = plans->most_bytes;

    if (known->parts.whole.head_dim % 8) {
        *why = "the head size is no multiple of 8";
        return false;
    }
    for (;;) {
        known->plan_bytes = 0;
        if (!plan_piece(plans, known, known->parts.pieces - 1, why))
            return false;
        if (!known->parts.whole.backward || sp_cudnn_fits(known->plan_bytes, most))
            break;
        forget_plans(known);
        if (!sp_cudnn_take_less(&known->parts, known->plan_bytes, most)) {
            *why = known->parts.whole.deterministic
                       ? "its scores take too much memory; SP_CUDA_FAST=1 does without"
                       : "it takes too much memory";
            return false;
        }
    }
    for (int i = 0; i < known->parts.pieces - 1; i++)
        if (!plan_piece(plans, known, i, why))
            return false;
    known->workspace_bytes = sp_cudnn_places(&known->parts, known->plan_bytes).end;
    return true;
}

static void complain(struct sp_cudnn_plans *plans, const struct sp_fused_shape *s, const char *why)
{
    if (!plans->warned)
        sp_warn("cuda: attention%s of %d heads of %d, %d queries on %d keys, is not done by cuDNN "
                "but by slower kernels: %s",
                s->backward ? "'s backward" : "", s->heads, s->head_dim, s->q_len, s->kv_len, why);
    plans->warned = true;
}

const struct sp_cudnn_known *sp_cudnn_find(struct sp_cudnn_plans *plans,
                                           const struct sp_fused_shape *shape)
{
    struct sp_cudnn_known *known;
    const char *why = "";

    for (known = plans->known; known; known = known->next)
        if (memcmp(&known->parts.whole, shape, sizeof *shape) == 0)
            return known->parts.pieces ? known : NULL;
    known = calloc(1, sizeof *known);
    if (!known)
        sp_cuda_fatal("cuda: no memory for a plan of attention");
    known->parts = sp_cudnn_whole(shape);
    known->next = plans->known;
    plans->known = known;
    if (make_plans(plans, known, &why))
        return known;
    complain(plans, shape, why);
    forget_plans(known);
    known->parts.pieces = 0;
    return NULL;
}

void sp_cudnn_forget(struct sp_cudnn_plans *plans)
{
    while (plans->known) {
        struct sp_cudnn_known *known = plans->known;

        plans->known = known->next;
        forget_plans(known);
        free(known);
    }
}

/* ---- running ---- */

/* Some sequences and heads of keys; the workspace behind that of the plans. */
struct part {
    const struct sp_backend *k;
    struct sp_cudnn_plans *plans;
    const struct sp_cudnn_known *known;
    struct sp_fused_tensors at; /* of their first query heads and queries */
    void *workspace;
    float *lse; /* copied, or NULL */
    void *low;  /* dK and dV of one run, and their sum; NULL if there is but one */
    float *sum;
};

/* Piece i of the queries, from query head h on. */
static void run_piece(const struct part *p, int h, int i)
{
    const struct sp_cudnn_known *known = p->known;
    struct sp_fused_shape s = sp_cudnn_piece(&known->parts, i);
    size_t first = (size_t)sp_cudnn_piece_first(&known->parts, i),
           q_len = (size_t)known->parts.whole.q_len;
    size_t q = first * (size_t)s.q_row + (size_t)h * (size_t)s.head_dim;
    struct sp_fused_tensors t = p->at;
    const char *why = "";

    t.q = sp_cudnn_offset(t.q, q);
    t.o = sp_cudnn_offset(t.o, q);
    t.lse = (float *)t.lse + (size_t)h * q_len + first;
    if (t.dq) {
        t.d_o = sp_cudnn_offset(t.d_o, q);
        t.dq = sp_cudnn_offset(t.dq, q);
    }
    if (p->lse) {
        size_t row = sizeof(float) * (size_t)s.q_len;

        p->k->copy_rows(p->k,
                        &(struct sp_row_copy){.n = (size_t)(s.batch * s.heads),
                                              .bytes = row,
                                              .from = sizeof(float) * q_len,
                                              .to = row},
                        t.lse, p->lse);
        t.lse = p->lse;
    }
    if (p->low) {
        t.dk = p->low;
        t.dv = sp_cudnn_offset(p->low, (size_t)(s.kv_heads * s.head_dim));
    }
    if (!sp_cudnn_plan_run(p->plans->cudnn, known->plan[i], &t, p->workspace, &why))
        sp_cuda_fatal("cuda: cuDNN %s refuses an attention that it had planned: %s",
                      sp_cudnn_about(), why);
    if (p->low)
        p->k->add_to_f32(p->k, sp_cudnn_gradient_elements(&s), p->low, p->sum);
}

/* dK and dV where they belong, from their sum. */
static void round_sums(const struct part *p)
{
    const struct sp_fused_shape *s = &p->known->parts.part;
    size_t half = (size_t)s->kv_heads * (size_t)s->head_dim,
           row = (size_t)p->known->parts.whole.dkv_row;
    const struct sp_row_copy rows = {
        .n = (size_t)s->kv_len, .bytes = 2 * half, .from = 4 * half, .to = 2 * row};

    p->k->round(p->k, sp_cudnn_gradient_elements(s), p->sum, p->low);
    p->k->copy_rows(p->k, &rows, p->low, p->at.dk);
    p->k->copy_rows(p->k, &rows, sp_cudnn_offset(p->low, half), p->at.dv);
}

static void run_part(const struct part *p)
{
    const struct sp_fused_shape *s = &p->known->parts.part;

    if (p->sum)
        p->k->clear(p->k, sizeof(float) * sp_cudnn_gradient_elements(s), p->sum);
    for (int h = 0; h < s->kv_heads * sp_cudnn_group(&p->known->parts.whole); h += s->heads)
        for (int i = 0; i < p->known->parts.pieces; i++)
            run_piece(p, h, i);
    if (p->sum)
        round_sums(p);
}

/* The addresses from sequence b and head g of the keys on. */
static struct sp_fused_tensors tensors_of(const struct sp_fused_shape *s,
                                          const struct sp_fused_tensors *t, size_t b, size_t g)
{
    size_t d = (size_t)s->head_dim, h = g * (size_t)sp_cudnn_group(s);
    size_t q = b * (size_t)s->q_rows * (size_t)s->q_row + h * d;
    size_t kv = b * (size_t)s->kv_rows * (size_t)s->kv_row + g * d;
    size_t dkv = b * (size_t)s->dkv_rows * (size_t)s->dkv_row + g * d;
    struct sp_fused_tensors part = {
        .q = sp_cudnn_offset(t->q, q),
        .k = sp_cudnn_offset(t->k, kv),
        .v = sp_cudnn_offset(t->v, kv),
        .o = sp_cudnn_offset(t->o, q),
        .lse = (float *)t->lse + (b * (size_t)s->heads + h) * (size_t)s->q_len,
    };

    if (t->dq) {
        part.d_o = sp_cudnn_offset(t->d_o, q);
        part.dq = sp_cudnn_offset(t->dq, q);
        part.dk = sp_cudnn_offset(t->dk, dkv);
        part.dv = sp_cudnn_offset(t->dv, dkv);
    }
    return part;
}

static void *further(void *at, size_t bytes)
{
    return (char *)at + bytes;
}

void sp_cudnn_run(const struct sp_backend *k, struct sp_cudnn_plans *plans,
                  const struct sp_cudnn_known *known, const struct sp_fused_tensors *t,
                  void *workspace)
{
    const struct sp_fused_shape *s = &known->parts.whole, *part = &known->parts.part;
    struct part p = {.k = k, .plans = plans, .known = known, .workspace = workspace};
    struct sp_cudnn_places at = sp_cudnn_places(&known->parts, known->plan_bytes);

    if (sp_cudnn_copies_lse(&known->parts))
        p.lse = further(workspace, at.lse);
    if (sp_cudnn_sums(&known->parts)) {
        p.low = further(workspace, at.low);
        p.sum = further(workspace, at.sum);
    }
    for (int b = 0; b < s->batch; b += part->batch)
        for (int g = 0; g < s->kv_heads; g += part->kv_heads) {
            p.at = tensors_of(s, t, (size_t)b, (size_t)g);
            run_part(&p);
        }
}
#endif
