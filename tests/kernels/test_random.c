/* Normal values: the bits of the definition, computed with the C library one by one. */
#include "reference.h"
#include "kernels/random.h"

static void philox(uint64_t key, uint64_t lo, uint64_t hi, uint32_t out[4])
{
    uint32_t c[4] = {(uint32_t)lo, (uint32_t)(lo >> 32), (uint32_t)hi, (uint32_t)(hi >> 32)};
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c[0], p1 = UINT64_C(0xCD9E8D57) * c[2];
        uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ k0, (uint32_t)p1,
                            (uint32_t)(p0 >> 32) ^ c[3] ^ k1, (uint32_t)p0};

        memcpy(c, next, sizeof c);
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    memcpy(out, c, sizeof c);
}

static float definition(uint64_t seed, uint64_t stream, float std, size_t i)
{
    uint32_t r[4], *pair;
    double radius, angle;

    philox(seed, i / 4, stream, r);
    pair = &r[i % 4 / 2 * 2];
    radius = sqrt(-2.0 * log((pair[0] + 0.5) * 0x1p-32));
    angle = 2.0 * 3.14159265358979323846 * ((pair[1] + 0.5) * 0x1p-32);
    return (float)((double)std * (radius * (i % 2 ? sin(angle) : cos(angle))));
}

static void check_stream(uint64_t seed, uint64_t stream, float std, size_t first, size_t n)
{
    float *w = new_nan(n + 1);

    sp_normal(seed, stream, std, first, n, w);
    for (size_t i = 0; i < n; i++) {
        float want = definition(seed, stream, std, first + i);

        if (memcmp(&w[i], &want, sizeof want) != 0)
            fail_msg("element %zu of seed %llu: %.9g, not %.9g", first + i,
                     (unsigned long long)seed, (double)w[i], (double)want);
    }
    assert_true(isnan(w[n]));
}

/* Random123's vectors: all bits 0, all bits 1, digits of pi. */
TEST(philox)
{
    uint32_t r[4];

    philox(0, 0, 0, r);
    assert_true(r[0] == 0x6627e8d5 && r[1] == 0xe169c58d && r[2] == 0xbc57ac4c &&
                r[3] == 0x9b00dbd8);
    philox(~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0), r);
    assert_true(r[0] == 0x408f276d && r[1] == 0x41c83b0e && r[2] == 0xa20bc7c6 &&
                r[3] == 0x6d5451fd);
}

/* Two million values in all. */
TEST(same_bits)
{
    const size_t sizes[] = {0, 1, 3, 4, 5, 511, 512, 513, 1023, 20011};

    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        check_stream(42 + s, 0xcbf29ce484222325u * (s + 1), 0.02f, 0, sizes[s]);
    check_stream(7, 0x100000001b3u, 1, 0, 1000000);
    check_stream(~UINT64_C(0), 1, 0.02f / sqrtf(24), 4 * ((UINT64_C(1) << 32) - 1000), 1000000);
}

/* The only two of the first 4e9 values of this stream that the fast functions alone would round the
 * other way. */
TEST(doubtful)
{
    check_stream(43, 7, 1, 1756696315 / 512 * 512, 512);
    check_stream(43, 7, 1, 2068118102 / 512 * 512, 512);
}

/* A part is the part of the whole, and the team does not matter. */
TEST(parts)
{
    enum { N_ALL = 50000 };
    float *all = new_nan(N_ALL), *part = new_nan(N_ALL);

    omp_set_num_threads(1);
    sp_normal(5, 6, 0.1f, 0, N_ALL, all);
    for (int threads = 1; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        for (size_t first = 0; first < N_ALL; first += 12344)
            sp_normal(5, 6, 0.1f, first, N_ALL - first < 12344 ? N_ALL - first : 12344,
                      part + first);
        assert_same_bits(N_ALL, part, all);
    }
    omp_set_num_threads(2);
}

/* Widths at which floats are subnormal, zero, or larger than most. */
TEST(widths)
{
    const float widths[] = {0, 1e-45f, 1e-38f, 1e-30f, 1e10f, 1e37f, -0.5f};

    for (size_t k = 0; k < sizeof widths / sizeof widths[0]; k++)
        check_stream(k, k, widths[k], 0, 5000);
}
