/* Tiles of attention with AVX-512: 24 accumulators of 16 lanes. */
#include "kernels/cpu/attention/attention_path.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define SP_TARGET __attribute__((target("avx512f,avx2,fma")))
#include "kernels/cpu/attention/attention_v512.h"

#define SP_PAIR 1
#define SP_PATH sp_attention_avx512
#define SP_PATH_NAME "avx512"
#include "kernels/cpu/attention/attention_simd.h"

static bool supported(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma");
}
#else
#include "kernels/cpu/attention/attention_absent.h"
SP_ATTENTION_ABSENT(sp_attention_avx512, "avx512", 1)
#endif
