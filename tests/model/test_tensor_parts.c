/* Models divided among devices: the parts together are the whole, and each element is in as many
 * parts as it should. */
#include "odd_models.h"
#include "support.h"
#include "model/shape.h"
#include "model/tensor_parts.h"

/* Divisible by 2, and, but for the vocabulary, by nothing else. */
static const struct sp_model models[] = {
    GPT2_MODEL("gpt2", 2, 15, 6, 5, 14, 11, 13, .tied = true),
    LLAMA_MODEL("llama", 2, 7, 8, 2, 6, 10, 9, 13, .tied = false),
    QWEN_MODEL("qwen3", 3, 7, 12, 4, 2, 20, 11, 13),
    /* fewer heads of keys and values than four devices, or two */
    LLAMA_MODEL("grouped", 2, 7, 8, 2, 6, 12, 10, 13, .tied = false, .qkv_bias = true),
    QWEN_MODEL("one key", 2, 7, 8, 1, 6, 12, 11, 13),
};
enum { MODELS = sizeof models / sizeof *models };

struct divided {
    struct sp_params whole, part;
    int devices;
};

static struct divided divide(const struct sp_model *m, int devices)
{
    struct divided d = {.devices = devices};
    struct sp_model part;

    sp_model_divide(m, devices, &part);
    assert_int_equal(sp_params_create(m, &d.whole), 0);
    assert_int_equal(sp_params_create(&part, &d.part), 0);
    assert_int_equal(d.whole.n, d.part.n);
    return d;
}

static void free_divided(struct divided *d)
{
    sp_params_destroy(&d->whole);
    sp_params_destroy(&d->part);
}

static float *zeros(size_t n)
{
    float *x = calloc(n + 1, sizeof *x);

    must(x != NULL, "calloc");
    return x;
}

/* A block in which each tensor element's value is its position in the whole block. */
static float *numbered(const struct sp_params *p, enum sp_block_kind kind, int layer)
{
    float *w = zeros(sp_block_elements(&p->model, kind));

    for (int i = 0; i < p->n; i++) {
        const struct sp_parameter *t = &p->tensors[i];

        if (t->block != kind || (t->layer >= 0 && t->layer != layer))
            continue;
        for (size_t k = 0; k < (size_t)t->rows * (size_t)t->cols; k++)
            w[t->offset + k] = (float)(t->offset + k + 1);
    }
    return w;
}

/* Marks the elements of a part in ranges of a kind, which ascend; every device must have each as
 * often as `copies`. */
static void mark_ranges(const struct divided *d, enum sp_block_kind kind, enum sp_range_kind what,
                        const int *copies, bool *marked)
{
    struct sp_block_range range[SP_BLOCK_RANGES];
    int n = sp_block_ranges(&d->whole.model, d->devices, kind, what, true, range);
    int want = what == SP_RANGES_KEYS ? sp_key_copies(&d->whole.model, d->devices) : d->devices;

    for (int i = 0; i < n; i++) {
        assert_true(i == 0 || range[i - 1].first + range[i - 1].n <= range[i].first);
        for (size_t k = range[i].first; k < range[i].first + range[i].n; k++) {
            assert_false(marked[k]);
            assert_int_equal(copies[k], want);
            marked[k] = true;
        }
    }
}

/* Each element of the whole is in one part or, if replicated, in those that the ranges say; copied
 * back, the parts are the whole. */
static void check_block(const struct divided *d, enum sp_block_kind kind, int layer)
{
    size_t n = sp_block_elements(&d->whole.model, kind);
    size_t held = sp_block_elements(&d->part.model, kind);
    float *whole = numbered(&d->whole, kind, layer), *back = zeros(n), *part = zeros(held);
    int *seen = calloc(n + 2, sizeof *seen), *copies = calloc(held + 1, sizeof *copies);
    bool *marked = calloc(held + 1, sizeof *marked);
    const struct sp_divided_block block = {&d->whole, &d->part, kind, layer};

    must(seen && copies && marked, "calloc");
    for (int m = 0; m < d->devices; m++) {
        memset(part, 0xff, held * sizeof *part);
        sp_block_take_part(&block, m, whole, part);
        for (size_t i = 0; i < held; i++)
            seen[(int)part[i]] += part[i] > 0;
        sp_block_put_part(&block, m, part, back);
    }
    assert_memory_equal(back, whole, n * sizeof *back);
    for (int m = 0; m < d->devices; m++) {
        sp_block_take_part(&block, m, whole, part);
        for (size_t i = 0; i < held; i++)
            copies[i] = seen[(int)part[i]];
        memset(marked, 0, held * sizeof *marked);
        mark_ranges(d, kind, SP_RANGES_SAME, copies, marked);
        mark_ranges(d, kind, SP_RANGES_KEYS, copies, marked);
        for (size_t i = 0; i < held; i++)
            if (part[i] > 0 && (copies[i] != 1) != marked[i])
                fail_msg("%s, block %d: element %zu is in %d parts, %s", d->whole.model.name, kind,
                         i, copies[i], marked[i] ? "in a range" : "in no range");
    }
    free(whole), free(back), free(part), free(seen), free(copies), free(marked);
}

