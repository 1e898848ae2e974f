#include "model/tensor_parts.h"
#include "model/tensor_table.h"
#include <stdio.h>
#include <string.h>

void sp_model_divide(const struct sp_model *m, int devices, struct sp_model *part)
{
    *part = *m;
    part->heads /= devices;
    part->kv_heads = m->kv_heads * sp_key_copies(m, devices) / devices;
    part->mlp /= devices;
    part->vocab = sp_vocabulary_rows(m, devices);
    if (m->arch == SP_ARCH_GPT2)
        part->positions = (m->positions + devices - 1) / devices;
}

bool sp_model_is_divisible(const struct sp_model *m, int devices, char *why, size_t n)
{
    struct sp_model part;

    sp_model_divide(m, devices, &part);
    if (m->heads % devices || (m->kv_heads % devices && devices % m->kv_heads))
        snprintf(why, n, "%d heads and %d of keys and values", m->heads, m->kv_heads);
    else if (m->mlp % devices)
        snprintf(why, n, "an MLP of width %d", m->mlp);
    else if ((devices - 1) * part.vocab >= m->vocab)
        snprintf(why, n, "a vocabulary of %d", m->vocab);
    else if (m->arch == SP_ARCH_GPT2 && (devices - 1) * part.positions >= m->positions)
        snprintf(why, n, "a table of %d positions", m->positions);
    else
        return true;
    return false;
}

int sp_vocabulary_rows(const struct sp_model *m, int devices)
{
    return (m->vocab + devices - 1) / devices;
}

void sp_vocabulary_part(const struct sp_model *m, int devices, int member, int *first, int *count)
{
    int each = sp_vocabulary_rows(m, devices);

    *first = member * each;
    *count = m->vocab - *first < each ? m->vocab - *first : each;
}

/* ---- tensors and their parts ------------------------------------------------------------------ */

/* Rows or columns of a part: `to` .. `to`+n-1 of the part are `from` .. `from`+n-1 of the whole. */
struct segment {
    int from, to, n;
};

/* Queries, keys and values are one tensor in GPT-2's files, and a part has some heads of each. */
static int segments_of_qkv(const struct sp_divided_block *b, int member, int copies,
                           struct segment s[3])
{
    const struct sp_model *m = &b->whole->model, *part = &b->part->model;
    const int whole[] = {sp_model_q_width(m), sp_model_kv_width(m) / 2, sp_model_kv_width(m) / 2};
    const int n[] = {sp_model_q_width(part), sp_model_kv_width(part) / 2,
                     sp_model_kv_width(part) / 2};

    for (int i = 0, from = 0, to = 0; i < 3; to += n[i], from += whole[i++])
        s[i] = (struct segment){from + (i ? member / copies : member) * n[i], to, n[i]};
    return 3;
}

/* The segments of a part that has `part` of `size` rows or columns. Returns their number. */
static int segments_of(const struct sp_divided_block *b, enum sp_role role, int size, int part,
                       int member, struct segment s[3])
{
    const struct sp_model *m = &b->whole->model;
    bool qkv = role == SP_ROLE_QKV || role == SP_ROLE_QKV_BIAS;
    int copies = sp_key_copies(m, m->heads / b->part->model.heads);

    if (size == part) {
        s[0] = (struct segment){0, 0, size};
        return 1;
    }
    if (qkv && size == sp_model_q_width(m) + sp_model_kv_width(m))
        return segments_of_qkv(b, member, copies, s);
    if (qkv && size == sp_model_kv_width(m) / 2) /* of queries only if each device has keys too */
        member /= copies;
    s[0] = (struct segment){member * part, 0, part};
    if (s[0].from + s[0].n > size)
        s[0].n = size - s[0].from;
    return 1;
}

/* True if tensor i is in the block; both lists have the same tensors in the same order. */
static bool is_in_block(const struct sp_divided_block *b, int i)
{
    const struct sp_parameter *t = &b->whole->tensors[i];

    return t->block == b->kind && (t->layer < 0 || t->layer == b->layer);
}

/* Copies the elements of a part of tensor i, a run of each row at a time: from the whole to the part
 * if `take`, else back. */
