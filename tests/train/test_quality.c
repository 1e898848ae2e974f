/*
 * Calibrations that are to be trusted, or not: what is said of figures that are not steady, which it refuses, and rates
 * that no device has.
 */
#include "model/support.h"
#include "sp_error.h"
#include "train/calibrate/quality.h"
#include <errno.h>

static struct sp_steady samples(int n, double noise)
{
    struct sp_steady s = {0};

    for (int i = 0; i < n; i++)
        sp_steady_add(&s, 1 + noise * i);
    return s;
}

TEST(steady)
{
    struct sp_steady s = samples(10, 0.001);
    struct sp_quality q = {0};
    char text[512];

    sp_quality_add(&q, "norm", &s);
    sp_quality_text(&q, text, sizeof text);
    assert_string_equal(text, "0 of 1 figures did not get steady within 5 %");
    assert_int_equal(sp_quality_check(&q), 0);
}

/* The worst are named with what they may be off by, the worst first, and no more than there is room for. */
TEST(unsteady)
{
    static const double noise[] = {0.031, 0.05, 0.029, 0.06, 0.04, 0.001};
    static const char *const what[] = {"c", "b", "too little", "a", "bb", "steady"};
    struct sp_quality q = {0};
    char text[512];

    for (int i = 0; i < 6; i++) {
        struct sp_steady s = samples(12, noise[i]);

        sp_quality_add(&q, what[i], &s);
    }
    sp_quality_text(&q, text, sizeof text);
    if (strncmp(text, "5 of 6 figures did not get steady within 5 %: a by ", 51) ||
        !strstr(text, ", b by ") || strstr(text, ", bb by ") < strstr(text, ", b by ") ||
        !strstr(text, ", c by ") || strstr(text, "too little"))
        fail_msg("%s", text);
    assert_int_equal(sp_quality_check(&q), 0);
}

/* A device's figure of disturbed samples is refused, and so are figures between which others had the cores; a disk's is
 * only told. */
TEST(spoilt)
{
    struct sp_steady few = samples(SP_STEADY_LEAST - 1, 0), wide = samples(8, 5);
    bool quiet = sp_error_quiet(true);

    for (int i = 0; i < 4; i++) {
        const struct sp_steady *s = i % 2 ? &few : &wide;
        struct sp_quality q = {0};

        if (i < 2)
            sp_quality_add(&q, "norm", s);
        else
            sp_quality_add_shared(&q, "disk", s);
        assert_int_equal(q.unsteady, 1);
        assert_int_equal(sp_quality_check(&q), i == 1 ? -EBUSY : 0);
    }
    for (int percent = 0; percent <= 50; percent += 5) {
        struct sp_steady quiet_one = samples(10, 0.001), busy_one = quiet_one;
        struct sp_quality q = {0};

        quiet_one.took_s = busy_one.took_s = 2;
        busy_one.waited_s = 4 * 0.01 * percent;
        sp_quality_add(&q, "norm", &quiet_one);
        sp_quality_add(&q, "GELU", &busy_one);
        assert_int_equal(sp_quality_check(&q), percent > 10 ? -EBUSY : 0);
    }
    sp_error_quiet(quiet);
}

/* The named machines pass; a figure a thousand times too low or too high does not, whichever it is. */
TEST(rates)
{
    bool quiet = sp_error_quiet(true);
    struct sp_machine m;
    int refused = 0;

    for (int i = 0; sp_machine_name_at(i); i++) {
        assert_int_equal(sp_machine_load(sp_machine_name_at(i), &m), 0);
        if (sp_machine_is_cpu(&m))
            m.rates.threads = 8;
        assert_int_equal(sp_quality_check_rates(&m.rates), 0);
    }
    assert_int_equal(sp_machine_load("laptop", &m), 0);
    m.rates.threads = 8;
    for (int i = 0; i < 2 * (1 + SP_ELEMENTS * (1 + SP_ATTENTION_PASSES)); i++) {
        struct sp_rates r = m.rates;
        struct sp_curve *c = i / 2 == 0   ? &r.memory[SP_F32]
                             : i / 2 <= 2 ? &r.matmul[i / 2 - 1]
                                          : &r.attention[(i / 2 - 3) % 2][(i / 2 - 3) / 2];

        c->at[0].rate *= i % 2 ? 1e-5 : 1e6;
        assert_int_equal(sp_quality_check_rates(&r), -ERANGE);
        refused++;
    }
    m.rates.launch_s = 0.1;
    assert_int_equal(sp_quality_check_rates(&m.rates), -ERANGE);
    assert_int_equal(sp_machine_load("h100-ib", &m), 0);
    for (int i = 0; i < m.rates.attention[SP_BF16][0].n; i++)
        m.rates.attention[SP_BF16][0].at[i].rate /= 1e5;
    assert_int_equal(sp_quality_check_rates(&m.rates), -ERANGE);
    sp_error_quiet(quiet);
    print_message("%d curves with a point that no device has, each refused\n", refused);
}
