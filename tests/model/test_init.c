/* Initial values: pinned, of the right distribution, independent of who asks for what when. */
#include "odd_models.h"
#include "support.h"
#include "model/params.h"
#include <math.h>

/* Computed by a program of its own in double precision, from the definition in init.c; the
 * Philox in it gives the published vectors of Random123. */
static const struct {
    const char *model;
    uint64_t seed;
    const char *tensor;
    size_t i;
    float value;
} golden[] = {
    {"gpt-tiny", 42, "transformer.wte.weight", 0, 0.0229175851f},
    {"gpt-tiny", 42, "transformer.wte.weight", 1, 0.0378419881f},
    {"gpt-tiny", 42, "transformer.wte.weight", 16383, -0.0227160792f},
    {"gpt-tiny", 42, "transformer.h.3.attn.c_attn.weight", 5, -0.0196358981f},
    {"gpt-tiny", 42, "transformer.h.5.mlp.c_proj.weight", 2, -0.00695817037f},
    {"gpt-tiny", UINT64_C(0x123456789abcdef0), "transformer.wpe.weight", 32767, 0.0382682546f},
    {"llama-tiny", 7, "model.layers.2.self_attn.k_proj.weight", 9, 0.00380583034f},
    {"llama-tiny", 7, "model.layers.2.mlp.up_proj.weight", 0, -0.0121060738f},
    {"llama-tiny", 7, "lm_head.weight", 3, -0.0381789362f},
};

static struct sp_params params_of(const char *preset)
{
    struct sp_params p;
    struct sp_model m;

    assert_int_equal(sp_model_load(preset, &m), 0);
    assert_int_equal(sp_params_create(&m, &p), 0);
    return p;
}

static const struct sp_parameter *find(const struct sp_params *p, const char *name)
{
    for (int k = 0; k < p->n; k++)
        if (!strcmp(p->tensors[k].name, name))
            return &p->tensors[k];
    must(false, name);
    return NULL;
}

/* The block of a tensor, initialised over garbage. */
static float *block_of(const struct sp_params *p, const struct sp_parameter *t, uint64_t seed)
{
    size_t n = sp_block_elements(&p->model, t->block);
    float *w = malloc(n * sizeof *w);

    must(w != NULL, "malloc");
    memset(w, 0xff, n * sizeof *w); /* NaN */
    sp_block_init(p, t->block, t->layer, seed, w);
    return w;
}

TEST(golden_values)
{
    double worst = 0;

    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        struct sp_params p = params_of(golden[i].model);
        const struct sp_parameter *t = find(&p, golden[i].tensor);
        float *w = block_of(&p, t, golden[i].seed);
        double error = fabs(w[t->offset + golden[i].i] / golden[i].value - 1.0);

        if (error > 3e-7) /* the rounding of a float, not the last bit of a logarithm */
            fail_msg("%s[%zu] is %.9g, expected %.9g", t->name, golden[i].i,
                     w[t->offset + golden[i].i], golden[i].value);
        worst = error > worst ? error : worst;
        free(w);
        sp_params_destroy(&p);
    }
    printf("%zu pinned values, largest relative error %.1e\n", sizeof golden / sizeof golden[0],
           worst);
}

/* Mean and variance of n normal values within 5 standard errors, and no value beyond what 32-bit
 * Box-Muller can give. */
static double check_normal(const struct sp_parameter *t, const float *w)
{
    size_t n = (size_t)t->rows * (size_t)t->cols;
    double sum = 0, squares = 0, neighbours = 0, mean, variance, s = t->std;

    for (size_t i = 0; i < n; i++) {
        assert_true(fabs(w[i]) < 6.8 * s);
        sum += w[i];
        squares += (double)w[i] * w[i];
        neighbours += (double)w[i] * w[i ? i - 1 : n - 1];
    }
    mean = sum / (double)n;
    variance = squares / (double)n;
    if (fabs(mean) > 5 * s / sqrt((double)n) ||
        fabs(variance / (s * s) - 1) > 5 * sqrt(2.0 / (double)n) ||
        fabs(neighbours / (double)n) > 5 * s * s / sqrt((double)n))
        fail_msg("%s: mean %g, std %g instead of %g, correlation %g", t->name, mean, sqrt(variance),
                 s, neighbours / (double)n / variance);
    return sqrt(variance) / s;
}