static void copy_tensor(const struct sp_divided_block *b, int i, int member, bool take,
                        const float *from, float *to)
{
    const struct sp_parameter *whole = &b->whole->tensors[i], *part = &b->part->tensors[i];
    struct segment rows[3], cols[3];
    int n_rows = segments_of(b, whole->role, whole->rows, part->rows, member, rows);
    int n_cols = segments_of(b, whole->role, whole->cols, part->cols, member, cols);

    for (int j = 0; j < n_rows; j++)
        for (int r = 0; r < rows[j].n; r++)
            for (int k = 0; k < n_cols; k++) {
                size_t x = whole->offset + (size_t)(rows[j].from + r) * (size_t)whole->cols +
                           (size_t)cols[k].from;
                size_t y = part->offset + (size_t)(rows[j].to + r) * (size_t)part->cols +
                           (size_t)cols[k].to;

                memcpy(to + (take ? y : x), from + (take ? x : y), (size_t)cols[k].n * sizeof *to);
            }
}

static void copy_block(const struct sp_divided_block *b, int member, bool take, const float *from,
                       float *to)
{
    for (int i = 0; i < b->whole->n; i++)
        if (is_in_block(b, i))
            copy_tensor(b, i, member, take, from, to);
}

void sp_block_take_part(const struct sp_divided_block *b, int member, const float *whole,
                        float *part)
{
    memset(part, 0, sp_block_elements(&b->part->model, b->kind) * sizeof *part);
    copy_block(b, member, true, whole, part);
}

void sp_block_put_part(const struct sp_divided_block *b, int member, const float *part,
                       float *whole)
{
    copy_block(b, member, false, part, whole);
}

/* Gains of heads are applied to a device's own heads. Other replicated tensors are applied to a
 * device's own tokens, except the biases of the output and of down: these are added once a sum is
 * complete. */
static bool is_summed(enum sp_role role, bool tokens)
{
    if (role == SP_ROLE_Q_GAIN || role == SP_ROLE_K_GAIN)
        return true;
    return tokens && role != SP_ROLE_OUT_BIAS && role != SP_ROLE_DOWN_BIAS;
}

static bool is_divided(enum sp_dim dim)
{
    return dim == SP_DIM_Q || dim == SP_DIM_KV || dim == SP_DIM_QKV || dim == SP_DIM_MLP ||
           dim == SP_DIM_VOCAB || dim == SP_DIM_POSITIONS;
}

/* The rows of keys and values behind those of queries, which begin a matrix or a vector. */
static struct sp_block_range keys_behind(const struct sp_model *part,
                                         const struct sp_tensor_row *row, size_t first)
{
    size_t each = row->rows == SP_DIM_ONE ? 1 : (size_t)sp_dim(part, row->cols);

    return (struct sp_block_range){first + (size_t)sp_model_q_width(part) * each,
                                   (size_t)sp_model_kv_width(part) * each};
}

int sp_block_ranges(const struct sp_model *whole, int devices, enum sp_block_kind kind,
                    enum sp_range_kind what, bool tokens, struct sp_block_range *out)
{
    struct sp_model part;
    int n = 0;

    sp_model_divide(whole, devices, &part);
    for (int i = 0; i < sp_tensor_rows; i++) {
        const struct sp_tensor_row *row = &sp_tensor_table[i];
        enum sp_dim dim = row->rows == SP_DIM_ONE ? row->cols : row->rows;
        bool divided = is_divided(row->rows) || is_divided(row->cols);
        size_t first, size = (size_t)sp_dim(&part, row->rows) * (size_t)sp_dim(&part, row->cols);

        if (row->block != kind || !sp_row_name(&part, row))
            continue;
        first = sp_block_offset(&part, kind, row->role);
        if (what == SP_RANGES_KEYS && (dim == SP_DIM_Q || dim == SP_DIM_QKV) &&
            sp_key_copies(whole, devices) > 1)
            out[n++] = keys_behind(&part, row, first);
        else if (what != SP_RANGES_KEYS && !divided &&
                 (what == SP_RANGES_SAME || is_summed(row->role, tokens)))
            out[n++] = (struct sp_block_range){first, size};
    }
    return n;
}

int sp_ranges_clip(struct sp_block_range *range, int n, size_t first, size_t count)
{
    int left = 0;

    for (int i = 0; i < n; i++) {
        size_t from = range[i].first > first ? range[i].first : first;
        size_t to = range[i].first + range[i].n;

        to = to < first + count ? to : first + count;
        if (from < to)
            range[left++] = (struct sp_block_range){from - first, to - from};
    }
    return left;
}
