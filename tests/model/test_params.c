/* The list of tensors: complete, disjoint, aligned, counted. */
#include "odd_models.h"
#include "support.h"
#include "model/params.h"

static const struct sp_model odd[] = {ODD_GPT2, ODD_GPT2_UNTIED, ODD_LLAMA, ODD_LLAMA_TIED,
                                      ODD_QWEN};

struct seen {
    const struct sp_params *p;
    enum sp_block_kind kind;
    int layer;
    size_t end; /* of the tensor before */
    int last_role, n;
    uint64_t elements;
    char *marks; /* one for each tensor of the model */
};

static void see(void *arg, const struct sp_parameter *t)
{
    struct seen *s = arg;

    assert_int_equal(t->block, s->kind);
    assert_int_equal(t->layer, s->layer);
    assert_true(t->rows > 0 && t->cols > 0);
    assert_true(t->offset >= s->end);
    if (s->n && (int)t->role == s->last_role)
        assert_true(t->offset == s->end); /* one matrix */
    else
        assert_true(t->offset % 8 == 0 && t->offset - s->end < 8);
    if (s->n == 0 || (int)t->role != s->last_role)
        assert_true(sp_block_offset(&s->p->model, s->kind, t->role) == t->offset);
    assert_int_equal(t->decay, !t->is_vector);
    assert_int_equal(t->is_vector, t->rows == 1 && t->init != SP_INIT_NORMAL);
    assert_int_equal(s->marks[t - s->p->tensors]++, 0);
    s->end = t->offset + (size_t)t->rows * (size_t)t->cols;
    s->elements += (uint64_t)t->rows * (uint64_t)t->cols;
    s->last_role = (int)t->role;
    s->n++;
}

/* Takes one block; returns its parameters. */
static uint64_t stream(const struct sp_params *p, enum sp_block_kind kind, int layer, char *marks)
{
    struct seen s = {.p = p, .kind = kind, .layer = layer, .marks = marks};
    size_t size = sp_block_elements(&p->model, kind);

    sp_block_each(p, kind, layer, see, &s);
    assert_true(size % 8 == 0);
    assert_true(size >= s.end && size - s.end < 8);
    return s.elements;
}

static void check_model(const struct sp_model *m)
{
    struct sp_params p;
    uint64_t total = 0;
    char *marks;

    assert_int_equal(sp_params_create(m, &p), 0);
    marks = calloc((size_t)p.n, 1);
    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++) {
        bool layered = kind == SP_BLOCK_NORM1 || kind == SP_BLOCK_QKV || kind == SP_BLOCK_POST;

        for (int layer = 0; layer < (layered ? m->layers : 1); layer++)
            total += stream(&p, (enum sp_block_kind)kind, layered ? layer : -1, marks);
    }
    for (int i = 0; i < p.n; i++) {
        assert_int_equal(marks[i], 1);
        if (i) { /* in the order of the model */
            const struct sp_parameter *a = &p.tensors[i - 1], *b = &p.tensors[i];

            assert_true(a->layer == b->layer ? a->block <= b->block
                                             : a->layer < b->layer || b->layer < 0);
            assert_string_not_equal(a->name, b->name);
        }
    }
    assert_true(total == sp_model_parameters(m));
    printf("%-16s %5d tensors %15llu parameters\n", m->name, p.n, (unsigned long long)total);
    free(marks);
    sp_params_destroy(&p);
    assert_null(p.tensors);
}

TEST(every_tensor_once)
{
    struct sp_model m;

    for (const char *const *name = sp_model_presets(); *name; name++) {
        assert_int_equal(sp_model_load(*name, &m), 0);
        check_model(&m);
    }
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        check_model(&odd[i]);
}

