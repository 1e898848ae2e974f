/* Learning rates against their formulas. */
#include "model/support.h"
#include "train/config.h"
#include <errno.h>
#include <math.h>

static void near(double a, double b)
{
    if (fabs(a - b) > 1e-12)
        fail_msg("%.15g, not %.15g", a, b);
}

TEST(test_constant)
{
    struct sp_lr_schedule s = {.lr = 0.5, .warmup = 4, .steps = 10};

    near(sp_lr_at(&s, 0), 0.125);
    near(sp_lr_at(&s, 3), 0.5);
    near(sp_lr_at(&s, 9), 0.5);
    near(sp_lr_at(&s, 1000), 0.5);
}

TEST(test_cosine)
{
    struct sp_lr_schedule s = {SP_LR_COSINE, .lr = 1, .min = 0.1, .warmup = 10, .steps = 110};

    assert_int_equal(sp_lr_decay(&s), 100);
    near(sp_lr_at(&s, 4), 0.5);
    near(sp_lr_at(&s, 9), 1);
    near(sp_lr_at(&s, 10), 1);
    near(sp_lr_at(&s, 35), 0.1 + 0.45 * (1 + sqrt(0.5)));
    near(sp_lr_at(&s, 60), 0.55);
    near(sp_lr_at(&s, 110), 0.1);
    near(sp_lr_at(&s, 500), 0.1);
    s.decay = 50; /* and stays at the end of it */
    near(sp_lr_at(&s, 35), 0.55);
    near(sp_lr_at(&s, 60), 0.1);
    near(sp_lr_at(&s, 99), 0.1);
}

TEST(test_linear)
{
    struct sp_lr_schedule s = {SP_LR_LINEAR, .lr = 1, .min = 0.2, .warmup = 2, .steps = 10};

    for (int k = 2; k < 10; k++)
        near(sp_lr_at(&s, k), 1 - 0.8 * (k - 2) / 8);
    near(sp_lr_at(&s, 10), 0.2);
}

TEST(test_wsd)
{
    struct sp_lr_schedule s = {SP_LR_WSD, .lr = 1, .min = 0, .warmup = 5, .steps = 100};

    assert_int_equal(sp_lr_decay(&s), 10);
    near(sp_lr_at(&s, 0), 0.2);
    near(sp_lr_at(&s, 50), 1);
    near(sp_lr_at(&s, 90), 1);
    near(sp_lr_at(&s, 95), 0.5);
    near(sp_lr_at(&s, 99), 0.1);
    s.decay = 40;
    near(sp_lr_at(&s, 60), 1);
    near(sp_lr_at(&s, 80), 0.5);
}

/* No shape ever leaves [0, lr] or rises after the warm-up. */
TEST(test_falls)
{
    for (int shape = 0; shape < 4; shape++)
        for (int warmup = 0; warmup < 30; warmup += 7)
            for (int decay = 0; decay < 40; decay += 13) {
                struct sp_lr_schedule s = {(enum sp_lr_shape)shape, 3e-4, 3e-5, warmup, decay, 60};

                for (int k = 0; k < 80; k++) {
                    assert_true(sp_lr_at(&s, k) > 0 && sp_lr_at(&s, k) <= s.lr * (1 + 1e-12));
                    if (k > warmup)
                        assert_true(sp_lr_at(&s, k) <= sp_lr_at(&s, k - 1) * (1 + 1e-12));
                }
            }
}

TEST(test_refused)
{
    const struct {
        struct sp_lr_schedule s;
        const char *word;
    } cases[] = {
        {{.lr = 1, .min = 0.1, .steps = 9}, "--lr-min has no effect"},
        {{.lr = 1, .decay = 3, .steps = 9}, "--decay has no effect"},
        {{SP_LR_COSINE, .lr = 1, .min = 2, .steps = 9}, "--lr-min 2 is above --lr 1"},
        {{SP_LR_WSD, .lr = 1, .warmup = 5, .decay = 5, .steps = 9}, "do not fit into --steps 9"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct capture c;

        assert_says(&c, sp_lr_check(&cases[i].s), -EINVAL, cases[i].word, cases[i].word);
    }
}