/* Heads of a part are heads of the whole: its first query row is that of its first head. */
static void check_heads(const struct divided *d)
{
    const struct sp_model *m = &d->whole.model, *p = &d->part.model;
    size_t held = sp_block_elements(p, SP_BLOCK_QKV);
    float *whole = numbered(&d->whole, SP_BLOCK_QKV, 1), *part = zeros(held);
    size_t h = (size_t)m->hidden, rows[] = {0, (size_t)p->heads * (size_t)p->head_dim,
                                            (size_t)(p->heads + p->kv_heads) * (size_t)p->head_dim};
    size_t from[] = {0, (size_t)m->heads, (size_t)(m->heads + m->kv_heads)};
    size_t each[] = {(size_t)p->heads, (size_t)p->kv_heads, (size_t)p->kv_heads};

    for (int k = 0; k < d->devices; k++) {
        sp_block_take_part(&(struct sp_divided_block){&d->whole, &d->part, SP_BLOCK_QKV, 1}, k,
                           whole, part);
        for (int i = 0; i < 3; i++) {
            size_t of = i ? (size_t)(k / sp_key_copies(m, d->devices)) : (size_t)k;
            size_t head = from[i] + of * each[i];

            assert_true(part[rows[i] * h] == whole[head * (size_t)m->head_dim * h]);
        }
    }
    free(whole), free(part);
}

TEST(test_parts)
{
    int blocks = 0;

    for (int i = 0; i < MODELS; i++)
        for (int devices = 2; devices <= 4; devices += 2) {
            struct divided d;
            char why[64];

            if (!sp_model_is_divisible(&models[i], devices, why, sizeof why))
                continue;
            d = divide(&models[i], devices);
            for (int kind = 0; kind < SP_BLOCK_KINDS; kind++, blocks++)
                check_block(&d, (enum sp_block_kind)kind,
                            sp_block_is_of_layer((enum sp_block_kind)kind) ? 1 : -1);
            check_heads(&d);
            free_divided(&d);
        }
    printf("    %d blocks\n", blocks);
    assert_int_equal(blocks, 8 * SP_BLOCK_KINDS);
}

/* Ranges cut to a piece of a block have its elements, counted from its first. */
TEST(test_clip)
{
    for (size_t first = 0; first < 30; first++)
        for (size_t count = 1; count < 20; count++) {
            struct sp_block_range range[] = {{2, 5}, {7, 1}, {20, 3}}, cut[3];
            bool in[60] = {false};
            size_t want = 0;
            int n;

            memcpy(cut, range, sizeof cut);
            for (int i = 0; i < 3; i++)
                for (size_t k = 0; k < range[i].n; k++)
                    in[range[i].first + k] = true;
            for (size_t k = 0; k < count; k++)
                want += in[first + k];
            n = sp_ranges_clip(cut, 3, first, count);
            assert_int_equal(sp_ranges_sum(cut, n), want);
            for (int i = 0; i < n; i++)
                for (size_t k = 0; k < cut[i].n; k++)
                    assert_true(cut[i].first + k < count && in[first + cut[i].first + k]);
        }
}

/* The elements of a kind that each of some devices has. */
static size_t elements(const struct sp_model *m, int devices, enum sp_block_kind kind,
                       enum sp_range_kind what, bool tokens)
{
    struct sp_block_range range[SP_BLOCK_RANGES];

    return sp_ranges_sum(range, sp_block_ranges(m, devices, kind, what, tokens, range));
}

/* Biases of the output and of down are added to complete sums; norms apply to tokens; gains of
 * heads to heads. */
TEST(test_which_are_summed)
{
    const struct sp_model *m = &models[2];
    const enum sp_range_kind summed = SP_RANGES_SUMMED;

    assert_int_equal(elements(m, 2, SP_BLOCK_NORM1, summed, true), 7);
    assert_int_equal(elements(m, 2, SP_BLOCK_POST, summed, true), 7);
    assert_int_equal(elements(m, 2, SP_BLOCK_QKV, summed, true), 2 * 2);
    assert_int_equal(elements(m, 2, SP_BLOCK_TOKENS, summed, true), 0);
    assert_int_equal(elements(m, 2, SP_BLOCK_POST, summed, false), 0);
    assert_int_equal(elements(m, 2, SP_BLOCK_QKV, summed, false), 2 * 2);
    assert_int_equal(elements(&models[0], 2, SP_BLOCK_POSITIONS, summed, true), 0);
}

