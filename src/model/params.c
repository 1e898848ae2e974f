/* The list of tensors of a model: names, shapes, and where each lies in its block. */
#include "model/params.h"
#include "model/tensor_table.h"
#include "sp_error.h"
#include <math.h>
#include <stdlib.h>

#define ALIGNMENT 8 /* elements: one AVX register of floats, 32 bytes */
#define INIT_STD 0.02f

static uint64_t align_elements(uint64_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static uint64_t elements_of(const struct sp_model *m, const struct sp_tensor_row *row)
{
    return (uint64_t)sp_dim(m, row->rows) * (uint64_t)sp_dim(m, row->cols);
}

/* A walk through the tensors that a block has. */
struct walk {
    const struct sp_model *m;
    enum sp_block_kind kind;
    const struct sp_tensor_row *row; /* NULL: before the first */
    uint64_t offset, end;            /* of it; the first free element */
};

/* The next one; false: there is none, and `end` is the size of the block. Every role starts aligned. */
static bool next_tensor(struct walk *w)
{
    const struct sp_tensor_row *last = w->row, *row = last ? last + 1 : sp_tensor_table;

    while (!last && row < sp_tensor_table + sp_tensor_rows && row->block != w->kind)
        row++;
    for (; row < sp_tensor_table + sp_tensor_rows && row->block == w->kind; row++) {
        if (!sp_row_name(w->m, row))
            continue;
        w->offset = !last || last->role != row->role ? align_elements(w->end) : w->end;
        w->end = w->offset + elements_of(w->m, row);
        w->row = row;
        return true;
    }
    w->end = align_elements(w->end);
    return false;
}

static void name_tensor(const struct sp_model *m, const struct sp_tensor_row *row, int layer,
                        char name[80])
{
    const char *layers = m->arch == SP_ARCH_GPT2 ? "transformer.h" : "model.layers";

    if (sp_block_is_of_layer(row->block))
        snprintf(name, 80, "%s.%d.%s", layers, layer, sp_row_name(m, row));
    else
        snprintf(name, 80, "%s", sp_row_name(m, row));
}

/* The two products that add to the residual stream start smaller, for the sum of 2L of them to
 * have the variance of one (GPT-2). */
static float std_of(const struct sp_model *m, enum sp_role role)
{
    bool residual = role == SP_ROLE_OUT || role == SP_ROLE_DOWN;

    return residual ? INIT_STD / sqrtf(2.0f * (float)m->layers) : INIT_STD;
}

static struct sp_parameter tensor_of(const struct walk *w, int layer)
{
    const struct sp_tensor_row *row = w->row;
    bool of_layer = sp_block_is_of_layer(w->kind), matrix = row->init == SP_INIT_NORMAL;
    struct sp_parameter t = {.block = w->kind,
                             .role = row->role,
                             .layer = of_layer ? layer : -1,
                             .offset = (size_t)w->offset,
                             .rows = sp_dim(w->m, row->rows),
                             .cols = sp_dim(w->m, row->cols),
                             .is_vector = !matrix,
                             .transposed = matrix && of_layer && w->m->arch == SP_ARCH_GPT2,
                             .decay = row->decay,
                             .init = row->init,
                             .std = matrix ? std_of(w->m, row->role) : 0};

    name_tensor(w->m, row, layer, t.name);
    return t;
}

uint64_t sp_block_elements(const struct sp_model *m, enum sp_block_kind kind)
{
    struct walk w = {.m = m, .kind = kind};

    while (next_tensor(&w))
        continue;
    return w.end;
}

size_t sp_block_offset(const struct sp_model *m, enum sp_block_kind kind, enum sp_role role)
{
    struct walk w = {.m = m, .kind = kind};

    while (next_tensor(&w))
        if (w.row->role == role)
            return (size_t)w.offset;
    return (size_t)-1;
}

static void append_block(struct sp_params *p, enum sp_block_kind kind, int layer)
{
    struct walk w = {.m = &p->model, .kind = kind};

    while (next_tensor(&w))
        p->tensors[p->n++] = tensor_of(&w, layer);
}

/* How often the model has a row. */
static size_t count_of_row(const struct sp_model *m, const struct sp_tensor_row *row)
{
    if (!sp_row_name(m, row))
        return 0;
    return sp_block_is_of_layer(row->block) ? (size_t)m->layers : 1;
}

int sp_params_create(const struct sp_model *m, struct sp_params *p)
{
    struct sp_params made = {.model = *m};
    size_t count = 0;

    for (int i = 0; i < sp_tensor_rows; i++)
        count += count_of_row(m, &sp_tensor_table[i]);
    made.tensors = malloc(count * sizeof *made.tensors);
    if (!made.tensors)
        return sp_error(ENOMEM, "model %s: no memory for a list of %zu tensors", m->name, count);
    for (int kind = 0; kind < SP_BLOCK_NORM1; kind++)
        append_block(&made, (enum sp_block_kind)kind, -1);
    for (int i = 0; i < SP_LAYER_BLOCKS * m->layers; i++)
        append_block(&made, sp_layer_block(i), i / SP_LAYER_BLOCKS);
    for (int kind = SP_BLOCK_POST + 1; kind < SP_BLOCK_KINDS; kind++)
        append_block(&made, (enum sp_block_kind)kind, -1);
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
        const struct sp_parameter *t = &p->tensors[i];

        if (t->block == kind && (t->layer < 0 || t->layer == layer))
            fn(arg, t);
    }
}

uint64_t sp_model_parameters(const struct sp_model *m)
{
    uint64_t total = 0;

    for (int i = 0; i < sp_tensor_rows; i++)
        total += elements_of(m, &sp_tensor_table[i]) * count_of_row(m, &sp_tensor_table[i]);
    return total;
}

double sp_product_flops(const struct sp_model *m, enum sp_role role)
{
    double flops = 0;

    for (int i = 0; i < sp_tensor_rows; i++) {
        const struct sp_tensor_row *row = &sp_tensor_table[i];

        if (row->role == role && sp_row_name(m, row))
            flops += 2.0 * (double)elements_of(m, row);
    }
    return flops;
}
