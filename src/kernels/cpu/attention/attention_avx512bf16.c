/*
 * Tiles of bf16 with AVX512_BF16: a product takes two words' halves at once, twice the rate of f32.
 * Its sums are f32; like all of VDPBF16PS, denormal inputs count as 0.
 */
#include "kernels/cpu/attention/attention_path.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define SP_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")))
#include "kernels/cpu/attention/attention_v512bf16.h"

#define SP_PATH sp_attention_avx512bf16
#define SP_PATH_NAME "avx512bf16"
#include "kernels/cpu/attention/attention_simd.h"

static bool supported(void)
{
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}
#else
#include "kernels/cpu/attention/attention_absent.h"
SP_ATTENTION_ABSENT(sp_attention_avx512bf16, "avx512bf16", 2)
#endif