/* A head of keys and values on several devices: their weights and biases; all others are on one. */
TEST(test_which_keys_are_summed)
{
    const struct sp_model *grouped = &models[3], *one = &models[4];

    assert_int_equal(elements(grouped, 2, SP_BLOCK_QKV, SP_RANGES_KEYS, true), 0);
    assert_int_equal(elements(grouped, 4, SP_BLOCK_QKV, SP_RANGES_KEYS, true), 2 * 6 * (7 + 1));
    assert_int_equal(elements(one, 2, SP_BLOCK_QKV, SP_RANGES_KEYS, false), 2 * 6 * (7 + 1));
    assert_int_equal(elements(one, 2, SP_BLOCK_QKV, SP_RANGES_SAME, false), 2 * 6);
    assert_int_equal(elements(one, 2, SP_BLOCK_POST, SP_RANGES_KEYS, true), 0);
}

TEST(test_vocabulary)
{
    for (int devices = 1; devices <= 8; devices++) {
        struct sp_model m = models[0];
        int next = 0, first, count;

        m.vocab = 50257;
        for (int k = 0; k < devices; k++) {
            sp_vocabulary_part(&m, devices, k, &first, &count);
            assert_int_equal(first, next);
            assert_true(count > 0);
            next += count;
        }
        assert_int_equal(next, m.vocab);
    }
}

TEST(test_what_does_not_divide)
{
    struct sp_model m = models[1];
    char why[64];

    assert_true(sp_model_is_divisible(&m, 2, why, sizeof why));
    assert_false(sp_model_is_divisible(&m, 4, why, sizeof why)); /* heads are */
    assert_string_equal(why, "an MLP of width 10");
    m.heads = 12;
    m.kv_heads = 4;
    assert_false(sp_model_is_divisible(&m, 6, why, sizeof why));
    assert_string_equal(why, "12 heads and 4 of keys and values");
    m.mlp = 11;
    assert_false(sp_model_is_divisible(&m, 2, why, sizeof why));
    assert_string_equal(why, "an MLP of width 11");
    m = models[0];
    m.vocab = 5; /* 3 devices have 2 rows each, 6 have 1: the last has none */
    m.mlp = 6;
    assert_true(sp_model_is_divisible(&m, 3, why, sizeof why));
    assert_false(sp_model_is_divisible(&m, 6, why, sizeof why));
    assert_string_equal(why, "a vocabulary of 5");
    m.vocab = 11;
    m.positions = 5;
    assert_false(sp_model_is_divisible(&m, 6, why, sizeof why));
    assert_string_equal(why, "a table of 5 positions");
}

/* With or without `sequence`, a device's shape computes and keeps a part of a step. */
TEST(test_shapes)
{
    struct sp_shape whole, sequence, tokens;

    sp_shape_init(&whole, &models[1], 3, 8, 2);
    sequence = tokens = whole;
    sp_shape_tensor(&sequence, 2, true);
    sp_shape_tensor(&tokens, 2, false);
    assert_int_equal(sequence.rows * sequence.q_width, whole.rows * whole.q_width / 2);
    assert_int_equal(tokens.rows * tokens.q_width, whole.rows * whole.q_width / 2);
    assert_int_equal(sequence.rows * sequence.model.hidden, whole.rows * whole.model.hidden / 2);
    assert_int_equal(tokens.rows * tokens.model.hidden, whole.rows * whole.model.hidden);
    assert_int_equal(sequence.up, tokens.up);
    assert_true(sequence.loss_scale == whole.loss_scale);
    assert_int_equal(sp_shape_unit(&sequence), 2);
    assert_int_equal(sp_shape_unit(&tokens), 1);
}

/* Rows of the MLP at a time are rows of all devices, and of one where each has all tokens. */
TEST(test_chunks)
{
    struct sp_shape whole, sequence, tokens, rows;

    sp_shape_init(&whole, &models[1], 3, 8, 2);
    sp_shape_cut(&whole, 7, 0);
    sequence = tokens = whole;
    sp_shape_tensor(&sequence, 2, true);
    sp_shape_tensor(&tokens, 2, false);
    assert_int_equal(sequence.mlp_rows, 3);
    assert_int_equal(tokens.mlp_rows, 7);
    sp_shape_cut(&whole, 1, 0);
    sp_shape_tensor(&whole, 2, true);
    assert_int_equal(whole.mlp_rows, 1);
    sp_shape_rows(&sequence, 2, &rows);
    assert_int_equal(rows.rows, 2);
    assert_int_equal(rows.mlp_rows, 2);
    assert_int_equal(rows.up_width, sequence.up_width);
}

/* A head on several devices counts on each, in both forms. */
TEST(test_shapes_of_copies)
{
    struct sp_shape sequence, tokens, share;

    sp_shape_init(&sequence, &models[3], 3, 8, 2);
    tokens = sequence;
    sp_shape_tensor(&sequence, 4, true);
    sp_shape_tensor(&tokens, 4, false);
    sp_shape_share_of(&sequence, &share);
    assert_int_equal(share.kv_width, 2 * 6);
    assert_int_equal(tokens.kv_width, share.kv_width);
    assert_int_equal(sequence.rows * sequence.kv_width, tokens.rows * tokens.kv_width);
    assert_int_equal(sequence.rows * sequence.q_width, tokens.rows * tokens.q_width);
    assert_int_equal(sequence.whole.kv_heads, 2);
}
