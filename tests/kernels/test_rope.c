/* Rotary positions: values, inverse, and rows that a slice starts in the middle. */
#include "reference.h"

static const struct sp_rope plain = {.theta = 1e4f};

/* An angle a position as transformers stretches it, by cases of the wavelength. */
static double stretched(const struct sp_rope *r, double angle)
{
    double wave = 2 * M_PI / angle, smooth;

    if (r->type == SP_ROPE_LINEAR)
        return angle / r->factor;
    if (r->type == SP_ROPE_DEFAULT || wave < (double)r->original / r->high)
        return angle;
    if (wave > (double)r->original / r->low)
        return angle / r->factor;
    smooth = (r->original / wave - r->low) / (r->high - r->low);
    return (1 - smooth) * angle / r->factor + smooth * angle;
}

static void reference(const struct sp_rotation *r, double *x)
{
    for (int b = 0; b < r->batch; b++)
        for (int t = 0; t < r->len; t++)
            for (int head = 0; head < r->heads; head++)
                for (int i = 0; i < r->d / 2; i++) {
                    double *x1 = x + (b * r->len + t) * r->ld + head * r->d + i,
                           *x2 = x1 + r->d / 2;
                    double angle = (r->pos0 + t) *
                                   stretched(r->rope, pow((double)r->rope->theta, -2.0 * i / r->d));
                    double a = *x1, c = *x2;

                    *x1 = a * cos(angle) - c * sin(angle);
                    *x2 = c * cos(angle) + a * sin(angle);
                }
}

static void shape(int batch, int len, int heads, int d, int pos0, const struct sp_rope *rope)
{
    const int ld = heads * d + 7;
    const struct sp_rotation how = {
        .batch = batch, .len = len, .heads = heads, .d = d, .ld = ld, .pos0 = pos0, .rope = rope};
    size_t n = (size_t)(batch * len) * (size_t)ld;
    float *x = new_random(n, 1), *was = new_copy(n, x);
    double *want = new_double(n, x), *back = new_double(n, x);

    reference(&how, want);
    sp_rope(&how, false, x);
    assert_close("rope", n, x, want, 3e-7);
    sp_rope(&how, true, x);
    assert_close("there and back", n, x, back, 3e-7);
    for (int r = 0; r < batch * len; r++)
        assert_same_bits(7, x + (size_t)r * (size_t)ld + heads * d,
                         was + (size_t)r * (size_t)ld + heads * d);
}

TEST(values)
{
    shape(1, 7, 3, 10, 0, &plain);
    shape(2, 5, 1, 2, 11, &plain);
    shape(3, 37, 6, 64, 5, &(struct sp_rope){.theta = 5e5f});
    shape(1, 9, 2, 128, 131000, &plain); /* angles of 1e5 radians */
}

/* Llama 3.1's own values; short ones with pairs below, between and above; bounds met exactly. */
TEST(scaled)
{
    static const struct sp_rope ropes[] = {
        {5e5f, SP_ROPE_LLAMA3, 8, 1, 4, 8192},
        {500, SP_ROPE_LLAMA3, 4, 1, 4, 64},
        {100, SP_ROPE_LLAMA3, 32, 2.5f, 3.75f, 31},
        {1e4f, SP_ROPE_LINEAR, 2.5f, 0, 0, 0},
    };

    for (size_t i = 0; i < sizeof ropes / sizeof *ropes; i++) {
        shape(2, 37, 3, 64, 5, &ropes[i]);
        shape(1, 9, 2, 128, 131000, &ropes[i]);
    }
}

/* Rotating a whole sequence is rotating its slices. */
static void slices(struct sp_rotation r, int slice)
{
    size_t width = (size_t)r.ld, n = (size_t)r.len * width;
    float *x = new_random(n, 1), *cut = new_copy(n, x);

    for (int inverse = 0; inverse < 2; inverse++) {
        sp_rope(&r, inverse, x);
        for (int t = 0; t < r.len; t += slice) {
            struct sp_rotation part = r;

            part.len = r.len - t < slice ? r.len - t : slice;
            part.pos0 += t;
            sp_rope(&part, inverse, cut + (size_t)t * width);
        }
        assert_same_bits(n, x, cut);
    }
}

/* And its rows in `n` turns. */
static void turns(struct sp_rotation r, int n)
{
    size_t width = (size_t)r.ld, all = (size_t)r.len * width;
    float *x = new_random(all, 1), *was = new_copy(all, x), *part = new_nan(all);

    sp_rope(&r, false, x);
    for (int k = 0; k < n; k++) {
        struct sp_rotation of = r;

        of.len = (r.len - k + n - 1) / n;
        of.pos0 += k;
        of.skip = n - 1;
        for (int t = 0; t < of.len; t++)
            memcpy(part + (size_t)t * width, was + (size_t)(k + t * n) * width,
                   width * sizeof *part);
        sp_rope(&of, false, part);
        for (int t = 0; t < of.len; t++)
            assert_same_bits(width, part + (size_t)t * width, x + (size_t)(k + t * n) * width);
    }
}

TEST(slices)
{
    static const int head_sizes[] = {2, 6, 24, 64, 130};

    slices((struct sp_rotation){1, 23, 2, 6, 12, 0, &plain, 0}, 9);
    turns((struct sp_rotation){1, 23, 2, 6, 12, 0, &plain, 0}, 3);
    for (int i = 0; i < 5; i++) {
        int d = head_sizes[i];

        slices((struct sp_rotation){1, 71, 3, d, 3 * d + 1, 1000, &plain, 0}, 13);
        turns((struct sp_rotation){1, 71, 3, d, 3 * d + 1, 1000, &plain, 0}, 33);
    }
}
