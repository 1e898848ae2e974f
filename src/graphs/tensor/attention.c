#include "graphs/tensor/attention.h"

static bool joins(const struct sp_op_ctx *c)
{
    return sp_op_cut(c)->joined != NULL;
}

/* The op for attention when the shares are joined. */
static struct sp_op_ctx joined_op(const struct sp_op_ctx *c)
{
    struct sp_op_ctx op = *c;

    op.cut = sp_op_cut(c)->joined;
    op.sh = &op.cut->shapes[c->slice];
    return op;
}

static struct sp_tensor *take(const struct sp_op_ctx *c, struct sp_pool *pool, int rows, int width,
                              const char *name)
{
    return sp_pool_get(pool, (size_t)rows * (size_t)width, sp_shape_elem(c->sh), name);
}

/* The rows of share j among the tokens of all shares, in every sequence or, around a ring, in each
 * half of one. */
static struct sp_rows rows_of(const struct sp_op_ctx *c, int j, int width)
{
    int halves = c->sh->ring > 1 ? 2 : 1, len = c->sh->seq / halves;

    return (struct sp_rows){.batch = c->sh->batch * halves,
                            .width = width,
                            .n = len,
                            .from_len = len,
                            .to_len = len * sp_tensor_shares(c),
                            .to_at = j * len};
}

/* Joins all shares in one tensor and drops the shares. */
static struct sp_tensor *join(struct sp_op_ctx *c, struct sp_tensor **share[], int width,
                              const char *name)
{
    int n = sp_tensor_shares(c);
    struct sp_tensor *whole = take(c, c->st->local, n * c->sh->rows, width, name);

    for (int j = 0; j < n; j++) {
        struct sp_rows rows = rows_of(c, j, width);

        sp_rows_insert(&c->ctx, c->sh, &rows, *share[j], whole, j == 0);
        sp_pool_drop(share[j]);
    }
    return whole;
}

/* Splits the joined tensor into shares; the joined tensor stays. */
static void split(struct sp_op_ctx *c, struct sp_tensor *whole, struct sp_tensor **share[],
                  int width, struct sp_pool *pool, const char *name)
{
    for (int j = 0; j < sp_tensor_shares(c); j++) {
        struct sp_rows rows = rows_of(c, j, width);

        rows.from_len = rows.to_len;
        rows.from_at = rows.to_at;
        rows.to_len = rows.n;
        rows.to_at = 0;
        *share[j] = take(c, pool, c->sh->rows, width, name);
        sp_rows_insert(&c->ctx, c->sh, &rows, whole, *share[j], true);
    }
}

/* Points share[] to one field of all shares. */
#define SHARES(t, field, share)                                                                    \
    for (int each = 0; each < sp_tensor_shares(c); each++)                                         \
    share[each] = &(t)->shares[each].field

void sp_tensor_attention_take(struct sp_op_ctx *c, struct sp_layer_activations *t, bool keys)
{
    struct sp_tensor **share[SP_MAX_SLICES];
    struct sp_op_ctx op;

    if (!joins(c)) {
        sp_attention_share_out(c, t, keys);
        return;
    }
    op = joined_op(c);
    SHARES(t, q, share);
    t->own.q = join(c, share, op.sh->q_width, "q");
    if (keys) {
        SHARES(t, kv, share);
        t->own.kv = join(c, share, op.sh->kv_width, "kv");
    }
    sp_attention_share_out(&op, t, keys);
}

void sp_tensor_attention_forward(struct sp_op_ctx *c, int i, int64_t stashed, struct sp_pool *pool)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    struct sp_tensor **share[SP_MAX_SLICES];
    struct sp_op_ctx op;

    if (!joins(c)) {
        sp_attention_forward(c, i, stashed, pool);
        return;
    }
    op = joined_op(c);
    sp_attention_forward(&op, i, stashed, c->st->local);
    SHARES(t, o, share);
    split(c, t->own.o, share, op.sh->q_width, pool, "o");
}

void sp_tensor_attention_outputs(struct sp_op_ctx *c, struct sp_layer_activations *t, bool last)
{
    struct sp_tensor **share[SP_MAX_SLICES];
    struct sp_op_ctx op;

    if (!joins(c))
        return;
    op = joined_op(c);
    SHARES(t, o, share);
    split(c, t->own.o, share, op.sh->q_width, c->st->local, "o");
    if (last)
        sp_pool_drop(&t->own.o);
}

void sp_tensor_attention_backward(struct sp_op_ctx *c, int i, struct sp_pool *pool,
                                  int64_t released)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    struct sp_tensor **share[SP_MAX_SLICES];
    struct sp_op_ctx op;

    if (!joins(c)) {
        sp_attention_backward(c, i, pool, released);
        return;
    }
    op = joined_op(c);
    SHARES(t, d_o, share);
    t->own.d_o = join(c, share, op.sh->q_width, "do");
    sp_attention_backward(&op, i, c->st->local, released);
    sp_pool_drop(&t->own.d_o);
    SHARES(t, dq, share);
    split(c, t->own.dq, share, op.sh->q_width, pool, "dq");
    sp_pool_drop(&t->own.dq);
    SHARES(t, dkv, share);
    split(c, t->own.dkv, share, op.sh->kv_width, pool, "dkv");
    sp_pool_drop(&t->own.dkv);
}

void sp_tensor_attention_drop(struct sp_op_ctx *c, struct sp_layer_activations *t, bool q, bool kv,
                              bool o)
{
    struct sp_op_ctx op;

    if (!joins(c)) {
        sp_attention_drop(c, t, q, kv, o);
        return;
    }
    op = joined_op(c);
    sp_attention_drop(&op, t, q, kv, o);
}

void sp_tensor_attention_drop_shares(struct sp_op_ctx *c, struct sp_layer_activations *t)
{
    for (int j = 0; joins(c) && j < sp_tensor_shares(c); j++)
        sp_pool_drop(&t->shares[j].o);
}

void sp_tensor_attention_end(struct sp_op_ctx *c, struct sp_layer_activations *t)
{
    for (int j = 0; j < sp_tensor_shares(c); j++)
        sp_pool_drop(&t->shares[j].d_o);
    sp_pool_drop(&t->own.q);
    sp_pool_drop(&t->own.kv);
    sp_pool_drop(&t->own.lse);
    for (int j = 0; j < sp_tensor_shares(c); j++) {
        sp_pool_drop(&t->shares[j].q);
        sp_pool_drop(&t->shares[j].kv);
        sp_pool_drop(&t->shares[j].lse);
    }
}
