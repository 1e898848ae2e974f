/* AdamW as PyTorch writes it, one pass over all arrays; the equations are in kernels.h. */
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"
#include <math.h>

SP_INLINE void update_loop(bool rounded, size_t n, const struct sp_adamw *hp, float *w, float *g,
                           float *m, float *v, uint16_t *low)
{
    const float b1 = hp->beta1, b2 = hp->beta2, c1 = 1.0f - b1, c2 = 1.0f - b2;
    const float keep = 1.0f - hp->lr * hp->weight_decay, step = hp->lr / hp->bias1;
    const float root = 1.0f / sqrtf(hp->bias2), eps = hp->eps, clip = hp->grad_scale;

#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float gi = g[i] * clip;
        float mi = b1 * m[i] + c1 * gi;
        float vi = b2 * v[i] + c2 * gi * gi;
        float wi = w[i] * keep - step * mi / (sqrtf(vi) * root + eps);

        w[i] = wi;
        m[i] = mi;
        v[i] = vi;
        g[i] = 0;
        if (rounded)
            low[i] = sp_nearest_bf16_or_nan(wi);
    }
}

SP_CLONES static void update(size_t n, const struct sp_adamw *hp, float *w, float *g, float *m,
                             float *v, uint16_t *low)
{
    if (low)
        update_loop(true, n, hp, w, g, m, v, low);
    else
        update_loop(false, n, hp, w, g, m, v, NULL);
}

void sp_adamw_rounded(size_t n, const struct sp_adamw *hp, float *w, float *g, float *m, float *v,
                      uint16_t *low)
{
#pragma omp parallel if (n > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(n, 32, &lo, &hi);
        update(hi - lo, hp, w + lo, g + lo, m + lo, v + lo, low ? low + lo : NULL);
    }
}

void sp_adamw(size_t n, const struct sp_adamw *hp, float *w, float *g, float *m, float *v)
{
    sp_adamw_rounded(n, hp, w, g, m, v, NULL);
}
