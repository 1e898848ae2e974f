/* The one place that chooses how attention computes its tiles. */
#include "kernels/cpu/attention/attention_path.h"
#include "sp_error.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The fastest first. */
static const struct sp_attention_path *const paths[] = {
    &sp_attention_amx,  &sp_attention_avx512bf16, &sp_attention_avx512,
    &sp_attention_avx2, &sp_attention_plain,
};

enum { N_PATHS = sizeof paths / sizeof paths[0] };

static const struct sp_attention_path *chosen[SP_ELEMENTS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

int sp_attention_choose(const char *name)
{
    int at = 0;

    while (name && at < N_PATHS && strcmp(paths[at]->name, name))
        at++;
    if (at == N_PATHS)
        return -ENOENT;
    if (name && !paths[at]->supported())
        return -ENOTSUP;
    for (int type = 0; type < SP_ELEMENTS; type++) {
        int i = at;

        while (!paths[i]->supported() || (type == SP_F32 && paths[i]->pair > 1))
            i++;
        chosen[type] = paths[i];
    }
    return 0;
}

static void choose_first(void)
{
    const char *name = getenv("SP_CPU_ATTENTION");
    int ret;

    if (chosen[SP_F32])
        return;
    ret = sp_attention_choose(name && *name ? name : NULL);
    if (ret) {
        sp_error(-ret, "kernels: SP_CPU_ATTENTION=%s: %s", name,
                 ret == -ENOENT ? "there is amx, avx512bf16, avx512, avx2 and plain"
                                : "this machine, or its kernel, does not give them");
        abort();
    }
}

const struct sp_attention_path *sp_attention_path(enum sp_dtype type)
{
    pthread_once(&once, choose_first);
    return chosen[type];
}
