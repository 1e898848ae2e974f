/*
 * Plans of cuDNN by shape. On GPUs before Blackwell a deterministic backward keeps dS, (b, a, q_len,
 * kv_len) in bf16, for the product that gives dQ. Where that is more than a share of the device,
 * sequences and heads of keys are taken in parts; then the query heads of one, and pieces of the queries,
 * of which each computes its dQ from the keys that it sees. What those add to dK and dV comes rounded, and
 * is summed in f32.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifdef HAVE_CUDNN_FRONTEND
#include "kernels/cuda/cudnn_parts.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/sums.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

enum {
    MARGIN = 1 << 20,
    SHARE =
        64, /* of a device's memory that a plan may take: for 16 heads of 8192 x 8192 on an H200 */
    TILE = 128 /* queries or keys that the kernels take together; pieces are of whole ones */
};

/* ---- sizes ---- */

size_t sp_cudnn_most_bytes(size_t device_bytes)
{
    return device_bytes / SHARE;
}

static size_t whole_tiles(int len)
{
    return ((size_t)len + TILE - 1) / TILE * TILE;
}

/* A little more is as good: scores fill a power of two, and something comes on top of them. */
static bool fits(size_t bytes, size_t most)
{
    return bytes <= most + most / 16;
}

static int group_of(const struct sp_cudnn_shape *s)
{
    return s->heads / s->kv_heads;
}

/* Whether several runs of a plan add to the same dK and dV. */
static bool sums(const struct sp_cudnn_known *known)
{
    return known->pieces > 1 || group_of(&known->part) < group_of(&known->whole);
}

/* cuDNN wants it dense, and aligned where a part begins. */
static bool copies_lse(const struct sp_cudnn_known *known)
{
    const struct sp_cudnn_shape *whole = &known->whole, *part = &known->part;

    return part->q_len < whole->q_len ||
           (whole->q_len % 4 && (part->batch < whole->batch || part->heads < whole->heads));
}

static size_t lse_bytes(const struct sp_cudnn_shape *part)
{
    return sizeof(float) * (size_t)part->batch * (size_t)part->heads * (size_t)part->q_len;
}

/* Of dK and dV of a part, dense. */
static size_t gradient_elements(const struct sp_cudnn_shape *part)
{
    return 2 * (size_t)part->kv_len * (size_t)part->kv_heads * (size_t)part->head_dim;
}

/* Where things lie in the workspace, behind what a plan takes. */
struct places {
    size_t lse, low, sum, end;
};

static struct places places_of(const struct sp_cudnn_known *known)
{
    size_t elements = sums(known) ? gradient_elements(&known->part) : 0;
    struct places at;

    at.lse = sp_cudnn_aligned(known->plan_bytes);
    at.low = at.lse + (copies_lse(known) ? sp_cudnn_aligned(lse_bytes(&known->part)) : 0);
    at.sum = at.low + sp_cudnn_aligned(2 * elements);
    at.end = at.sum + sizeof(float) * elements;
    return at;
}

/* ---- parts ---- */

static int largest_divisor(int n, double most)
{
    int d = n;

    while (d > 1 && (n % d || d > most))
        d--;
    return d;
}

/* Queries at a time such that n pieces do. */
static int piece_len(int q_len, int n)
{
    return (int)whole_tiles((q_len + n - 1) / n);
}

/* Less at a time, for a workspace of `most` instead of `bytes`; false if there is no less. */
static bool take_part(struct sp_cudnn_known *known, size_t bytes, size_t most)
{
    struct sp_cudnn_shape *part = &known->part;
    double share = ((double)most + (double)most / 16) / (double)bytes;
    int batch = part->batch, group = group_of(part), kv_heads = part->kv_heads;
    int pieces = known->pieces, len;

    part->batch = largest_divisor(batch, batch * share);
    part->kv_heads = largest_divisor(kv_heads, kv_heads * batch * share); /* all, if batch > 1 */
    part->heads = part->kv_heads * group;
    if (part->batch < batch || part->kv_heads < kv_heads)
        return true;
    part->heads = largest_divisor(group, group * share);
    if (part->heads < group)
        return true;
    do {
        if (++pieces > SP_CUDNN_PIECES)
            return false;
        len = piece_len(known->whole.q_len, pieces);
    } while (len > part->q_len * share);
    part->q_len = len;
    known->pieces = (known->whole.q_len + len - 1) / len;
    return true;
}

