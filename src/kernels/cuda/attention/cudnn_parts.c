/*
 * On GPUs before Blackwell a deterministic backward keeps dS, (b, a, q_len, kv_len) in bf16, for
 * the product that gives dQ. If dS exceeds a share of the device, the backward takes sequences and
 * key heads in parts; if that is not enough, the query heads of one key head; then pieces of the
 * queries, each of which computes its dQ from the keys that it sees. Several runs add to the same
 * dK and dV then: each run's are rounded to bf16, and their sum is in f32.
 */
#include "kernels/cuda/attention/cudnn_plans.h"

enum {
    MARGIN = 1 << 20,
    SHARE = 64, /* of a device's memory that a plan may take: 16 heads of 8192 x 8192 on an H200 */
    TILE = 128  /* queries or keys that the kernels take together; pieces have whole tiles */
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

/* A little more is as good: scores fill a power of two, and a plan needs a little on top of
 * them. */
bool sp_cudnn_fits(size_t bytes, size_t most)
{
    return bytes <= most + most / 16;
}

bool sp_cudnn_sums(const struct sp_cudnn_parts *parts)
{
    return parts->pieces > 1 || sp_cudnn_group(&parts->part) < sp_cudnn_group(&parts->whole);
}

/* cuDNN needs lse dense, and aligned at the start of a part. */
bool sp_cudnn_copies_lse(const struct sp_cudnn_parts *parts)
{
    const struct sp_fused_shape *whole = &parts->whole, *part = &parts->part;

    return part->q_len < whole->q_len ||
           (whole->q_len % 4 && (part->batch < whole->batch || part->heads < whole->heads));
}

static size_t lse_bytes(const struct sp_fused_shape *part)
{
    return sizeof(float) * (size_t)part->batch * (size_t)part->heads * (size_t)part->q_len;
}

size_t sp_cudnn_gradient_elements(const struct sp_fused_shape *part)
{
    return 2 * (size_t)part->kv_len * (size_t)part->kv_heads * (size_t)part->head_dim;
}

struct sp_cudnn_places sp_cudnn_places(const struct sp_cudnn_parts *parts, size_t plan_bytes)
{
    size_t elements = sp_cudnn_sums(parts) ? sp_cudnn_gradient_elements(&parts->part) : 0;
    struct sp_cudnn_places at;

    at.lse = sp_cudnn_aligned(plan_bytes);
    at.low = at.lse + (sp_cudnn_copies_lse(parts) ? sp_cudnn_aligned(lse_bytes(&parts->part)) : 0);
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

/* The length of a piece if there are n of them. */
static int piece_len(int q_len, int n)
{
    return (int)whole_tiles((q_len + n - 1) / n);
}

bool sp_cudnn_take_less(struct sp_cudnn_parts *parts, size_t bytes, size_t most)
{
    struct sp_fused_shape *part = &parts->part;
    double share = ((double)most + (double)most / 16) / (double)bytes;
    int batch = part->batch, group = sp_cudnn_group(part), kv_heads = part->kv_heads;
    int pieces = parts->pieces, len;

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
        len = piece_len(parts->whole.q_len, pieces);
    } while (len > part->q_len * share);
    part->q_len = len;
    parts->pieces = (parts->whole.q_len + len - 1) / len;
    return true;
}

/* The first piece is the short one, since the last sees the most keys. */
int sp_cudnn_piece_first(const struct sp_cudnn_parts *parts, int i)
{
    int first = parts->whole.q_len - (parts->pieces - i) * parts->part.q_len;

    return first > 0 ? first : 0;
}

struct sp_fused_shape sp_cudnn_piece(const struct sp_cudnn_parts *parts, int i)
{
    const struct sp_fused_shape *whole = &parts->whole;
    struct sp_fused_shape s = parts->part;
    int end = i + 1 < parts->pieces ? sp_cudnn_piece_first(parts, i + 1) : whole->q_len;

    s.q_len = end - sp_cudnn_piece_first(parts, i);
    s.kv_len = whole->kv_len - (whole->full ? 0 : whole->q_len - end);
    if (sp_cudnn_sums(parts)) {
        s.dkv_rows = s.kv_len;
        s.dkv_row = 2 * s.kv_heads * s.head_dim;
    }
    return s;
}

/*
 * The most that a plan takes, as cuDNN 9.19 makes them: two numbers a row; dQ in f32, on Ampere
 * twice, or dS; for grouped heads dK and dV of each query head.
 */
static size_t estimate(const struct sp_fused_shape *s)
{
    size_t b = (size_t)s->batch, a = (size_t)s->heads, d = (size_t)s->head_dim;
    size_t q_len = whole_tiles(s->q_len), kv_len = whole_tiles(s->kv_len);
    size_t bytes = 8 * b * a * q_len;

    if (!s->backward)
        return bytes;
    if (sp_cudnn_group(s) > 1)
        bytes += 4 * b * a * kv_len * d;
    return bytes + b * a * q_len * (s->deterministic ? 2 * kv_len : 8 * d);
}

/* Takes the parts that plans of the estimated size would need. Real plans, being no larger, get
 * as large parts or larger ones. */
size_t sp_cudnn_bound(const struct sp_fused_shape *shape, size_t most_bytes)
{
    struct sp_cudnn_parts parts = sp_cudnn_whole(shape);
    size_t whole = estimate(shape), bytes = whole;

    while (shape->backward && !sp_cudnn_fits(bytes, most_bytes)) {
        struct sp_fused_shape last;

        if (!sp_cudnn_take_less(&parts, bytes, most_bytes))
            return 0;
        last = sp_cudnn_piece(&parts, parts.pieces - 1);
        bytes = estimate(&last);
    }
    if (shape->backward && !sp_cudnn_fits(whole, most_bytes))
        whole = most_bytes + most_bytes / 16;
    return sp_cudnn_places(&parts, whole).end + MARGIN;
}
