/* Tensors for the tests of codelets: memory of the test behind a tensor of StarPU; small odd models. */
#ifndef SP_TESTS_TENSORS_H
#define SP_TESTS_TENSORS_H

#include "engine/support.h"
#include "memory.h"
#include "codelets/insert.h"
#include "codelets/task/window.h"
#include "sinks/starpu/sink.h"
#include <math.h>

struct tensor {
    size_t n;
    float *at;
    struct sp_tensor *handle;
};

static inline void unmake_tensor(void *handle)
{
    sp_tensor_unmake_at(handle);
}

/* The handle of memory that lasts as long; both go when the test ends. */
static inline struct sp_tensor *tensor_at(void *at, size_t n, size_t elem)
{
    struct sp_tensor *handle = sp_tensor_make_at(sp_starpu_sink(), at, n, elem, "test");

    test_at_end(unmake_tensor, handle);
    return handle;
}

static inline float *floats(size_t n)
{
    float *x = test_bytes(n * sizeof *x);

    for (size_t i = 0; i < n; i++)
        x[i] = NAN; /* what a task should have written, or must not read, shows */
    return x;
}

static inline struct tensor tensor(size_t n)
{
    struct tensor t = {.n = n, .at = floats(n)};

    t.handle = tensor_at(t.at, n, sizeof(float));
    return t;
}

/* Uniform in [-scale, scale), different for every seed and element. */
static inline void fill(float *x, size_t n, uint64_t seed, float scale)
{
    uint64_t state = seed * 0x632be59bd9b4e019u;

    for (size_t i = 0; i < n; i++)
        x[i] = scale * ((float)(draw(&state) >> 40) / 8388608.0f - 1.0f);
}

static inline struct tensor random_tensor(size_t n, uint64_t seed)
{
    struct tensor t = tensor(n);

    fill(t.at, n, seed, 1);
    return t;
}

static inline void assert_same_bits(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        if (isnan(a[i]) || isnan(b[i]))
            fail_msg("%s[%zu]: %g and %g", what, i, (double)a[i], (double)b[i]);
        if (memcmp(&a[i], &b[i], sizeof *a))
            fail_msg("%s[%zu] of %zu: the task has %.9g, the kernels %.9g", what, i, n,
                     (double)a[i], (double)b[i]);
    }
}

enum small { SMALL_GPT, SMALL_LLAMA, SMALL_QWEN, SMALL_MODELS };

/* GPT-2 style and Llama style, no two sizes alike; Llama with grouped queries, a*d != h. The third is
 * the second with all that relatives of Llama may have besides. */
static inline struct sp_model small_model(enum small which)
{
    if (which == SMALL_QWEN) {
        struct sp_model m = small_model(SMALL_LLAMA);

        snprintf(m.name, sizeof m.name, "small qwen");
        m.relative = SP_QWEN3;
        m.rope = (struct sp_rope){1e4f, SP_ROPE_LLAMA3, 4, 1, 4, 32};
        m.qkv_bias = m.out_bias = m.mlp_bias = m.qk_norm = true;
        return m;
    }
    if (which == SMALL_LLAMA)
        return (struct sp_model){.name = "small llama",
                                 .arch = SP_ARCH_LLAMA,
                                 .layers = 1,
                                 .hidden = 19,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = 6,
                                 .mlp = 23,
                                 .vocab = 37,
                                 .positions = 64,
                                 .norm_eps = 1e-5f,
                                 .rope.theta = 10000};
    return (struct sp_model){.name = "small gpt",
                             .arch = SP_ARCH_GPT2,
                             .layers = 1,
                             .hidden = 15,
                             .heads = 3,
                             .kv_heads = 3,
                             .head_dim = 5,
                             .mlp = 41,
                             .vocab = 31,
                             .positions = 13,
                             .tied = true,
                             .norm_eps = 1e-5f};
}

/* A context to worker 0 outside the ops. */
static unsigned context_order;
static struct sp_meter context_meter;
static struct sp_window *context_window;

static inline struct sp_task_context test_context(void)
{
    return (struct sp_task_context){.sink = sp_starpu_sink(),
                                    .worker = 0,
                                    .order = &context_order,
                                    .meter = &context_meter,
                                    .window = context_window,
                                    .op_index = -1,
                                    .pass = 'T'};
}

static inline int start_one_worker(void **state)
{
    (void)state;
    start_starpu(1, &sp_order_strict);
    context_window = sp_window_create(1);
    context_order = 0;
    return 0;
}

static inline int stop_one_worker(void **state)
{
    (void)state;
    sp_sink_release_scratch(sp_starpu_sink());
    starpu_shutdown();
    sp_window_destroy(context_window);
    return 0;
}

#endif