/* Shorter by the remainder, the first piece: the last sees the most. */
static int piece_first(const struct sp_cudnn_known *known, int i)
{
    int first = known->whole.q_len - (known->pieces - i) * known->part.q_len;

    return first > 0 ? first : 0;
}

/* The part's shape for piece i. */
static struct sp_cudnn_shape shape_of(const struct sp_cudnn_known *known, int i)
{
    const struct sp_cudnn_shape *whole = &known->whole;
    struct sp_cudnn_shape s = known->part;
    int end = i + 1 < known->pieces ? piece_first(known, i + 1) : whole->q_len;

    s.q_len = end - piece_first(known, i);
    s.kv_len = whole->kv_len - (whole->q_len - end);
    if (sums(known)) {
        s.dkv_rows = s.kv_len;
        s.dkv_row = 2 * s.kv_heads * s.head_dim;
    }
    return s;
}

/*
 * What a plan takes at most, as cuDNN 9.19 makes them: two numbers a row; dQ in f32, on Ampere twice, or
 * dS; where heads are grouped dK and dV of each query head.
 */
static size_t estimate(const struct sp_cudnn_shape *s)
{
    size_t b = (size_t)s->batch, a = (size_t)s->heads, d = (size_t)s->head_dim;
    size_t q_len = whole_tiles(s->q_len), kv_len = whole_tiles(s->kv_len);
    size_t bytes = 8 * b * a * q_len;

    if (!s->backward)
        return bytes;
    if (group_of(s) > 1)
        bytes += 4 * b * a * kv_len * d;
    return bytes + b * a * q_len * (s->deterministic ? 2 * kv_len : 8 * d);
}

/* The parts that plans of the estimated size would make. Real ones are as large or larger. */
size_t sp_cudnn_bound(const struct sp_cudnn_shape *shape, size_t most_bytes)
{
    struct sp_cudnn_known known = {.whole = *shape, .part = *shape, .pieces = 1};
    size_t whole = estimate(shape), bytes = whole;

    while (shape->backward && !fits(bytes, most_bytes)) {
        struct sp_cudnn_shape last;

        if (!take_part(&known, bytes, most_bytes))
            return 0;
        last = shape_of(&known, known.pieces - 1);
        bytes = estimate(&last);
    }
    known.plan_bytes =
        !shape->backward || fits(whole, most_bytes) ? whole : most_bytes + most_bytes / 16;
    return places_of(&known).end + MARGIN;
}

/* ---- plans ---- */

static void forget_plans(struct sp_cudnn_known *known)
{
    for (int i = 0; i < known->pieces; i++)
        if (known->plan[i])
            sp_cudnn_plan_destroy(known->plan[i]);
    memset(known->plan, 0, sizeof known->plan);
}

static bool plan_piece(struct sp_cudnn_plans *plans, struct sp_cudnn_known *known, int i,
                       const char **why)
{
    struct sp_cudnn_shape shape = shape_of(known, i);
    size_t bytes = 0;

    known->plan[i] = sp_cudnn_plan_create(plans->cudnn, &shape, &bytes, why);
    if (bytes > known->plan_bytes)
        known->plan_bytes = bytes;
    return known->plan[i];
}

static bool make_plans(struct sp_cudnn_plans *plans, struct sp_cudnn_known *known, const char **why)
{
    size_t most = plans->most_bytes;

    if (known->whole.head_dim % 8) {
        *why = "the head size is no multiple of 8";
        return false;
    }
    for (;;) {
        known->plan_bytes = 0;
        if (!plan_piece(plans, known, known->pieces - 1, why))
            return false;
        if (!known->whole.backward || fits(known->plan_bytes, most))
            break;
        forget_plans(known);
        if (!take_part(known, known->plan_bytes, most)) {
            *why = known->whole.deterministic
                       ? "its scores take too much memory; SP_CUDA_FAST=1 does without"
                       : "it takes too much memory";
            return false;
        }
    }
    for (int i = 0; i < known->pieces - 1; i++)
        if (!plan_piece(plans, known, i, why))
            return false;
    known->workspace_bytes = places_of(known).end;
    return true;
}

