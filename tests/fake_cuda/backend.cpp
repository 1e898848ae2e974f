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
                                    new queued{name, sp_cpu_backend(k->products),
                                               std::move(accesses), std::move(work)}),
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

/* Structures of the caller are copied: the queue runs later. */
void fill(struct sp_backend *table)
{
    table->linear = [](backend *k, const struct sp_linear *layer, const void *x, void *y) {
        const struct sp_linear l = *layer;

        QUEUE(linear, (cpu, &l, x, y), R(x, area(l.T, l.in)), R(l.w, area(l.out, l.in)),
              R(l.bias, area(1, l.out)), W(y, area(l.T - 1, sp_linear_ld(&l)) + area(1, l.out)));
    };
    table->linear_add = [](backend *k, const struct sp_linear *layer, const void *x,
                           const void *residual, void *y) {
        const struct sp_linear l = *layer;

        QUEUE(linear_add, (cpu, &l, x, residual, y), R(x, area(l.T, l.in)),
              R(l.w, area(l.out, l.in)), R(l.bias, area(1, l.out)), R(residual, area(l.T, l.out)),
              W(y, area(l.T, l.out)));
    };
    table->linear_act = [](backend *k, const struct sp_linear *layer, enum sp_activation act,
                           const void *x, void *u, void *g) {
        const struct sp_linear l = *layer;

        QUEUE(linear_act, (cpu, &l, act, x, u, g), R(x, area(l.T, l.in)), R(l.w, area(l.out, l.in)),
              R(l.bias, area(1, l.out)), W(u, area(l.T, l.out)), W(g, area(l.T, l.out)));
    };
    table->linear_dx = [](backend *k, const struct sp_linear *layer, const void *dy, void *dx,
                          bool accumulate) {
        const struct sp_linear l = *layer;

        QUEUE(linear_dx, (cpu, &l, dy, dx, accumulate),
              R(dy, area(l.T - 1, sp_linear_ld(&l)) + area(1, l.out)), R(l.w, area(l.out, l.in)),
              W(dx, area(l.T, l.in)));
    };
    table->linear_dx_act = [](backend *k, const struct sp_linear *layer, enum sp_activation act,
                              const void *dy, const void *u, void *du) {
        const struct sp_linear l = *layer;

        QUEUE(linear_dx_act, (cpu, &l, act, dy, u, du), R(dy, area(l.T, l.out)),
              R(l.w, area(l.out, l.in)), R(u, area(l.T, l.in)), W(du, area(l.T, l.in)));
    };
    table->linear_dw = [](backend *k, const struct sp_linear *layer, const void *x, const void *dy,
                          float *dw, float *dbias) {
        const struct sp_linear l = *layer;

        QUEUE(linear_dw, (cpu, &l, x, dy, dw, dbias), R(x, area(l.T, l.in)),
              R(dy, area(l.T - 1, sp_linear_ld(&l)) + area(1, l.out)), WF(dw, area(l.out, l.in)),
              WF(dbias, area(1, l.out)));
    };
    table->norm = [](backend *k, const struct sp_norm *layer, const void *x, void *y,
                     float *stats) {
        const struct sp_norm n = *layer;

        QUEUE(norm, (cpu, &n, x, y, stats), R(x, area(n.T, n.h)), R(n.gain, area(1, n.h)),
              R(n.bias, area(1, n.h)), W(y, area(n.T, n.h)), WF(stats, area(n.T, 2)));
    };
    table->norm_apply = [](backend *k, const struct sp_norm *layer, const void *x,
                           const float *stats, void *y) {
        const struct sp_norm n = *layer;

        QUEUE(norm_apply, (cpu, &n, x, stats, y), R(x, area(n.T, n.h)), RF(stats, area(n.T, 2)),
              R(n.gain, area(1, n.h)), R(n.bias, area(1, n.h)), W(y, area(n.T, n.h)));
    };
    table->norm_bwd = [](backend *k, const struct sp_norm *layer, const void *x, const float *stats,
                         const struct sp_norm_bwd *gradients) {
        const struct sp_norm n = *layer;
        const struct sp_norm_bwd g = *gradients;

        QUEUE(norm_bwd, (cpu, &n, x, stats, &g), R(x, area(n.T, n.h)), RF(stats, area(n.T, 2)),
              R(n.gain, area(1, n.h)), R(g.dy, area(n.T, n.h)), R(g.dres, area(n.T, n.h)),
              W(g.dx, area(n.T, n.h)), WF(g.dgain, area(1, n.h)), WF(g.dbias, area(1, n.h)));
    };
    table->rope = [](backend *k, const struct sp_rotation *rotation, bool inverse, void *x) {
        const struct sp_rope how = *rotation->rope;
        struct sp_rotation r = *rotation;
        std::vector<access> list{
            W(x, area(r.batch * r.len - 1, r.ld) + area(r.heads, r.d)),
        };

        queue(k, "rope", list, [=](backend *cpu) mutable {
            r.rope = &how;
            cpu->rope(cpu, &r, inverse, x);
        });
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
    table->attention_bwd = [](backend *k, const struct sp_attention *at,
                              const struct sp_attention_bwd *arrays) {
        seen s(at);
        struct sp_attention_bwd b = *arrays;
        std::vector<const void *> keys(b.kv, b.kv + at->n_kv);
        std::vector<void *> gradients(b.dkv, b.dkv + at->n_kv);
        std::vector<access> list{R(b.q, s.queries()), R(b.o, s.queries()),
                                 RF(b.lse, area(at->batch * at->heads, at->q_len)),
                                 R(b.d_o, s.queries()), W(b.dq, s.queries())};

        for (int j = 0; j < at->n_kv; j++) {
            list.push_back(R(b.kv[j], s.keys(j)));
            list.push_back(W(b.dkv[j], s.keys(j)));
        }
        queue(k, "attention_bwd", list, [=](backend *cpu) mutable {
            b.kv = keys.data();
            b.dkv = gradients.data();
            cpu->attention_bwd(cpu, s.attention(), &b);
        });
    };
    table->act = [](backend *k, enum sp_activation kind, size_t n, const void *u, void *y) {
        QUEUE(act, (cpu, kind, n, u, y), R(u, n), W(y, n));
    };
    table->gated = [](backend *k, const struct sp_gated *gate, const void *u, void *y) {
        const struct sp_gated g = *gate;

        QUEUE(gated, (cpu, &g, u, y), R(u, area(g.T, 2 * g.f)), W(y, area(g.T, g.f)));
    };
    table->gated_bwd = [](backend *k, const struct sp_gated *gate, const void *u, const void *dy,
                          void *du) {
        const struct sp_gated g = *gate;

        QUEUE(gated_bwd, (cpu, &g, u, dy, du), R(u, area(g.T, 2 * g.f)), R(dy, area(g.T, g.f)),
              W(du, area(g.T, 2 * g.f)));
    };
    /* Tables are read and written here and there: the first row stands for them. */
    table->embed = [](backend *k, const struct sp_embed *tokens, const void *table,
                      const void *positions, void *x) {
        const struct sp_embed e = *tokens;

        QUEUE(embed, (cpu, &e, table, positions, x),
              access{e.ids, area(e.batch, e.len) * sizeof *e.ids, false}, R(table, area(1, e.h)),
              R(positions, area(1, e.h)), W(x, area(e.batch * e.len, e.h)));
    };
    table->embed_bwd = [](backend *k, const struct sp_embed *tokens, const void *dx, float *dtable,
                          float *dpositions) {
        const struct sp_embed e = *tokens;

        QUEUE(embed_bwd, (cpu, &e, dx, dtable, dpositions),
              access{e.ids, area(e.batch, e.len) * sizeof *e.ids, false},
              R(dx, area(e.batch * e.len, e.h)), WF(dtable, area(1, e.h)),
              WF(dpositions, area(1, e.h)));
    };
    table->cross_entropy = [](backend *k, const struct sp_logits *logits, double *loss, void *dx,
                              float *dw) {
        const struct sp_logits l = *logits;

        QUEUE(cross_entropy, (cpu, &l, loss, dx, dw), R(l.x, area(l.T, l.h)),
              R(l.w, area(l.V, l.h)), access{l.targets, area(l.T, 1) * sizeof *l.targets, false},
              access{loss, sizeof *loss, true}, W(dx, area(l.T, l.h)), WF(dw, area(l.V, l.h)),
              W(l.scratch, area(l.rows, sp_logits_ld(l.V))));
    };
    table->logit_stats = [](backend *k, const struct sp_logits *logits, float *stats) {
        const struct sp_logits l = *logits;

        QUEUE(logit_stats, (cpu, &l, stats), R(l.x, area(l.T, l.h)), R(l.w, area(l.V, l.h)),
              access{l.targets, area(l.T, 1) * sizeof *l.targets, false}, WF(stats, area(l.T, 2)),
              W(l.scratch, area(l.rows, sp_logits_ld(l.V))));
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
    table->logits_bwd = [](backend *k, const struct sp_logits *logits, const float *lse, bool kept,
                           void *dx, float *dw) {
        const struct sp_logits l = *logits;

        QUEUE(logits_bwd, (cpu, &l, lse, kept, dx, dw), R(l.x, area(l.T, l.h)),
              R(l.w, area(l.V, l.h)), access{l.targets, area(l.T, 1) * sizeof *l.targets, false},
              RF(lse, area(l.T, 1)), W(dx, area(l.T, l.h)), WF(dw, area(l.V, l.h)),
              W(l.scratch, area(l.rows, sp_logits_ld(l.V))));
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
    table->adamw = [](backend *k, const struct sp_adamw *hp, const struct sp_adamw_arrays *arrays) {
        const struct sp_adamw values = *hp;
        const struct sp_adamw_arrays a = *arrays;

        QUEUE(adamw, (cpu, &values, &a), WF(a.w, a.n), WF(a.g, a.n), WF(a.m, a.n), WF(a.v, a.n),
              W(a.low, a.n));
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
    table->copy_rows = [](backend *k, const struct sp_row_copy *rows, const void *x, void *y) {
        const struct sp_row_copy c = *rows;

        QUEUE(copy_rows, (cpu, &c, x, y), access{x, (c.n - 1) * c.from + c.bytes, false},
              access{y, (c.n - 1) * c.to + c.bytes, true});
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
        k->dtype = sp_dtype_elements(static_cast<enum sp_dtype>(t));
        k->products = static_cast<enum sp_dtype>(t);
        k->cuda = c;
        fill(k);
    }
    *cuda = c;
    return 0;
}

/* The CPU's kernels take nothing of a GPU; what is to be planned for them all the same. */
extern "C" int64_t sp_cuda_most_held(int device, enum sp_dtype dtype,
                                     const struct sp_linear *widest, const struct sp_attention *at)
{
    const char *mib = getenv("SP_FAKE_KERNELS_MIB");

    (void)device, (void)dtype, (void)widest, (void)at;
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