TEST(published_counts)
{
    static const struct {
        const char *name;
        double from, to;
    } known[] = {
        {"gpt2-124m", 124439808, 124439808},
        {"llama3-405b", 405853388800, 405853388800},
        /* the papers count the layers: 12h^2 each, here plus biases, norms and tables */
        {"gpt3-1.3b", 24 * 12 * 0x1p22, 1.6e9},
        {"gpt3-3b", 16 * 12 * 0x1p24, 4.0e9},
        {"gpt3-7b", 32 * 12 * 0x1p24, 7.3e9},
        {"gpt-13b", 40 * 12 * 5120.0 * 5120, 12.6e9 + 5120 * 4194304.0 + 5120 * 50257.0},
        {"gpt-65b", 80 * 12 * 0x1p26, 64.5e9 + 8192 * 4194304.0 + 8192 * 50257.0},
        {"llama-h1024", 1.0 * 32 * 12 * 0x1p20, 1.01 * 32 * 12 * 0x1p20 + 2 * 1024 * 32000},
        {"llama-h2048", .99 * 32 * 12 * 0x1p22, 1.01 * 32 * 12 * 0x1p22 + 2 * 2048 * 32000},
        {"llama-h4096", 1.0 * 32 * 12 * 0x1p24, 1.01 * 32 * 12 * 0x1p24 + 2 * 4096 * 32000},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct sp_model m;
        double n;

        assert_int_equal(sp_model_load(known[i].name, &m), 0);
        n = (double)sp_model_parameters(&m);
        if (n < known[i].from || n > known[i].to)
            fail_msg("%s: %.0f parameters, expected %.0f .. %.0f", known[i].name, n, known[i].from,
                     known[i].to);
    }
}

/* Layouts written out by hand: the order of params.h, every role at a multiple of 8. */
TEST(layouts_by_hand)
{
    const struct sp_model *g = &odd[0], *l = &odd[2];

    assert_int_equal(sp_block_elements(g, SP_BLOCK_TOKENS), 168);    /* 11 x 15 = 165 */
    assert_int_equal(sp_block_elements(g, SP_BLOCK_POSITIONS), 200); /* 13 x 15 = 195 */
    assert_int_equal(sp_block_elements(g, SP_BLOCK_NORM1), 32);
    assert_int_equal(sp_block_offset(g, SP_BLOCK_NORM1, SP_ROLE_BIAS), 16);
    assert_int_equal(sp_block_offset(g, SP_BLOCK_QKV, SP_ROLE_QKV_BIAS), 680); /* 45 x 15 = 675 */
    assert_int_equal(sp_block_elements(g, SP_BLOCK_QKV), 728);
    assert_int_equal(sp_block_offset(g, SP_BLOCK_POST, SP_ROLE_OUT), 0);
    assert_int_equal(sp_block_offset(g, SP_BLOCK_POST, SP_ROLE_OUT_BIAS), 232); /* 15 x 15 */
    assert_int_equal(sp_block_offset(g, SP_BLOCK_POST, SP_ROLE_GAIN), 248);
    assert_int_equal(sp_block_offset(g, SP_BLOCK_POST, SP_ROLE_BIAS), 264);
    assert_int_equal(sp_block_offset(g, SP_BLOCK_POST, SP_ROLE_UP), 280);
    assert_int_equal(sp_block_offset(g, SP_BLOCK_POST, SP_ROLE_UP_BIAS), 392); /* 7 x 15 = 105 */
    assert_int_equal(sp_block_offset(g, SP_BLOCK_POST, SP_ROLE_DOWN), 400);
    assert_int_equal(sp_block_offset(g, SP_BLOCK_POST, SP_ROLE_DOWN_BIAS), 512);
    assert_int_equal(sp_block_elements(g, SP_BLOCK_POST), 528);
    assert_int_equal(sp_block_elements(g, SP_BLOCK_HEAD), 0);
    assert_true(sp_block_offset(g, SP_BLOCK_HEAD, SP_ROLE_TABLE) == (size_t)-1);
    assert_int_equal(sp_block_elements(&odd[1], SP_BLOCK_HEAD), 64); /* 7 x 9 = 63 */

    assert_int_equal(sp_block_elements(l, SP_BLOCK_POSITIONS), 0);
    assert_true(sp_block_offset(l, SP_BLOCK_NORM, SP_ROLE_BIAS) == (size_t)-1);
    assert_true(sp_block_offset(l, SP_BLOCK_QKV, SP_ROLE_QKV_BIAS) == (size_t)-1);
    assert_int_equal(sp_block_elements(l, SP_BLOCK_QKV), 168);             /* (12 + 2 x 6) x 7 */
    assert_int_equal(sp_block_offset(l, SP_BLOCK_POST, SP_ROLE_GAIN), 88); /* 7 x 12 = 84 */
    assert_int_equal(sp_block_offset(l, SP_BLOCK_POST, SP_ROLE_UP), 96);
    assert_int_equal(sp_block_offset(l, SP_BLOCK_POST, SP_ROLE_DOWN), 168); /* 2 x 5 x 7 = 70 */
    assert_int_equal(sp_block_elements(l, SP_BLOCK_POST), 208);

    l = &odd[4];
    assert_int_equal(sp_block_offset(l, SP_BLOCK_QKV, SP_ROLE_QKV_BIAS), 336); /* 48 x 7 */
    assert_int_equal(sp_block_offset(l, SP_BLOCK_QKV, SP_ROLE_Q_GAIN), 384);
    assert_int_equal(sp_block_offset(l, SP_BLOCK_QKV, SP_ROLE_K_GAIN), 392);
    assert_int_equal(sp_block_elements(l, SP_BLOCK_QKV), 400);
    assert_int_equal(sp_block_offset(l, SP_BLOCK_POST, SP_ROLE_OUT_BIAS), 168);  /* 7 x 24 */
    assert_int_equal(sp_block_offset(l, SP_BLOCK_POST, SP_ROLE_UP_BIAS), 256);   /* 184 + 70 */
    assert_int_equal(sp_block_offset(l, SP_BLOCK_POST, SP_ROLE_DOWN_BIAS), 312); /* 272 + 35 */
}