static void complain(struct sp_cudnn_plans *plans, const struct sp_cudnn_shape *s, const char *why)
{
    if (!plans->warned)
        sp_warn("cuda: attention%s of %d heads of %d, %d queries on %d keys, is not done by cuDNN "
                "but by slower kernels: %s",
                s->backward ? "'s backward" : "", s->heads, s->head_dim, s->q_len, s->kv_len, why);
    plans->warned = true;
}

const struct sp_cudnn_known *sp_cudnn_find(struct sp_cudnn_plans *plans,
                                           const struct sp_cudnn_shape *shape)
{
    struct sp_cudnn_known *known;
    const char *why = "";

    for (known = plans->known; known; known = known->next)
        if (memcmp(&known->whole, shape, sizeof *shape) == 0)
            return known->pieces ? known : NULL;
    known = calloc(1, sizeof *known);
    if (!known)
        sp_cuda_fatal("cuda: no memory for a plan of attention");
    known->whole = known->part = *shape;
    known->pieces = 1;
    known->next = plans->known;
    plans->known = known;
    if (make_plans(plans, known, &why))
        return known;
    complain(plans, shape, why);
    forget_plans(known);
    known->pieces = 0;
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
    struct sp_cudnn_tensors at; /* of their first query heads and queries */
    void *workspace;
    float *lse; /* copied, or NULL */
    void *low;  /* dK and dV of one run, and their sum; NULL if there is but one */
    float *sum;
};

/* Piece i of the queries, from query head h on. */
static void run_piece(const struct part *p, int h, int i)
{
    const struct sp_cudnn_known *known = p->known;
    struct sp_cudnn_shape s = shape_of(known, i);
    size_t first = (size_t)piece_first(known, i), q_len = (size_t)known->whole.q_len;
    size_t q = first * (size_t)s.q_row + (size_t)h * (size_t)s.head_dim;
    struct sp_cudnn_tensors t = p->at;
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

        p->k->copy_rows(p->k, (size_t)(s.batch * s.heads), row, t.lse, sizeof(float) * q_len,
                        p->lse, row);
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
        sp_cuda_accumulate(p->k, gradient_elements(&s), p->low, p->sum);
}

/* dK and dV where they belong, from their sum. */
static void round_sums(const struct part *p)
{
    const struct sp_cudnn_shape *s = &p->known->part;
    size_t half = (size_t)s->kv_heads * (size_t)s->head_dim, row = (size_t)p->known->whole.dkv_row;

    p->k->round(p->k, gradient_elements(s), p->sum, p->low);
    p->k->copy_rows(p->k, (size_t)s->kv_len, 2 * half, p->low, 4 * half, p->at.dk, 2 * row);
    p->k->copy_rows(p->k, (size_t)s->kv_len, 2 * half, sp_cudnn_offset(p->low, half), 4 * half,
                    p->at.dv, 2 * row);
}

static void run_part(const struct part *p)
{
    const struct sp_cudnn_shape *s = &p->known->part;

    if (p->sum)
        p->k->clear(p->k, sizeof(float) * gradient_elements(s), p->sum);
    for (int h = 0; h < s->kv_heads * group_of(&p->known->whole); h += s->heads)
        for (int i = 0; i < p->known->pieces; i++)
            run_piece(p, h, i);
    if (p->sum)
        round_sums(p);
}

/* The addresses from sequence b and head g of the keys on. */
static struct sp_cudnn_tensors tensors_of(const struct sp_cudnn_shape *s,
                                          const struct sp_cudnn_tensors *t, size_t b, size_t g)
{
    size_t d = (size_t)s->head_dim, h = g * (size_t)group_of(s);
    size_t q = b * (size_t)s->q_rows * (size_t)s->q_row + h * d;
    size_t kv = b * (size_t)s->kv_rows * (size_t)s->kv_row + g * d;
    size_t dkv = b * (size_t)s->dkv_rows * (size_t)s->dkv_row + g * d;
    struct sp_cudnn_tensors part = {
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
                  const struct sp_cudnn_known *known, const struct sp_cudnn_tensors *t,
                  void *workspace)
{
    const struct sp_cudnn_shape *s = &known->whole, *part = &known->part;
    struct part p = {.k = k, .plans = plans, .known = known, .workspace = workspace};
    struct places at = places_of(known);

    if (copies_lse(known))
        p.lse = further(workspace, at.lse);
    if (sums(known)) {
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
