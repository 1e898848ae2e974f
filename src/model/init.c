/*
 * Initial values. Element i of a tensor is a pure function of (seed, name of the tensor, i): a
 * normal value of kernels/random.h, of the stream whose number is a hash of the name. So a value
 * depends neither on the number of stages or ranks nor on who computes it when, and two tensors
 * share no counter. i counts in the [out, in] order of the block.
 */
#include "kernels/backend.h"
#include "kernels/random.h"
#include "model/params.h"

/* FNV-1a, 64 bits. */
static uint64_t hash_name(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return hash;
}

struct init_arg {
    uint64_t seed;
    float *w;
};

static void init_tensor(void *arg, const struct sp_parameter *t)
{
    const struct init_arg *a = arg;
    size_t n = (size_t)t->rows * (size_t)t->cols;
    float *w = a->w + t->offset;

    switch (t->init) {
    case SP_INIT_ZERO: /* as the whole block already is */
        break;
    case SP_INIT_ONE:
        for (size_t i = 0; i < n; i++)
            w[i] = 1.0f;
        break;
    case SP_INIT_NORMAL:
        sp_normal(a->seed, hash_name(t->name), t->std, 0, n, w);
        break;
    }
}

void sp_block_init(const struct sp_params *p, enum sp_block_kind kind, int layer, uint64_t seed,
                   float *w)
{
    struct init_arg arg = {seed, w};
    const struct sp_backend *k = sp_cpu_backend(SP_F32);

    k->clear(k, sp_block_elements(&p->model, kind) * sizeof *w, w);
    sp_block_each(p, kind, layer, init_tensor, &arg);
}
