/* AdamW as PyTorch writes it, one pass over all arrays; the equations are in kernels.h. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"
#include <math.h>

SP_INLINE void update_loop(bool rounded, bool keeps_g, const struct sp_adamw *hp,
                           const struct sp_adamw_arrays a)
{
    const float b1 = hp->beta1, b2 = hp->beta2, c1 = 1.0f - b1, c2 = 1.0f - b2;
    const float keep = 1.0f - hp->lr * hp->weight_decay, step = hp->lr / hp->bias1;
    const float root = 1.0f / sqrtf(hp->bias2), eps = hp->eps, clip = hp->grad_scale;
    float *w = a.w, *g = a.g, *m = a.m, *v = a.v;
    uint16_t *low = a.low;

#pragma omp simd
    for (size_t i = 0; i < a.n; i++) {
        float gi = g[i] * clip;
        float mi = b1 * m[i] + c1 * gi;
        float vi = b2 * v[i] + c2 * gi * gi;
        float wi = w[i] * keep - step * mi / (sqrtf(vi) * root + eps);

        w[i] = wi;
        m[i] = mi;
        v[i] = vi;
        if (!keeps_g)
            g[i] = 0;
        if (rounded)
            low[i] = sp_nearest_bf16_or_nan(wi);
    }
}

SP_CLONES static void update(const struct sp_adamw *hp, const struct sp_adamw_arrays a)
{
    if (a.low && a.keeps_g)
        update_loop(true, true, hp, a);
    else if (a.low)
        update_loop(true, false, hp, a);
    else if (a.keeps_g)
        update_loop(false, true, hp, a);
    else
        update_loop(false, false, hp, a);
}

/* `low` is bf16. */
static void update_all(const struct sp_adamw *hp, const struct sp_adamw_arrays *a)
{
#pragma omp parallel if (a->n > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(a->n, 32, &lo, &hi);
        update(hp, (struct sp_adamw_arrays){.n = hi - lo,
                                            .w = a->w + lo,
                                            .g = a->g + lo,
                                            .m = a->m + lo,
                                            .v = a->v + lo,
                                            .keeps_g = a->keeps_g,
                                            .low = a->low ? (uint16_t *)a->low + lo : NULL});
    }
}

void sp_adamw(const struct sp_adamw *hp, const struct sp_adamw_arrays *a)
{
    struct sp_adamw_arrays f32 = *a;

    f32.low = NULL;
    update_all(hp, &f32);
    if (a->low)
        sp_convert(SP_F32, SP_F32, a->n, a->w, a->low);
}

void sp_cpu_adamw(const struct sp_backend *k, const struct sp_adamw *hp,
                  const struct sp_adamw_arrays *a)
{
    (k->dtype == SP_BF16 ? update_all : sp_adamw)(hp, a);
}
