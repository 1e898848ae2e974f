/*
 * Tiles of bf16 on tiles of AMX: products at eight times the rate of AVX512_BF16 and more; all else as
 * there. Sums are f32; denormal inputs count as 0.
 */
#include "config.h"
#include "kernels/cpu/attention/attention_path.h"

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__) && (HAVE_AMX || SP_AMX_EMULATED)
#define SP_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")))
#include "kernels/cpu/attention/attention_v512bf16.h"

#include "kernels/cpu/attention/attention_amx_product.h"

#define SP_PATH sp_attention_amx
#define SP_PATH_NAME "amx"
#define SP_PRODUCT product_amx
#define SP_ROWS SP_AMX_ROWS
#include "kernels/cpu/attention/attention_simd.h"

static bool supported(void)
{
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && sp_amx_supported();
}
#else
#include "kernels/cpu/attention/attention_absent.h"
SP_ATTENTION_ABSENT(sp_attention_amx, "amx", 2)
#endif