/* Names and shapes of one layer of each style, as Hugging Face has them. */
struct named {
    const char *name;
    int rows, cols, transposed;
};

static void check_names(const struct sp_parameter *t, const struct named *expected, int n)
{
    for (int i = 0; i < n; i++) {
        assert_string_equal(t[i].name, expected[i].name);
        assert_int_equal(t[i].rows, expected[i].rows);
        assert_int_equal(t[i].cols, expected[i].cols);
        assert_int_equal(t[i].transposed, expected[i].transposed);
    }
}

TEST(names_of_a_layer)
{
    static const struct named gpt2[] = {{"transformer.h.2.ln_1.weight", 1, 15, 0},
                                        {"transformer.h.2.ln_1.bias", 1, 15, 0},
                                        {"transformer.h.2.attn.c_attn.weight", 45, 15, 1},
                                        {"transformer.h.2.attn.c_attn.bias", 1, 45, 0},
                                        {"transformer.h.2.attn.c_proj.weight", 15, 15, 1},
                                        {"transformer.h.2.attn.c_proj.bias", 1, 15, 0},
                                        {"transformer.h.2.ln_2.weight", 1, 15, 0},
                                        {"transformer.h.2.ln_2.bias", 1, 15, 0},
                                        {"transformer.h.2.mlp.c_fc.weight", 7, 15, 1},
                                        {"transformer.h.2.mlp.c_fc.bias", 1, 7, 0},
                                        {"transformer.h.2.mlp.c_proj.weight", 15, 7, 1},
                                        {"transformer.h.2.mlp.c_proj.bias", 1, 15, 0}},
                              llama[] = {
                                  {"model.layers.1.input_layernorm.weight", 1, 7, 0},
                                  {"model.layers.1.self_attn.q_proj.weight", 12, 7, 0},
                                  {"model.layers.1.self_attn.k_proj.weight", 6, 7, 0},
                                  {"model.layers.1.self_attn.v_proj.weight", 6, 7, 0},
                                  {"model.layers.1.self_attn.o_proj.weight", 7, 12, 0},
                                  {"model.layers.1.post_attention_layernorm.weight", 1, 7, 0},
                                  {"model.layers.1.mlp.gate_proj.weight", 5, 7, 0},
                                  {"model.layers.1.mlp.up_proj.weight", 5, 7, 0},
                                  {"model.layers.1.mlp.down_proj.weight", 7, 5, 0},
                                  {"model.norm.weight", 1, 7, 0},
                                  {"lm_head.weight", 11, 7, 0}};
    struct sp_params p;

    assert_int_equal(sp_params_create(&odd[0], &p), 0);
    assert_string_equal(p.tensors[0].name, "transformer.wte.weight");
    assert_string_equal(p.tensors[1].name, "transformer.wpe.weight");
    check_names(p.tensors + 2 + 2 * 12, gpt2, 12);
    assert_string_equal(p.tensors[p.n - 1].name, "transformer.ln_f.bias");
    sp_params_destroy(&p);

    assert_int_equal(sp_params_create(&odd[2], &p), 0);
    assert_string_equal(p.tensors[0].name, "model.embed_tokens.weight");
    check_names(p.tensors + 1 + 9, llama, 11);
    sp_params_destroy(&p);
}
