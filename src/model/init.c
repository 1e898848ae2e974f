/*
 * Initial values. Element i of a tensor is a pure function of (seed, name of the tensor, i):
 * Philox4x32-10 (Salmon et al. 2011) with the seed for key and (i/4, hash of the name) for
 * counter gives four uniform words, Box-Muller four normal values, of which i%4 is taken. So a
 * value depends neither on the number of stages or ranks nor on who computes it when, and two
 * tensors share no counter. i counts in the [out, in] order of the block.
 */
#include "model/params.h"
#include <math.h>
#include <string.h>

/* FNV-1a, 64 bits. */
static uint64_t hash_name(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return hash;
}

static void philox(uint64_t key, uint64_t lo, uint64_t hi, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)lo, c1 = (uint32_t)(lo >> 32);
    uint32_t c2 = (uint32_t)hi, c3 = (uint32_t)(hi >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c0, p1 = UINT64_C(0xCD9E8D57) * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Two uniform words to two normal values. The half keeps the logarithm off 0. */
static void box_muller(uint32_t a, uint32_t b, double out[2])
{
    const double pi = 3.14159265358979323846;
    double radius = sqrt(-2.0 * log((a + 0.5) * 0x1p-32));
    double angle = 2.0 * pi * ((b + 0.5) * 0x1p-32);

    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

static void fill_normal(uint64_t seed, const char *name, float std, size_t n, float *w)
{
    uint64_t hash = hash_name(name);

    for (size_t i = 0; i < n; i += 4) {
        double z[4];
        uint32_t r[4];

        philox(seed, i / 4, hash, r);
        box_muller(r[0], r[1], z);
        box_muller(r[2], r[3], z + 2);
        for (size_t j = 0; j < 4 && i + j < n; j++)
            w[i + j] = (float)(std * z[j]);
    }
}

struct init_arg {
    uint64_t seed;
    float *w;
};

static void init_tensor(void *arg, const struct sp_tensor *t)
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
        fill_normal(a->seed, t->name, t->std, n, w);
        break;
    }
}

void sp_block_init(const struct sp_params *p, enum sp_block_kind kind, int layer, uint64_t seed,
                   float *w)
{
    struct init_arg arg = {seed, w};
    size_t n = sp_block_elements(&p->model, kind);

    if (n)
        memset(w, 0, n * sizeof *w);
    sp_block_each(p, kind, layer, init_tensor, &arg);
}
