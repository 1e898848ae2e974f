#include "train/calibrate/rates.h"
#include <math.h>

enum { LINE = 256 }; /* alignment that libraries of GPUs need */

static struct sp_attention attention_of(const struct sp_timed_call *c)
{
    return (struct sp_attention){.batch = 1,
                                 .heads = c->heads,
                                 .kv_heads = c->heads,
                                 .head_dim = c->head_dim,
                                 .scale = 1 / sqrtf((float)c->head_dim),
                                 .q_len = c->rows,
                                 .n_kv = 1,
                                 .kv_len = &c->rows};
}

/* ---- sizes -------------------------------------------------------------------------------- */

struct sizes {
    double n
        [SP_TIMED_ARRAYS]; /* elements, in the order of sp_timed_run's; negative: f32 whatever the type */
    double work;           /* see sp_timed_work */
};

static struct sizes sizes_of(const struct sp_timed_call *c)
{
    double T = c->rows, in = c->in, x = T * in, y = T * c->out, w = in * c->out;
    double q = T * c->heads * c->head_dim, lse = -T * c->heads;
    double elem = (double)sp_dtype_bytes(c->dtype), low = c->dtype == SP_F32 ? 0 : x;
    double product = sp_flops_linear(c->rows, c->in, c->out);
    struct sp_attention at = attention_of(c);

    switch (c->kernel) {
    case SP_TIME_LINEAR:
    case SP_TIME_LINEAR_DX:
        return (struct sizes){{x, w, y}, product};
    case SP_TIME_LINEAR_DW:
        return (struct sizes){{x, -w, y}, product};
    case SP_TIME_ATTENTION:
        return (struct sizes){{q, 2 * q, q, lse}, sp_flops_attention(&at)};
    case SP_TIME_ATTENTION_BWD:
        return (struct sizes){{q, 2 * q, q, lse, q, q, 2 * q}, 2.5 * sp_flops_attention(&at)};
    case SP_TIME_NORM: /* read, written */
        return (struct sizes){{x, in, in, x, -2 * T}, 2 * elem * x};
    case SP_TIME_ADD: /* read twice */
        return (struct sizes){{x, x}, 3 * elem * x};
    case SP_TIME_GELU:
        return (struct sizes){{x, x}, 2 * elem * x};
    case SP_TIME_ADAMW:
        break;
    }
    /* weights, gradients and moments read and written; weights once more in the type of products */
    return (struct sizes){{-x, -x, -x, -x, low}, 8 * sizeof(float) * x + elem * low};
}

size_t sp_timed_bytes(const struct sp_timed_call *c, size_t *bytes)
{
    const struct sizes sizes = sizes_of(c);
    size_t sum = 0;

    for (int i = 0; i < SP_TIMED_ARRAYS; i++) {
        size_t elem = sizes.n[i] < 0 ? sizeof(float) : sp_dtype_bytes(c->dtype);
        size_t rounded = ((size_t)fabs(sizes.n[i]) * elem + LINE - 1) / LINE * LINE;

        if (bytes)
            bytes[i] = rounded;
        sum += rounded;
    }
    return sum;
}

double sp_timed_work(const struct sp_timed_call *c)
{
    return sizes_of(c).work;
}

/* ---- calls -------------------------------------------------------------------------------- */

static void run_attention(const struct sp_backend *k, const struct sp_timed_call *c,
                          void *a[SP_TIMED_ARRAYS])
{
    struct sp_attention at = attention_of(c);
    const void *kv[] = {a[1]};
    void *dkv[] = {a[6]};

    if (c->kernel == SP_TIME_ATTENTION)
        k->attention(k, &at, a[0], kv, a[2], a[3]);
    else
        k->attention_bwd(k, &at,
                         &(struct sp_attention_bwd){.q = a[0],
                                                    .kv = kv,
                                                    .o = a[2],
                                                    .lse = a[3],
                                                    .d_o = a[4],
                                                    .dq = a[5],
                                                    .dkv = dkv,
                                                    .first = true});
}

/* The factors leave all values as they are, however often it runs; the arithmetic is that of a
 * step. */
static void run_adamw(const struct sp_backend *k, const struct sp_timed_call *c,
                      void *a[SP_TIMED_ARRAYS])
{
    const struct sp_adamw hp = {
        .beta1 = 1, .beta2 = 1, .eps = 1e-8f, .bias1 = 1, .bias2 = 1, .grad_scale = 1};

    k->adamw(k, &hp,
             &(struct sp_adamw_arrays){.n = (size_t)c->rows * (size_t)c->in,
                                       .w = a[0],
                                       .g = a[1],
                                       .m = a[2],
                                       .v = a[3],
                                       .low = c->dtype == SP_F32 ? NULL : a[4]});
}

void sp_timed_run(const struct sp_backend *k, const struct sp_timed_call *c, char *place)
{
    size_t bytes[SP_TIMED_ARRAYS], n = (size_t)c->rows * (size_t)c->in;
    void *a[SP_TIMED_ARRAYS];

    sp_timed_bytes(c, bytes);
    for (int i = 0; i < SP_TIMED_ARRAYS; place += bytes[i++])
        a[i] = place;
    switch (c->kernel) {
    case SP_TIME_LINEAR:
        k->linear(k, &(struct sp_linear){.T = c->rows, .in = c->in, .out = c->out, .w = a[1]}, a[0],
                  a[2]);
        break;
    case SP_TIME_LINEAR_DX:
        k->linear_dx(k, &(struct sp_linear){.T = c->rows, .in = c->in, .out = c->out, .w = a[1]},
                     a[2], a[0], false);
        break;
    case SP_TIME_LINEAR_DW:
        k->linear_dw(k, &(struct sp_linear){.T = c->rows, .in = c->in, .out = c->out}, a[0], a[2],
                     a[1], NULL);
        break;
    case SP_TIME_ATTENTION:
    case SP_TIME_ATTENTION_BWD:
        run_attention(k, c, a);
        break;
    case SP_TIME_NORM:
        k->norm(
            k,
            &(struct sp_norm){.T = c->rows, .h = c->in, .eps = 1e-5f, .gain = a[1], .bias = a[2]},
            a[0], a[3], a[4]);
        break;
    case SP_TIME_ADD:
        k->add(k, n, a[0], a[1]);
        break;
    case SP_TIME_GELU:
        k->act(k, SP_GELU_TANH, n, a[0], a[1]);
        break;
    case SP_TIME_ADAMW:
        run_adamw(k, c, a);
        break;
    }
}
