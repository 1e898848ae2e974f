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

/* Each element of the whole is in one part or, if replicated, in all; copied back, the parts are
 * the whole. */
static void check_block(const struct divided *d, enum sp_block_kind kind, int layer)
{
    size_t n = sp_block_elements(&d->whole.model, kind);
    size_t held = sp_block_elements(&d->part.model, kind), same = 0;
    float *whole = numbered(&d->whole, kind, layer), *back = zeros(n), *part = zeros(held);
    int *seen = calloc(n + 2, sizeof *seen);
    const struct sp_divided_block block = {&d->whole, &d->part, kind, layer};
    struct sp_block_range range[SP_BLOCK_RANGES];
    int ranges = sp_block_ranges(&block, SP_RANGES_SAME, true, range);

    must(seen != NULL, "calloc");
    for (int m = 0; m < d->devices; m++) {
        memset(part, 0xff, held * sizeof *part);
        sp_block_take_part(&block, m, whole, part);
        for (size_t i = 0; i < held; i++)
            seen[(int)part[i]] += part[i] > 0;
        sp_block_put_part(&block, m, part, back);
    }
    assert_memory_equal(back, whole, n * sizeof *back);
    for (size_t i = 0; i < n; i++)
        same += whole[i] > 0 && seen[(int)whole[i]] == d->devices;
    for (size_t i = 0; i < n; i++)
        if (whole[i] > 0 && seen[(int)whole[i]] != 1 && seen[(int)whole[i]] != d->devices)
            fail_msg("%s, block %d: element %zu is in %d parts", d->whole.model.name, kind, i,
                     seen[(int)whole[i]]);
    for (int i = 0; i < ranges; i++) {
        same -= range[i].n;
        assert_true(i == 0 || range[i - 1].first + range[i - 1].n <= range[i].first);
        for (size_t k = range[i].first; k < range[i].first + range[i].n; k++)
            assert_int_equal(seen[(int)part[k]], d->devices);
    }
    assert_int_equal(same, 0);
    free(whole), free(back), free(part), free(seen);
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
            size_t head = from[i] + (size_t)k * each[i];

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
    assert_int_equal(blocks, 4 * SP_BLOCK_KINDS);
}

/* sp_block_summed counts what the ranges of sp_block_ranges list, for any piece of a block. */
TEST(test_summed)
{
    for (int i = 0; i < MODELS; i++)
        for (int kind = 0; kind < SP_BLOCK_KINDS; kind++)
            for (int tokens = 0; tokens < 2; tokens++) {
                struct divided d = divide(&models[i], 2);
                struct sp_block_range range[SP_BLOCK_RANGES];
                const struct sp_divided_block block = {&d.whole, &d.part, (enum sp_block_kind)kind,
                                                       1};
                int n = sp_block_ranges(&block, SP_RANGES_SUMMED, tokens, range);
                size_t all = sp_block_elements(&d.part.model, (enum sp_block_kind)kind);

                for (size_t first = 0; first <= all; first += 1 + all / 7) {
                    size_t piece = all - first < 13 ? all - first : 13, want = 0;

                    for (int k = 0; k < n; k++)
                        for (size_t e = range[k].first; e < range[k].first + range[k].n; e++)
                            want += e >= first && e < first + piece;
                    assert_int_equal(sp_block_summed(&d.part.model, (enum sp_block_kind)kind,
                                                     tokens, first, piece),
                                     want);
                }
                free_divided(&d);
            }
}

/* Biases of the output and of down are added to complete sums; norms apply to tokens; gains of
 * heads to heads. */
TEST(test_which_are_summed)
{
    const struct sp_model *m = &models[2];
    struct sp_model part;

    sp_model_divide(m, 2, &part);
    assert_int_equal(sp_block_summed(&part, SP_BLOCK_NORM1, true, 0, 1000), 7);
    assert_int_equal(sp_block_summed(&part, SP_BLOCK_POST, true, 0, 10000), 7);
    assert_int_equal(sp_block_summed(&part, SP_BLOCK_QKV, true, 0, 10000), 2 * 2);
    assert_int_equal(sp_block_summed(&part, SP_BLOCK_TOKENS, true, 0, 10000), 0);
    assert_int_equal(sp_block_summed(&part, SP_BLOCK_POST, false, 0, 10000), 0);
    assert_int_equal(sp_block_summed(&part, SP_BLOCK_QKV, false, 0, 10000), 2 * 2);
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
    assert_false(sp_model_is_divisible(&m, 4, why, sizeof why));
    assert_string_equal(why, "8 heads and 2 of keys and values");
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