TEST(distributions)
{
    static const char *const models[] = {"gpt-tiny", "llama-tiny"};

    for (int k = 0; k < 2; k++) {
        struct sp_params p = params_of(models[k]);
        double low = 9, high = 0;

        for (int i = 0; i < p.n; i++) {
            const struct sp_parameter *t = &p.tensors[i];
            size_t n = (size_t)t->rows * (size_t)t->cols;
            bool residual = t->role == SP_ROLE_OUT || t->role == SP_ROLE_DOWN;
            float *w = block_of(&p, t, 2024);

            if (t->is_vector) {
                for (size_t j = 0; j < n; j++)
                    assert_true(w[t->offset + j] == (t->role == SP_ROLE_GAIN ? 1.0f : 0.0f));
            } else {
                double ratio = check_normal(t, w + t->offset);

                assert_float_equal(t->std, residual ? 0.02 / sqrt(16) : 0.02, 1e-8);
                low = ratio < low ? ratio : low;
                high = ratio > high ? ratio : high;
            }
            free(w);
        }
        printf("%s: std of the matrices over the intended one: %.4f .. %.4f\n", models[k], low,
               high);
        sp_params_destroy(&p);
    }
}

/* Two matrices of one size are uncorrelated, whether seed, name or layer differs. */
TEST(streams_differ)
{
    struct sp_params p = params_of("llama-tiny");
    const struct sp_parameter *q0 = find(&p, "model.layers.0.self_attn.q_proj.weight");
    const struct sp_parameter *q1 = find(&p, "model.layers.1.self_attn.q_proj.weight");
    const struct sp_parameter *o0 = find(&p, "model.layers.0.self_attn.o_proj.weight");
    double product = 0;
    float *a, *b, *c, *d;
    size_t n;

    n = (size_t)q0->rows * (size_t)q0->cols;
    a = block_of(&p, q0, 1);
    b = block_of(&p, q1, 1);
    c = block_of(&p, o0, 1);
    d = block_of(&p, q0, 2);
    for (int pair = 0; pair < 3; pair++) {
        const float *other = pair == 0 ? b : pair == 1 ? c : d;
        double scale = pair == 1 ? q0->std * o0->std : q0->std * q0->std;

        product = 0;
        for (size_t i = 0; i < n; i++)
            product += (double)a[i] * other[i];
        product /= (double)n * scale;
        printf("correlation %d: %.4f\n", pair, product);
        assert_true(fabs(product) < 5 / sqrt((double)n));
    }
    free(a);
    free(b);
    free(c);
    free(d);
    sp_params_destroy(&p);
}

/* A block asked for twice, after others, from a list of tensors made anew: the same bits, the
 * padding zero. A model with more layers has the same values in the layers both have, except
 * where the width of the distribution depends on L. */
TEST(independent_of_order)
{
    struct sp_model m = ODD_GPT2;
    size_t n = sp_block_elements(&m, SP_BLOCK_QKV);
    float *first = malloc(n * sizeof *first), *again = malloc(n * sizeof *again);
    struct sp_params p, deeper;

    must(first && again, "malloc");
    assert_int_equal(sp_params_create(&m, &p), 0);
    m.layers = 9;
    assert_int_equal(sp_params_create(&m, &deeper), 0);
    memset(first, 0xff, n * sizeof *first);
    memset(again, 0x77, n * sizeof *again);
    sp_block_init(&p, SP_BLOCK_QKV, 2, 5, first);
    sp_block_init(&deeper, SP_BLOCK_QKV, 1, 5, again);
    assert_true(memcmp(first, again, n * sizeof *first) != 0);
    sp_block_init(&deeper, SP_BLOCK_QKV, 2, 5, again);
    assert_memory_equal(first, again, n * sizeof *first);
    for (size_t i = 675; i < n; i++) /* 45 x 15 values, padding, zero bias, padding */
        assert_true(first[i] == 0);
    sp_params_destroy(&p);
    sp_params_destroy(&deeper);
    free(first);
    free(again);
}
