/* The check that the sizes of a model fit together. */
#include "model/model_types.h"
#include "model/try.h"
#include "sp_error.h"
#include <limits.h>
#include <math.h>

/* Larger models than any; keeps every size in bytes below 2^62. */
#define MAX_ELEMENTS 0x1p58

/* Longer steps than any: what is stashed and computed in, a dozen tensors of each layer and micro-batch, stays below 2^62
 * bytes too. */
#define MAX_ACTIVATIONS 0x1p56

/* Rows that are rounded up, logits first of all, stay in an int. */
#define MAX_WIDTH (1 << 30)

static int check_sizes(const struct sp_model *m, const char *where)
{
    const struct {
        const char *name;
        int value;
    } sizes[] = {{"layers", m->layers},     {"hidden size", m->hidden}, {"heads", m->heads},
                 {"kv heads", m->kv_heads}, {"head size", m->head_dim}, {"MLP width", m->mlp},
                 {"vocabulary", m->vocab},  {"positions", m->positions}};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].value < 1)
            return sp_error(EINVAL, "%s: %s is %d, it must be positive", where, sizes[i].name,
                            sizes[i].value);
    }
    if (m->vocab > MAX_WIDTH || m->hidden > MAX_WIDTH)
        return sp_error(EINVAL, "%s: %s is %d, it must be at most %d", where,
                        m->vocab > MAX_WIDTH ? "vocabulary" : "hidden size",
                        m->vocab > MAX_WIDTH ? m->vocab : m->hidden, MAX_WIDTH);
    return 0;
}

/* The largest dimensions fit an int, and the whole model a size in bytes. */
static int check_total(const struct sp_model *m, const char *where)
{
    double h = m->hidden, d = m->head_dim, q = m->heads * d, kv = 2.0 * m->kv_heads * d;
    double up = (m->arch == SP_ARCH_LLAMA ? 2.0 : 1.0) * m->mlp;
    double layer = h * (2 * q + kv) + h * (up + m->mlp) + 16 * (h + up + q + kv);
    double total = m->layers * layer + h * m->vocab * (m->tied ? 1 : 2) + h;

    if (m->arch == SP_ARCH_GPT2)
        total += h * m->positions;
    if (q + kv > INT_MAX)
        return sp_error(EINVAL, "%s: (%d + 2 x %d) heads of size %d are too large", where, m->heads,
                        m->kv_heads, m->head_dim);
    if (up > INT_MAX)
        return sp_error(EINVAL, "%s: an MLP width of %d is too large", where, m->mlp);
    if (m->layers > INT_MAX / 32)
        return sp_error(EINVAL, "%s: %d layers are too many", where, m->layers);
    if (total > MAX_ELEMENTS)
        return sp_error(EINVAL, "%s: %.3g parameters are too large a model", where, total);
    return 0;
}

static int check_rope(const struct sp_rope *r, const char *where)
{
    if (!(isfinite(r->theta) && r->theta > 0))
        return sp_error(EINVAL, "%s: rope_theta is %g, it must be positive", where, r->theta);
    if (r->type == SP_ROPE_DEFAULT)
        return 0;
    if (!(isfinite(r->factor) && r->factor >= 1))
        return sp_error(EINVAL, "%s: the factor of rope_scaling is %g, it must be at least 1",
                        where, r->factor);
    if (r->type == SP_ROPE_LLAMA3 && !(r->low > 0 && r->high > r->low && isfinite(r->high)))
        return sp_error(EINVAL,
                        "%s: low_freq_factor %g and high_freq_factor %g of rope_scaling must be "
                        "positive, the second the larger",
                        where, r->low, r->high);
    return 0;
}

static int check_seq(const struct sp_model *m, int seq, const char *where)
{
    int longest = m->planned > m->positions ? m->planned : m->positions;

    if (seq > longest)
        return sp_error(EINVAL, "%ssequences of %d tokens, but %s has %d positions", where, seq,
                        m->name, longest);
    if (m->window && seq > m->window)
        return sp_error(EINVAL,
                        "%ssequences of %d tokens, but attention of %s looks back %d "
                        "(sliding_window), which is not supported",
                        where, seq, m->name, m->window);
    return 0;
}

int sp_model_check_step(const struct sp_model *m, const struct sp_step_size *step,
                        const char *where)
{
    double widths[] = {m->hidden, sp_model_q_width(m), sp_model_kv_width(m), sp_model_up_width(m)};
    double tokens = (double)step->seq * step->batch, widest = m->vocab;

    SP_TRY(check_seq(m, step->seq, where));
    if (tokens > INT32_MAX)
        return sp_error(EINVAL, "%s%d sequences of %d tokens: a micro-batch has at most %d tokens",
                        where, step->batch, step->seq, INT32_MAX);
    for (int i = 0; i < 4; i++)
        widest = fmax(widest, widths[i]);
    if (tokens * widest * m->layers * fmax(1, step->micro_batches) > MAX_ACTIVATIONS)
        return sp_error(EINVAL,
                        "%s%d micro-batches of %d x %d tokens in %d layers, up to %.0f numbers a "
                        "token, are more than can be counted",
                        where, step->micro_batches, step->batch, step->seq, m->layers, widest);
    return 0;
}

int sp_model_check(const struct sp_model *m, const char *where)
{
    SP_TRY(check_sizes(m, where));
    if (m->heads % m->kv_heads)
        return sp_error(EINVAL, "%s: %d heads are not a multiple of %d kv heads", where, m->heads,
                        m->kv_heads);
    if (!(isfinite(m->norm_eps) && m->norm_eps > 0))
        return sp_error(EINVAL, "%s: norm epsilon is %g, it must be positive", where, m->norm_eps);
    if (m->arch == SP_ARCH_GPT2) {
        if (m->kv_heads != m->heads)
            return sp_error(EINVAL, "%s: %d kv heads, GPT-2 has as many as heads, %d", where,
                            m->kv_heads, m->heads);
        if ((int64_t)m->heads * m->head_dim != m->hidden)
            return sp_error(EINVAL, "%s: %d heads of size %d do not make a hidden size of %d",
                            where, m->heads, m->head_dim, m->hidden);
    } else if (m->arch == SP_ARCH_LLAMA) {
        if (m->head_dim % 2)
            return sp_error(EINVAL, "%s: head size is %d, rotary positions need it even", where,
                            m->head_dim);
        if (check_rope(&m->rope, where))
            return -EINVAL;
        if (!sp_model_type_of(m))
            return sp_error(EINVAL, "%s: relative %d of Llama is unknown", where, (int)m->relative);
    } else {
        return sp_error(EINVAL, "%s: architecture %d is unknown", where, (int)m->arch);
    }
    return check_total(m, where);
}
