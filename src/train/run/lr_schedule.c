#include "sp_error.h"
#include "train/config.h"
#include <math.h>

int sp_lr_decay(const struct sp_lr_schedule *s)
{
    if (s->decay > 0)
        return s->decay;
    if (s->shape == SP_LR_WSD)
        return s->steps < 10 ? 1 : s->steps / 10;
    return s->steps > s->warmup ? s->steps - s->warmup : 1;
}

double sp_lr_at(const struct sp_lr_schedule *s, int step)
{
    int decay = sp_lr_decay(s);
    int first = s->shape == SP_LR_WSD ? s->steps - decay : s->warmup;
    double x = step > first ? ((double)step - first) / decay : 0;

    if (step < s->warmup)
        return s->lr * (step + 1.0) / s->warmup;
    x = x < 1 ? x : 1;
    switch (s->shape) {
    case SP_LR_COSINE:
        return s->min + (s->lr - s->min) * (1 + cos(3.14159265358979323846 * x)) / 2;
    case SP_LR_LINEAR:
    case SP_LR_WSD:
        return s->min + (s->lr - s->min) * (1 - x);
    case SP_LR_CONSTANT:
        break;
    }
    return s->lr;
}

int sp_lr_check(const struct sp_lr_schedule *s)
{
    if (s->shape == SP_LR_CONSTANT && (s->min > 0 || s->decay > 0))
        return sp_error(EINVAL, "train: --%s has no effect with --lr-schedule constant",
                        s->min > 0 ? "lr-min" : "decay");
    if (s->min > s->lr)
        return sp_error(EINVAL, "train: --lr-min %g is above --lr %g", s->min, s->lr);
    if (s->shape == SP_LR_WSD && (long)s->warmup + sp_lr_decay(s) > s->steps && s->steps > 0)
        return sp_error(EINVAL,
                        "train: --warmup %d and a decay of %d steps do not fit into --steps %d",
                        s->warmup, sp_lr_decay(s), s->steps);
    return 0;
}
