#include "codelets/attention/parts.h"
#include "sp_error.h"
#include <math.h>

static bool is_whole(const struct sp_attn_args *a)
{
    return a->begins && a->ends;
}

size_t sp_attn_elements(const struct sp_attn_args *a)
{
    const struct sp_shape *sh = a->base.shape;

    return (size_t)sh->batch * (size_t)a->q_len * (size_t)sh->q_width;
}

/* Puts a piece among n others, by position. */
static void insert_piece(struct sp_keys *piece, int n, struct sp_keys new)
{
    for (; n > 0 && piece[n - 1].first > new.first; n--)
        piece[n] = piece[n - 1];
    piece[n] = new;
}

/* Lists the tokens of all buffers as pieces, by position, and returns how many there are. */
static int list_pieces(const struct sp_attn_args *a, void *const *kv, void *const *dkv,
                       struct sp_keys *piece)
{
    const struct sp_shape *sh = a->base.shape;
    int n = 0;

    for (int j = 0; j < a->n; j++) {
        const struct sp_attn_keys_arg *keys = &a->keys[j];
        int runs = keys->second ? 2 : 1, len = keys->len / runs, b = keys->buffer;

        for (int i = 0; i < runs; i++) {
            size_t at =
                keys->at + (size_t)i * (size_t)sh->batch * (size_t)len * (size_t)sh->kv_width;

            insert_piece(piece, n++,
                         (struct sp_keys){i ? keys->second : keys->first, len,
                                          kv ? sp_skip(sh, kv[b], at) : NULL,
                                          dkv && dkv[b] ? sp_skip(sh, dkv[b], at) : NULL});
        }
    }
    return n;
}

/* Chooses what a segment sees of n pieces: the tokens of its document in those that begin before its
 * end. False: none. */
static bool find_sight(const struct sp_shape *sh, const struct sp_segment *s, int n,
                       const struct sp_keys *piece, struct sp_sight *sight)
{
    int begin = s->first - s->position, end = s->first + s->len, before = 0, seen = 0;

    for (int i = 0; i < n && piece[i].first < end; i++) {
        int skip = begin > piece[i].first ? begin - piece[i].first : 0, len = piece[i].len - skip;
        int earlier = s->first - piece[i].first - skip;
        size_t at =
            ((size_t)s->sequence * (size_t)piece[i].len + (size_t)skip) * (size_t)sh->kv_width;

        if (len <= 0)
            continue;
        sight->len[seen] = len;
        sight->keys[seen] = piece[i].keys ? sp_skip(sh, piece[i].keys, at) : NULL;
        sight->gradients[seen++] = piece[i].gradients ? sp_skip(sh, piece[i].gradients, at) : NULL;
        before += earlier < 0 ? 0 : earlier < len ? earlier : len;
    }
    sight->at = (struct sp_attention){
        .batch = s->sequences,
        .heads = sh->model.heads,
        .kv_heads = sh->model.kv_heads,
        .head_dim = sh->model.head_dim,
        .scale = 1.0f / sqrtf((float)sh->model.head_dim),
        .q_len = s->len,
        .q_pos = before,
        .n_kv = seen,
        .kv_len = sight->len,
    };
    return seen > 0;
}

void sp_attn_start(struct sp_attn_walk *w, const struct sp_attn_args *a, void *const *kv,
                   void *const *dkv)
{
    w->documents = a->base.documents;
    w->sh = *a->base.shape;
    w->sh.first = a->q_pos;
    w->sh.seq = a->q_len;
    w->sh.second = a->q_second;
    w->n = list_pieces(a, kv, dkv, w->piece);
    w->s = (struct sp_segment){0};
}

bool sp_attn_next(struct sp_attn_walk *w)
{
    const struct sp_segment *s = &w->s;

    if (!sp_segment_next(&w->sh, w->documents, &w->s))
        return false;
    w->at = s->row * (size_t)w->sh.q_width;
    w->elements = (size_t)(s->sequences * s->len) * (size_t)w->sh.q_width;
    w->stats = s->row * (size_t)w->sh.model.heads;
    w->sees = find_sight(&w->sh, s, w->n, w->piece, &w->see);
    return true;
}

struct sp_attn_sum sp_attn_sum_of(const struct sp_attn_args *a, void *whole, float *apart)
{
    if (is_whole(a))
        return (struct sp_attn_sum){.whole = whole, .direct = true};
    if (a->base.dtype == SP_F32)
        return (struct sp_attn_sum){.whole = whole, .at = whole, .direct = a->begins};
    return (struct sp_attn_sum){.whole = whole, .at = apart};
}

void sp_attn_add(const struct sp_backend *k, const struct sp_attn_args *a, size_t n,
                 const void *part, float *sum)
{
    if (a->begins)
        k->clear(k, n * sizeof *sum, sum);
    k->add_to_f32(k, n, part, sum);
}

void sp_attn_end(const struct sp_backend *k, const struct sp_attn_args *a,
                 const struct sp_attn_sum *s)
{
    if (a->ends && s->at && s->whole != s->at)
        k->round(k, sp_attn_elements(a), s->at, s->whole);
}

/* ---- tasks ---------------------------------------------------------------------------------- */

bool sp_attn_begins_buffer(const struct sp_attn *t, int j)
{
    return j == 0 || t->keys[j].kv != t->keys[j - 1].kv;
}

struct sp_task *sp_attn_task(const struct sp_task_context *ctx, struct sp_codelet *cl,
                             const char *part, const struct sp_shape *sh, const struct sp_attn *t)
{
    struct sp_task *task;
    struct sp_attn_args *a;

    SP_NEED(t->n_keys <= SP_MAX_SLICES, "more than %d slices", SP_MAX_SLICES);
    task = sp_task_new(ctx, cl, part, sh,
                       offsetof(struct sp_attn_args, keys) +
                           sizeof(struct sp_attn_keys_arg) * (size_t)t->n_keys);
    a = task->args;
    a->q_len = t->q_len;
    a->q_pos = t->q_pos;
    a->q_second = t->q_second;
    a->begins = t->begins;
    a->ends = t->ends;
    a->n = t->n_keys;
    for (int j = 0, buffer = -1; j < t->n_keys; j++) {
        buffer += sp_attn_begins_buffer(t, j);
        a->keys[j] = (struct sp_attn_keys_arg){t->keys[j].first, t->keys[j].second, t->keys[j].len,
                                               buffer, t->keys[j].at};
    }
    a->base.variant = (uint32_t)(2 * (t->q_pos - t->keys[0].first) + t->begins);
    return task;
}

bool sp_attn_sums_apart(const struct sp_shape *sh, const struct sp_attn *t)
{
    return sh->dtype != SP_F32 && !(t->begins && t->ends);
}

struct sp_attn_summed sp_attn_summed(const struct sp_shape *sh, const struct sp_attn *t,
                                     struct sp_tensor *whole)
{
    if (!sp_attn_sums_apart(sh, t))
        return (struct sp_attn_summed){.whole = t->begins ? NULL : whole,
                                       .new_whole = t->begins ? whole : NULL};
    return (struct sp_attn_summed){.new_whole = t->ends ? whole : NULL,
                                   .sum = t->begins ? NULL : t->sum,
                                   .new_sum = t->begins ? t->sum : NULL};
}
