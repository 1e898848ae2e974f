/* The list of tensors of a model: names, shapes, and where each lies in its block. */
#include "model/params.h"
#include "sp_error.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_MAX_TENSORS 8 /* SP_BLOCK_POST of GPT-2 */
#define ALIGNMENT 8         /* elements: one AVX register of floats, 32 bytes */
#define INIT_STD 0.02f

/* Tensors of one block, in the order of their offsets. */
struct listing {
    const struct sp_model *m;
    enum sp_block_kind kind;
    int layer;
    size_t end; /* first free element */
    int n;
    struct sp_tensor t[BLOCK_MAX_TENSORS];
};

static size_t align(size_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Tensors of one role follow each other without a gap, so that query, key and value (gate and
 * up) are one matrix to the kernels; every role starts aligned. */
static struct sp_tensor *append(struct listing *l, enum sp_role role, const char *suffix, int rows,
                                int cols)
{
    struct sp_tensor *t = &l->t[l->n];

    if (l->n == 0 || l->t[l->n - 1].role != role)
        l->end = align(l->end);
    *t = (struct sp_tensor){.block = l->kind,
                            .role = role,
                            .layer = l->layer,
                            .offset = l->end,
                            .rows = rows,
                            .cols = cols};
    if (l->layer < 0)
        snprintf(t->name, sizeof t->name, "%s", suffix);
    else if (l->m->arch == SP_ARCH_GPT2)
        snprintf(t->name, sizeof t->name, "transformer.h.%d.%s", l->layer, suffix);
    else
        snprintf(t->name, sizeof t->name, "model.layers.%d.%s", l->layer, suffix);
    l->end += (size_t)rows * (size_t)cols;
    l->n++;
    return t;
}

static void add_vector(struct listing *l, enum sp_role role, const char *suffix, int size)
{
    struct sp_tensor *t = append(l, role, suffix, 1, size);

    t->is_vector = true;
    t->init = role == SP_ROLE_GAIN ? SP_INIT_ONE : SP_INIT_ZERO;
}

/* The two products that add to the residual stream start smaller, for the sum of 2L of them to
 * have the variance of one (GPT-2). */
static void add_matrix(struct listing *l, enum sp_role role, const char *suffix, int rows, int cols)
{
    struct sp_tensor *t = append(l, role, suffix, rows, cols);

    t->decay = true;
    t->init = SP_INIT_NORMAL;
    t->std = INIT_STD;
    if (role == SP_ROLE_OUT || role == SP_ROLE_DOWN)
        t->std /= sqrtf(2.0f * (float)l->m->layers);
}

/* GPT-2's Conv1D: [in, out] in the file, with a bias. */
static void add_conv1d(struct listing *l, enum sp_role role, const char *name, int out, int in)
{
    char suffix[32];

    snprintf(suffix, sizeof suffix, "%s.weight", name);
    add_matrix(l, role, suffix, out, in);
    l->t[l->n - 1].transposed = true;
    snprintf(suffix, sizeof suffix, "%s.bias", name);
    add_vector(l, role + 1, suffix, out); /* SP_ROLE_X_BIAS follows SP_ROLE_X */
}

static void list_gpt2(struct listing *l)
{
    const struct sp_model *m = l->m;
    int h = m->hidden;

    switch (l->kind) {
    case SP_BLOCK_TOKENS:
        add_matrix(l, SP_ROLE_TABLE, "transformer.wte.weight", m->vocab, h);
        break;
    case SP_BLOCK_POSITIONS:
        add_matrix(l, SP_ROLE_TABLE, "transformer.wpe.weight", m->positions, h);
        break;
    case SP_BLOCK_NORM1:
        add_vector(l, SP_ROLE_GAIN, "ln_1.weight", h);
        add_vector(l, SP_ROLE_BIAS, "ln_1.bias", h);
        break;
    case SP_BLOCK_QKV:
        add_conv1d(l, SP_ROLE_QKV, "attn.c_attn", 3 * h, h);
        break;
    case SP_BLOCK_POST:
        add_conv1d(l, SP_ROLE_OUT, "attn.c_proj", h, h);
        add_vector(l, SP_ROLE_GAIN, "ln_2.weight", h);
        add_vector(l, SP_ROLE_BIAS, "ln_2.bias", h);
        add_conv1d(l, SP_ROLE_UP, "mlp.c_fc", m->mlp, h);
        add_conv1d(l, SP_ROLE_DOWN, "mlp.c_proj", h, m->mlp);
        break;
    case SP_BLOCK_NORM:
        add_vector(l, SP_ROLE_GAIN, "transformer.ln_f.weight", h);
        add_vector(l, SP_ROLE_BIAS, "transformer.ln_f.bias", h);
        break;
    case SP_BLOCK_HEAD:
        if (!m->tied)
            add_matrix(l, SP_ROLE_TABLE, "lm_head.weight", m->vocab, h);
        break;
    case SP_BLOCK_KINDS:
        break;
    }
}

static void list_llama(struct listing *l)
{
    const struct sp_model *m = l->m;
    int h = m->hidden, q = sp_model_q_width(m), kv = m->kv_heads * m->head_dim;

    switch (l->kind) {
    case SP_BLOCK_TOKENS:
        add_matrix(l, SP_ROLE_TABLE, "model.embed_tokens.weight", m->vocab, h);
        break;
    case SP_BLOCK_NORM1:
        add_vector(l, SP_ROLE_GAIN, "input_layernorm.weight", h);
        break;
    case SP_BLOCK_QKV:
        add_matrix(l, SP_ROLE_QKV, "self_attn.q_proj.weight", q, h);
        add_matrix(l, SP_ROLE_QKV, "self_attn.k_proj.weight", kv, h);
        add_matrix(l, SP_ROLE_QKV, "self_attn.v_proj.weight", kv, h);
        break;
    case SP_BLOCK_POST:
        add_matrix(l, SP_ROLE_OUT, "self_attn.o_proj.weight", h, q);
        add_vector(l, SP_ROLE_GAIN, "post_attention_layernorm.weight", h);
        add_matrix(l, SP_ROLE_UP, "mlp.gate_proj.weight", m->mlp, h);
        add_matrix(l, SP_ROLE_UP, "mlp.up_proj.weight", m->mlp, h);
        add_matrix(l, SP_ROLE_DOWN, "mlp.down_proj.weight", h, m->mlp);
        break;
    case SP_BLOCK_NORM:
        add_vector(l, SP_ROLE_GAIN, "model.norm.weight", h);
        break;
    case SP_BLOCK_HEAD:
        if (!m->tied)
            add_matrix(l, SP_ROLE_TABLE, "lm_head.weight", m->vocab, h);
        break;
    case SP_BLOCK_POSITIONS:
    case SP_BLOCK_KINDS:
        break;
    }
}

static bool in_layers(enum sp_block_kind kind)
{
    return kind == SP_BLOCK_NORM1 || kind == SP_BLOCK_QKV || kind == SP_BLOCK_POST;
}

static void list_block(const struct sp_model *m, enum sp_block_kind kind, int layer,
                       struct listing *l)
{
    l->m = m;
    l->kind = kind;
    l->layer = in_layers(kind) ? layer : -1;
    l->end = 0;
    l->n = 0;
    if (m->arch == SP_ARCH_GPT2)
        list_gpt2(l);
    else
        list_llama(l);
    l->end = align(l->end);
}

size_t sp_block_elements(const struct sp_model *m, enum sp_block_kind kind)
{
    struct listing l;

    list_block(m, kind, 0, &l);
    return l.end;
}

size_t sp_block_offset(const struct sp_model *m, enum sp_block_kind kind, enum sp_role role)
{
    struct listing l;

    list_block(m, kind, 0, &l);
    for (int i = 0; i < l.n; i++) {
        if (l.t[i].role == role)
            return l.t[i].offset;
    }
    return (size_t)-1;
}

static int append_block(struct sp_params *p, enum sp_block_kind kind, int layer)
{
    struct listing l;

    list_block(&p->model, kind, layer, &l);
    if (p->tensors && l.n)
        memcpy(p->tensors + p->n, l.t, (size_t)l.n * sizeof *l.t);
    return l.n;
}

int sp_params_create(const struct sp_model *m, struct sp_params *p)
{
    struct sp_params made = {.model = *m};
    size_t count = 0;

    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++)
        count += (size_t)append_block(&made, kind, 0) * (in_layers(kind) ? (size_t)m->layers : 1);
    made.tensors = malloc(count * sizeof *made.tensors);
    if (!made.tensors)
        return sp_error(ENOMEM, "model %s: no memory for a list of %zu tensors", m->name, count);
    made.n += append_block(&made, SP_BLOCK_TOKENS, -1);
    made.n += append_block(&made, SP_BLOCK_POSITIONS, -1);
    for (int layer = 0; layer < m->layers; layer++) {
        made.n += append_block(&made, SP_BLOCK_NORM1, layer);
        made.n += append_block(&made, SP_BLOCK_QKV, layer);
        made.n += append_block(&made, SP_BLOCK_POST, layer);
    }
    made.n += append_block(&made, SP_BLOCK_NORM, -1);
    made.n += append_block(&made, SP_BLOCK_HEAD, -1);
    *p = made;
    return 0;
}

void sp_params_destroy(struct sp_params *p)
{
    free(p->tensors);
    p->tensors = NULL;
    p->n = 0;
}

void sp_block_each(const struct sp_params *p, enum sp_block_kind kind, int layer,
                   sp_block_range_fn fn, void *arg)
{
    for (int i = 0; i < p->n; i++) {
        const struct sp_tensor *t = &p->tensors[i];

        if (t->block == kind && (t->layer < 0 || t->layer == layer))
            fn(arg, t);
    }
}

uint64_t sp_model_parameters(const struct sp_model *m)
{
    uint64_t total = 0;
    struct listing l;

    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++) {
        uint64_t block = 0;

        list_block(m, kind, 0, &l);
        for (int i = 0; i < l.n; i++)
            block += (uint64_t)l.t[i].rows * (uint64_t)l.t[i].cols;
        total += block * (in_layers(kind) ? (uint64_t)m->layers : 1);
    }
    return total;
}
