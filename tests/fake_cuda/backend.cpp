/*
 * The CUDA kernels of a machine without a GPU: each queues the CPU's kernel of the same name on the
 * stream, as a host function, with copies of what it was told, and tells the fake runtime's checker what
 * it reads and writes. With that runtime the program's --device cuda runs anywhere: StarPU's CUDA driver,
 * memory nodes, transfers, streams and our graphs are the real ones.
 */
#include "fake_cudart.h"
#include "kernels/cuda/device/device.h"
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

namespace
{
using backend = const struct sp_backend;

struct access {
    const void *at;
    size_t bytes;
    bool write;
};

struct queued {
    const char *name;
    backend *cpu;
    std::vector<access> accesses;
    std::function<void(backend *)> work;
};

void CUDART_CB run(void *arg)
{
    queued *q = static_cast<queued *>(arg);

    if (sp_fake_kernel_name)
        sp_fake_kernel_name(q->name);
    for (const access &a : q->accesses)
        if (sp_fake_kernel_access && a.at && a.bytes)
            sp_fake_kernel_access(a.at, a.bytes, a.write);
    q->work(q->cpu);
    delete q;
}

void queue(backend *k, const char *name, std::vector<access> accesses,
           std::function<void(backend *)> work)
{
    sp_cuda_must(cudaLaunchHostFunc(k->cuda->stream, run,
                                    new queued{name, sp_cpu_backend(k->dtype), std::move(accesses),
                                               std::move(work)}),
                 name);
}

size_t area(int rows, int width)
{
    return static_cast<size_t>(rows) * static_cast<size_t>(width);
}

/* n elements of the backend's type, read or written; n f32. */
access elements(backend *k, const void *at, size_t n, bool write)
{
    return {at, sp_dtype_bytes(k->dtype) * n, write};
}

access floats(const void *at, size_t n, bool write)
{
    return {at, sizeof(float) * n, write};
}

#define R(at, n) elements(k, at, n, false)
#define W(at, n) elements(k, at, n, true)
#define RF(at, n) floats(at, n, false)
#define WF(at, n) floats(at, n, true)

#define QUEUE(name, arguments, ...)                                                                \
    queue(k, #name, {__VA_ARGS__}, [=](backend *cpu) { cpu->name arguments; })

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
    size_t queries() const
    {
        return area(at.batch * at.q_len, at.heads * at.head_dim);
    }
    size_t keys(int j) const
    {
        return area(at.batch * len[static_cast<size_t>(j)], 2 * at.kv_heads * at.head_dim);
    }
};

void fill(struct sp_backend *table)
{
    table->linear = [](backend *k, int T, int in, int out, const void *x, const void *w,
                       const void *bias, void *y, int ldy) {
        QUEUE(linear, (cpu, T, in, out, x, w, bias, y, ldy), R(x, area(T, in)), R(w, area(out, in)),
              R(bias, area(1, out)), W(y, area(T - 1, ldy) + area(1, out)));
    };
    table->linear_add = [](backend *k, int T, int in, int out, const void *x, const void *w,
                           const void *bias, const void *residual, void *y) {
        QUEUE(linear_add, (cpu, T, in, out, x, w, bias, residual, y), R(x, area(T, in)),
              R(w, area(out, in)), R(bias, area(1, out)), R(residual, area(T, out)),
              W(y, area(T, out)));
    };
    table->linear_act = [](backend *k, enum sp_activation act, int T, int in, int out,
                           const void *x, const void *w, const void *bias, void *u, void *g) {
        QUEUE(linear_act, (cpu, act, T, in, out, x, w, bias, u, g), R(x, area(T, in)),
              R(w, area(out, in)), R(bias, area(1, out)), W(u, area(T, out)), W(g, area(T, out)));
    };
    table->linear_dx = [](backend *k, int T, int in, int out, const void *dy, int lddy,
                          const void *w, void *dx, bool accumulate) {
        QUEUE(linear_dx, (cpu, T, in, out, dy, lddy, w, dx, accumulate),
              R(dy, area(T - 1, lddy) + area(1, out)), R(w, area(out, in)), W(dx, area(T, in)));
    };
    table->linear_dx_act = [](backend *k, enum sp_activation act, int T, int in, int out,
                              const void *dy, const void *w, const void *u, void *du) {
        QUEUE(linear_dx_act, (cpu, act, T, in, out, dy, w, u, du), R(dy, area(T, out)),
              R(w, area(out, in)), R(u, area(T, in)), W(du, area(T, in)));
    };
    table->linear_dw = [](backend *k, int T, int in, int out, const void *x, const void *dy,
                          int lddy, float *dw, float *dbias) {
        QUEUE(linear_dw, (cpu, T, in, out, x, dy, lddy, dw, dbias), R(x, area(T, in)),
              R(dy, area(T - 1, lddy) + area(1, out)), WF(dw, area(out, in)),
              WF(dbias, area(1, out)));
    };
    table->norm = [](backend *k, bool rms, int T, int h, float eps, const void *x, const void *gain,
                     const void *bias, void *y, float *stats) {
        QUEUE(norm, (cpu, rms, T, h, eps, x, gain, bias, y, stats), R(x, area(T, h)),
              R(gain, area(1, h)), R(bias, area(1, h)), W(y, area(T, h)), WF(stats, area(T, 2)));
    };
    table->norm_apply = [](backend *k, int T, int h, const void *x, const float *stats,
                           const void *gain, const void *bias, void *y) {
        QUEUE(norm_apply, (cpu, T, h, x, stats, gain, bias, y), R(x, area(T, h)),
              RF(stats, area(T, 2)), R(gain, area(1, h)), R(bias, area(1, h)), W(y, area(T, h)));
    };
    table->norm_bwd = [](backend *k, bool rms, int T, int h, const void *x, const float *stats,
                         const void *gain, const void *dy, const void *dres, void *dx, float *dgain,
                         float *dbias) {
        QUEUE(norm_bwd, (cpu, rms, T, h, x, stats, gain, dy, dres, dx, dgain, dbias),
              R(x, area(T, h)), RF(stats, area(T, 2)), R(gain, area(1, h)), R(dy, area(T, h)),
              R(dres, area(T, h)), W(dx, area(T, h)), WF(dgain, area(1, h)), WF(dbias, area(1, h)));
    };
    table->rope = [](backend *k, int batch, int len, int heads, int d, int ld, int pos0,
                     const struct sp_rope *like, bool inverse, void *x) {
        const struct sp_rope how = *like; /* the queue runs later */
        QUEUE(rope, (cpu, batch, len, heads, d, ld, pos0, &how, inverse, x),
              W(x, area(batch * len - 1, ld) + area(heads, d)));
    };
    table->attention = [](backend *k, const struct sp_attention *at, const void *q,
                          const void *const *kv, void *o, float *lse) {
        seen s(at);
        std::vector<const void *> keys(kv, kv + at->n_kv);
        std::vector<access> list{R(q, s.queries()), W(o, s.queries()),
                                 WF(lse, area(at->batch * at->heads, at->q_len))};

        for (int j = 0; j < at->n_kv; j++)
            list.push_back(R(kv[j], s.keys(j)));
        queue(k, "attention", list, [=](backend *cpu) mutable {
            cpu->attention(cpu, s.attention(), q, keys.data(), o, lse);
        });
    };
    table->attention_merge = [](backend *k, const struct sp_attention *at, const void *part,
                                const float *part_lse, float *o, float *lse) {
        seen s(at);
        size_t rows = area(at->batch * at->heads, at->q_len);
        std::vector<access> list{R(part, s.queries()), RF(part_lse, rows), WF(o, s.queries()),
                                 WF(lse, rows)};

        queue(k, "attention_merge", list, [=](backend *cpu) mutable {
            cpu->attention_merge(cpu, s.attention(), part, part_lse, o, lse);
        });
    };
    table->attention_bwd = [](backend *k, const struct sp_attention *at, const void *q,
                              const void *const *kv, const void *o, const float *lse,
                              const void *d_o, void *dq, void *const *dkv, bool first) {
        seen s(at);
        std::vector<const void *> keys(kv, kv + at->n_kv);
        std::vector<void *> gradients(dkv, dkv + at->n_kv);
        std::vector<access> list{R(q, s.queries()), R(o, s.queries()),
                                 RF(lse, area(at->batch * at->heads, at->q_len)),
                                 R(d_o, s.queries()), W(dq, s.queries())};

        for (int j = 0; j < at->n_kv; j++) {
            list.push_back(R(kv[j], s.keys(j)));
            list.push_back(W(dkv[j], s.keys(j)));
        }
        queue(k, "attention_bwd", list, [=](backend *cpu) mutable {
            cpu->attention_bwd(cpu, s.attention(), q, keys.data(), o, lse, d_o, dq,
                               gradients.data(), first);
        });
    };
    table->act = [](backend *k, enum sp_activation kind, size_t n, const void *u, void *y) {
        QUEUE(act, (cpu, kind, n, u, y), R(u, n), W(y, n));
    };
    table->gated = [](backend *k, enum sp_activation act, int T, int f, const void *u, void *y) {
        QUEUE(gated, (cpu, act, T, f, u, y), R(u, area(T, 2 * f)), W(y, area(T, f)));
    };
    table->gated_bwd = [](backend *k, enum sp_activation act, int T, int f, const void *u,
                          const void *dy, void *du) {
        QUEUE(gated_bwd, (cpu, act, T, f, u, dy, du), R(u, area(T, 2 * f)), R(dy, area(T, f)),
              W(du, area(T, 2 * f)));
    };
    /* Tables are read and written here and there: the first row stands for them. */
    table->embed = [](backend *k, int batch, int len, int h, int pos0, const int32_t *ids,
                      const void *table, const void *positions, void *x) {
        QUEUE(embed, (cpu, batch, len, h, pos0, ids, table, positions, x),
              access{ids, area(batch, len) * sizeof *ids, false}, R(table, area(1, h)),
              R(positions, area(1, h)), W(x, area(batch * len, h)));
    };
    table->embed_bwd = [](backend *k, int batch, int len, int h, int pos0, const int32_t *ids,
                          const void *dx, float *dtable, float *dpositions) {
        QUEUE(embed_bwd, (cpu, batch, len, h, pos0, ids, dx, dtable, dpositions),
              access{ids, area(batch, len) * sizeof *ids, false}, R(dx, area(batch * len, h)),
              WF(dtable, area(1, h)), WF(dpositions, area(1, h)));
    };
    table->cross_entropy = [](backend *k, int T, int h, int V, int rows, const void *x,
                              const void *w, const int32_t *targets, float scale, double *loss,
                              void *dx, float *dw, void *scratch) {
        QUEUE(cross_entropy, (cpu, T, h, V, rows, x, w, targets, scale, loss, dx, dw, scratch),
              R(x, area(T, h)), R(w, area(V, h)),
              access{targets, area(T, 1) * sizeof *targets, false},
              access{loss, sizeof *loss, true}, W(dx, area(T, h)), WF(dw, area(V, h)),
              W(scratch, area(rows, sp_logits_ld(V))));
    };
    table->logit_stats = [](backend *k, int T, int h, int V, int rows, const void *x, const void *w,
                            const int32_t *targets, float *stats, void *scratch) {
        QUEUE(logit_stats, (cpu, T, h, V, rows, x, w, targets, stats, scratch), R(x, area(T, h)),
              R(w, area(V, h)), access{targets, area(T, 1) * sizeof *targets, false},
              WF(stats, area(T, 2)), W(scratch, area(rows, sp_logits_ld(V))));
    };
    table->merge_logits = [](backend *k, int T, int n, const float *const *stats, float *lse,
                             double *loss) {
        std::vector<const float *> all(stats, stats + n);
        std::vector<access> list{WF(lse, area(T, 1)), access{loss, loss ? sizeof *loss : 0, true}};

        for (int i = 0; i < n; i++)
            list.push_back(RF(stats[i], area(T, 2)));
        queue(k, "merge_logits", list,
              [=](backend *cpu) { cpu->merge_logits(cpu, T, n, all.data(), lse, loss); });
    };
    table->merge_stats = [](backend *k, int T, int n, const float *const *stats, float *merged) {
        std::vector<const float *> all(stats, stats + n);
        std::vector<access> list{WF(merged, area(T, 2))};

        for (int i = 0; i < n; i++)
            list.push_back(RF(stats[i], area(T, 2)));
        queue(k, "merge_stats", list,
              [=](backend *cpu) { cpu->merge_stats(cpu, T, n, all.data(), merged); });
    };
    table->logits_bwd = [](backend *k, int T, int h, int V, int rows, const void *x, const void *w,
                           const int32_t *targets, const float *lse, float scale, bool kept,
                           void *dx, float *dw, void *scratch) {
        QUEUE(logits_bwd, (cpu, T, h, V, rows, x, w, targets, lse, scale, kept, dx, dw, scratch),
              R(x, area(T, h)), R(w, area(V, h)),
              access{targets, area(T, 1) * sizeof *targets, false}, RF(lse, area(T, 1)),
              W(dx, area(T, h)), WF(dw, area(V, h)), W(scratch, area(rows, sp_logits_ld(V))));
    };
    table->add_f32 = [](backend *k, size_t n, const float *x, float *y) {
        QUEUE(add_f32, (cpu, n, x, y), RF(x, n), WF(y, n));
    };
    table->add = [](backend *k, size_t n, const void *x, void *y) {
        QUEUE(add, (cpu, n, x, y), R(x, n), W(y, n));
    };
    table->add_parts = [](backend *k, size_t n, int parts, const void *const *x, void *y) {
        std::vector<const void *> all(x, x + parts);
        std::vector<access> list{W(y, n)};

        for (int i = 0; i < parts; i++)
            list.push_back(R(x[i], n));
        queue(k, "add_parts", list,
              [=](backend *cpu) { cpu->add_parts(cpu, n, parts, all.data(), y); });
    };
    table->add_at_random = [](backend *k, size_t n, uint32_t stream, const float *x, void *y) {
        QUEUE(add_at_random, (cpu, n, stream, x, y), RF(x, n), W(y, n));
    };
    table->add_to_f32 = [](backend *k, size_t n, const void *x, float *y) {
        QUEUE(add_to_f32, (cpu, n, x, y), R(x, n), WF(y, n));
    };
    table->sumsq = [](backend *k, size_t n, const float *g, double *sum) {
        QUEUE(sumsq, (cpu, n, g, sum), RF(g, n), access{sum, sizeof *sum, true});
    };
    table->adamw = [](backend *k, size_t n, const struct sp_adamw *hp, float *w, float *g, float *m,
                      float *v, void *w_low) {
        struct sp_adamw values = *hp;

        QUEUE(adamw, (cpu, n, &values, w, g, m, v, w_low), WF(w, n), WF(g, n), WF(m, n), WF(v, n),
              W(w_low, n));
    };
    table->round = [](backend *k, size_t n, const float *x, void *y) {
        QUEUE(round, (cpu, n, x, y), RF(x, n), W(y, n));
    };
    table->clear = [](backend *k, size_t bytes, void *y) {
        QUEUE(clear, (cpu, bytes, y), access{y, bytes, true});
    };
    table->copy = [](backend *k, size_t bytes, const void *x, void *y) {
        QUEUE(copy, (cpu, bytes, x, y), access{x, bytes, false}, access{y, bytes, true});
    };
    table->copy_rows = [](backend *k, size_t rows, size_t bytes, const void *x, size_t from,
                          void *y, size_t to) {
        QUEUE(copy_rows, (cpu, rows, bytes, x, from, y, to),
              access{x, (rows - 1) * from + bytes, false},
              access{y, (rows - 1) * to + bytes, true});
    };
    table->first_not_finite = [](backend *k, enum sp_dtype dtype, const void *x, size_t n) {
        backend *cpu = sp_cpu_backend(dtype);

        cudaStreamSynchronize(k->cuda->stream);
        return cpu->first_not_finite(cpu, dtype, x, n);
    };
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
        fill(k);
    }
    *cuda = c;
    return 0;
}

/* The CPU's kernels take nothing of a GPU; what is to be planned for them all the same. */
extern "C" int64_t sp_cuda_most_held(int device, enum sp_dtype dtype, int h,
                                     const struct sp_attention *at)
{
    const char *mib = getenv("SP_FAKE_KERNELS_MIB");

    (void)device, (void)dtype, (void)h, (void)at;
    return mib ? atoll(mib) << 20 : 0;
}

extern "C" const char *sp_cudnn_about(void)
{
    return "no (fake)";
}

/* Where a build has it: flash3.h. */
extern "C" const char *sp_flash3_about(void)
{
    return "no (fake)";
}

extern "C" void sp_cuda_destroy(struct sp_cuda *cuda)
{
    free(cuda);
}
