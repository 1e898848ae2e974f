#include "gemm_host.h"

/* ---- the kernels around products, on the host ---- */

double kernel_us[OTHERS];
int gelus, sums, biases, codes, numbers;

float value_of(enum sp_dtype t, const void *x, size_t i)
{
    return t == SP_BF16 ? sp_bf16_value(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

void set_value(enum sp_dtype t, void *x, size_t i, float value)
{
    if (t == SP_BF16)
        ((uint16_t *)x)[i] = sp_bf16(value);
    else
        ((float *)x)[i] = value;
}

static void host_act(const struct sp_backend *k, enum sp_activation act, size_t n, const void *u,
                     void *y)
{
    for (size_t i = 0; i < n; i++) {
        float a = value_of(k->dtype, u, i), b;

        sp_activation(act, 1, &a, &b);
        set_value(k->dtype, y, i, b);
    }
    sp_fake_cudart.us += kernel_us[GELU_US];
    gelus++;
}

void sp_cuda_activation_bwd(const struct sp_backend *k, enum sp_activation act, size_t n,
                            const void *u, const void *dy, void *du)
{
    for (size_t i = 0; i < n; i++) {
        float a = value_of(k->dtype, u, i), b = value_of(k->dtype, dy, i);

        sp_activation_bwd(act, 1, &a, &b, &b);
        set_value(k->dtype, du, i, b);
    }
    sp_fake_cudart.us += kernel_us[GELU_US];
    gelus++;
}

void sp_cuda_column_sums(const struct sp_backend *k, int T, int n, const void *x, int ldx,
                         float *sum)
{
    for (int j = 0; j < n; j++) {
        double total = 0;

        for (int t = 0; t < T; t++)
            total += (double)value_of(k->dtype, x, (size_t)t * (size_t)ldx + (size_t)j);
        sum[j] += (float)total;
    }
    sp_fake_cudart.us += kernel_us[SUMS_US];
    sums++;
}

void sp_cuda_add_bias(const struct sp_backend *k, int T, int n, const void *bias, void *y, int ldy)
{
    for (int t = 0; t < T; t++)
        for (int j = 0; j < n; j++) {
            size_t at = (size_t)t * (size_t)ldy + (size_t)j;

            set_value(k->dtype, y, at,
                      value_of(k->dtype, y, at) + value_of(k->dtype, bias, (size_t)j));
        }
    biases++;
}

/* ---- operands in fp8: one part, with the largest ---- */

void sp_cuda_fp8_amax(const struct sp_backend *k, struct sp_fp8_operand *o)
{
    uint32_t most = 0;

    (void)k;
    for (int r = 0; r < o->rows; r++)
        for (int c = 0; c < o->width; c++) {
            uint32_t x = ((const uint16_t *)o->x)[(size_t)r * (size_t)o->ld + (size_t)c] & 0x7fffu;

            most = x > most ? x : most;
        }
    o->part[0] = most;
    o->parts = 1;
}

static float scaled(const struct sp_fp8_operand *o, int r, int c)
{
    float x = value_of(SP_BF16, o->x, (size_t)r * (size_t)o->ld + (size_t)c);

    return x * sp_power_of_two(sp_fp8_exponent(o->format, o->part[0]));
}

void sp_cuda_fp8_codes(const struct sp_backend *k, const struct sp_fp8_operand *o)
{
    int rows = o->transposed ? o->width : o->rows, width = o->transposed ? o->rows : o->width;
    uint8_t *to = o->to;

    (void)k;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < o->ld_to; c++)
            to[(size_t)r * (size_t)o->ld_to + (size_t)c] =
                c < width
                    ? sp_fp8_code(o->format, o->transposed ? scaled(o, c, r) : scaled(o, r, c))
                    : 0;
    *o->reciprocal = sp_power_of_two(-sp_fp8_exponent(o->format, o->part[0]));
    codes++;
}

void sp_cuda_fp8_numbers(const struct sp_backend *k, const struct sp_fp8_operand *o)
{
    float down = sp_power_of_two(-sp_fp8_exponent(o->format, o->part[0]));

    (void)k;
    for (int r = 0; r < o->rows; r++)
        for (int c = 0; c < o->width; c++)
            set_value(SP_BF16, o->to, (size_t)r * (size_t)o->width + (size_t)c,
                      sp_fp8_nearest(o->format, scaled(o, r, c)) * down);
    numbers++;
}

static void host_add_f32(const struct sp_backend *k, size_t n, const float *x, float *y)
{
    (void)k;
    sp_add(n, x, y);
}

static void host_copy(const struct sp_backend *k, size_t bytes, const void *x, void *y)
{
    (void)k;
    memcpy(y, x, bytes);
}

/* ---- a worker ---- */

struct sp_cuda cuda;

void start(bool tune)
{
    setenv("SP_CUDA_TUNE", tune ? "1" : "0", 1);
    cuda.gemm = sp_cuda_gemm_create(&cuda);
    assert_non_null(cuda.gemm);
    for (int t = 0; t < SP_DTYPES; t++) {
        cuda.backends[t] = (struct sp_backend){.dtype = sp_dtype_elements((enum sp_dtype)t),
                                               .products = (enum sp_dtype)t,
                                               .cuda = &cuda,
                                               .act = host_act,
                                               .add_f32 = host_add_f32,
                                               .copy = host_copy};
        sp_cuda_gemm_fill(&cuda.backends[t]);
    }
    gelus = sums = biases = codes = numbers = 0;
}

void stop(void)
{
    sp_cuda_gemm_free(cuda.gemm);
    sp_cuda_release(&cuda);
    assert_string_equal(sp_fake_lt.breach, "");
    assert_int_equal(sp_fake_lt.live, 0);
    assert_int_equal(sp_fake_cudart.live, 0);
    assert_int_equal(sp_fake_cudart.events, 0);
    assert_int_equal(sp_cuda_held_bytes(), 0);
}

int before(void **state)
{
    (void)state;
    sp_fake_cudart_reset();
    sp_fake_lt_reset();
    memset(kernel_us, 0, sizeof kernel_us);
    setenv("SP_CUDA_CACHE", "0", 1);
    return 0;
}

/* ---- arrays ---- */

struct array array(enum sp_dtype type, size_t n, float *v, int shift)
{
    size_t elem = sp_dtype_bytes(type);
    unsigned char *memory = test_aligned(256, (n + (size_t)shift) * elem);
    struct array a = {type, n, memory + (size_t)shift * elem};

    for (size_t i = 0; i < n; i++) {
        set_value(type, a.x, i, v ? v[i] : NAN);
        if (v)
            v[i] = value_of(type, a.x, i);
    }
    return a;
}
