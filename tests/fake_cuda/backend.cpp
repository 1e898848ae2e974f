/*
 * The CUDA kernels of a machine without a GPU: each queues the CPU's kernel of the same name on the
 * stream, as a host function, with copies of what it was told. With the fake CUDA runtime beside it,
 * the program's --device cuda runs anywhere: StarPU's CUDA driver, memory nodes, transfers, streams and
 * our graphs are the real ones.
 */
#include "kernels/cuda/device.h"
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

namespace
{
using backend = const struct sp_backend;
using call = std::function<void(backend *)>;

struct queued {
    backend *cpu;
    call work;
};

void CUDART_CB run(void *arg)
{
    queued *q = static_cast<queued *>(arg);

    q->work(q->cpu);
    delete q;
}

void queue(backend *k, call work)
{
    sp_cuda_must(cudaLaunchHostFunc(k->cuda->stream, run,
                                    new queued{sp_cpu_backend(k->dtype), std::move(work)}),
                 "a queued kernel");
}

/* A kernel whose arguments are numbers and device pointers. */
template <auto member, typename... A> void forward(backend *k, A... a)
{
    queue(k, [=](backend *cpu) { (cpu->*member)(cpu, a...); });
}

template <auto member, typename... A>
void fill(struct sp_backend *k, void (*sp_backend::*)(backend *, A...))
{
    k->*member = forward<member, A...>;
}

/* What the caller's memory holds is copied: it is gone when the kernel runs. */
struct seen {
    struct sp_attention at;
    std::vector<int> len;

    explicit seen(const struct sp_attention *from)
        : at(*from), len(from->kv_len, from->kv_len + from->n_kv)
    {
    }
    const struct sp_attention *attention()
    {
        at.kv_len = len.data();
        return &at;
    }
};

void attention(backend *k, const struct sp_attention *at, const void *q, const void *const *kv,
               void *o, float *lse)
{
    seen s(at);
    std::vector<const void *> keys(kv, kv + at->n_kv);

    queue(k, [=](backend *cpu) mutable {
        cpu->attention(cpu, s.attention(), q, keys.data(), o, lse);
    });
}

void attention_bwd(backend *k, const struct sp_attention *at, const void *q,
                   const void *const *kv, const void *o, const float *lse, const void *d_o,
                   void *dq, void *const *dkv, bool first)
{
    seen s(at);
    std::vector<const void *> keys(kv, kv + at->n_kv);
    std::vector<void *> gradients(dkv, dkv + at->n_kv);

    queue(k, [=](backend *cpu) mutable {
        cpu->attention_bwd(cpu, s.attention(), q, keys.data(), o, lse, d_o, dq, gradients.data(),
                           first);
    });
}

void adamw(backend *k, size_t n, const struct sp_adamw *hp, float *w, float *g, float *m, float *v,
           void *w_low)
{
    struct sp_adamw values = *hp;

    queue(k, [=](backend *cpu) { cpu->adamw(cpu, n, &values, w, g, m, v, w_low); });
}

size_t first_not_finite(backend *k, enum sp_dtype dtype, const void *x, size_t n)
{
    backend *cpu = sp_cpu_backend(dtype);

    cudaStreamSynchronize(k->cuda->stream);
    return cpu->first_not_finite(cpu, dtype, x, n);
}

#define FILL(name) fill<&sp_backend::name>(k, &sp_backend::name)

void fill_all(struct sp_backend *k)
{
    FILL(linear);
    FILL(linear_add);
    FILL(linear_gelu);
    FILL(linear_dx);
    FILL(linear_dx_gelu);
    FILL(linear_dw);
    FILL(norm);
    FILL(norm_apply);
    FILL(norm_bwd);
    FILL(rope);
    FILL(gelu);
    FILL(swiglu);
    FILL(swiglu_bwd);
    FILL(embed);
    FILL(embed_bwd);
    FILL(cross_entropy);
    FILL(add_f32);
    FILL(add);
    FILL(sumsq);
    FILL(round);
    FILL(clear);
    FILL(copy);
    FILL(copy_rows);
    k->attention = attention;
    k->attention_bwd = attention_bwd;
    k->adamw = adamw;
    k->first_not_finite = first_not_finite;
}
} // namespace

extern "C" int sp_cuda_create(int device, cudaStream_t stream, struct sp_cuda **cuda)
{
    struct sp_cuda *c = static_cast<struct sp_cuda *>(calloc(1, sizeof *c));

    if (!c)
        abort();
    c->device = device;
    c->stream = stream;
    for (int t = 0; t < SP_DTYPES; t++) {
        struct sp_backend *k = &c->backends[t];

        k->name = "cuda";
        k->dtype = static_cast<enum sp_dtype>(t);
        k->cuda = c;
        fill_all(k);
    }
    *cuda = c;
    return 0;
}

extern "C" void sp_cuda_destroy(struct sp_cuda *cuda)
{
    free(cuda);
}
