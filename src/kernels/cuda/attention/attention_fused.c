/*
 * Attention in one kernel on slices of keys and values. FlashAttention-3 computes a shape if it was
 * built in and can, else cuDNN does:
 *
 *   one slice:  K and V are strided views of kv[0]; dK and dV of dkv[0], if that is to be written
 *   several:    the visible rows are gathered in the workspace; dK and dV are copied from there
 *
 * Other shapes go to the tiled kernels that the table had before.
 *
 * The backward is deterministic. FlashAttention-3 adds to dQ in turns. cuDNN's dQ is a product with
 * the gradient of the scores, which on Hopper and before costs the memory for it and a pass over
 * it. SP_CUDA_FAST=1 allows sums in the order of arrival.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifdef HAVE_CUDNN_FRONTEND
#include "kernels/cuda/attention/cudnn_plans.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/flash3/flash3.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

struct sp_cuda_attention {
    struct sp_cudnn_plans plans;
    struct sp_backend tiled; /* the table as it was before */
    bool flash3, deterministic;
};

/* The library that computes a shape. */
struct engine {
    const struct sp_cudnn_known *cudnn; /* NULL: FlashAttention-3 */
    size_t workspace_bytes;
};

/* False: neither library computes the shape. */
static bool find_engine(struct sp_cuda_attention *a, const struct sp_fused_shape *shape,
                        struct engine *engine)
{
    *engine = (struct engine){.workspace_bytes = a->flash3 ? sp_flash3_bytes(shape) : 0};
    if (engine->workspace_bytes)
        return true;
    engine->cudnn = a->plans.cudnn ? sp_cudnn_find(&a->plans, shape) : NULL;
    if (engine->cudnn)
        engine->workspace_bytes = engine->cudnn->workspace_bytes;
    return engine->cudnn;
}

static void run_engine(const struct sp_backend *k, const struct engine *engine,
                       const struct sp_fused_shape *shape, const struct sp_fused_tensors *tensors,
                       void *workspace)
{
    const char *why = "";

    if (engine->cudnn)
        sp_cudnn_run(k, &k->cuda->attention->plans, engine->cudnn, tensors, workspace);
    else if (!sp_flash3_run(k->cuda, shape, tensors, workspace, &why))
        sp_cuda_fatal("cuda: FlashAttention-3 refuses an attention of %d heads of %d, %d queries "
                      "on %d keys: %s; SP_CUDA_FLASH3=0 does without it",
                      shape->heads, shape->head_dim, shape->q_len, shape->kv_len, why);
}

/* ---- slices ---- */

static int keys_of(const struct sp_attention *at)
{
    int n = 0;

    for (int j = 0; j < at->n_kv; j++)
        n += at->kv_len[j];
    return n;
}

/* True if the queries come after all of these keys: keys of evicted slices that are streamed
 * through, or of other members of a ring. Their results are merged with those of the other keys. */
static bool is_full(const struct sp_attention *at)
{
    return keys_of(at) <= at->q_pos;
}

/* The number of positions that some query sees. */
static int visible(const struct sp_attention *at)
{
    return is_full(at) ? keys_of(at) : at->q_pos + at->q_len;
}

/* False if some queries see no more keys than there are, and others would see more: no plan is made
 * for that. */
static bool all_there(const struct sp_attention *at)
{
    return keys_of(at) >= visible(at);
}

/* The visible positions of slice j, which begins at `start`. */
static int visible_in(const struct sp_attention *at, int j, int start)
{
    int n = visible(at) - start;

    return n < 0 ? 0 : n < at->kv_len[j] ? n : at->kv_len[j];
}

/* True if slice 0 has all visible positions. */
static bool one_slice(const struct sp_attention *at)
{
    return at->kv_len[0] >= visible(at);
}

static size_t kv_row(const struct sp_attention *at)
{
    return 2 * (size_t)at->kv_heads * (size_t)at->head_dim;
}

/* Bytes of the gathered rows, the visible ones of all sequences, in the workspace. */
static size_t gathered_bytes(const struct sp_attention *at)
{
    return sp_cudnn_aligned(2 * (size_t)at->batch * (size_t)visible(at) * kv_row(at));
}

static struct sp_fused_shape shape_of(const struct sp_attention *at)
{
    struct sp_fused_shape s;

    memset(&s, 0, sizeof s);
    s.full = is_full(at);
    s.batch = at->batch;
    s.heads = at->heads;
    s.kv_heads = at->kv_heads;
    s.head_dim = at->head_dim;
    s.q_len = s.q_rows = at->q_len;
    s.q_row = at->heads * at->head_dim;
    s.kv_len = visible(at);
    s.kv_rows = one_slice(at) ? at->kv_len[0] : s.kv_len;
    s.kv_row = s.dkv_row = (int)kv_row(at);
    s.scale = at->scale;
    return s;
}

static bool aligned(const void *const *x, int n)
{
    for (int i = 0; i < n; i++)
        if ((uintptr_t)x[i] % 16)
            return false;
    return true;
}

/* all(batch,visible,2gd) = the visible rows of the slices, in order */
static void gather(const struct sp_backend *k, const struct sp_attention *at, const void *const *kv,
                   void *all)
{
    size_t row = 2 * kv_row(at);

    for (int j = 0, start = 0; j < at->n_kv; start += at->kv_len[j++])
        k->copy_rows(k,
                     &(struct sp_row_copy){.n = (size_t)at->batch,
                                           .bytes = (size_t)visible_in(at, j, start) * row,
                                           .from = (size_t)at->kv_len[j] * row,
                                           .to = (size_t)visible(at) * row},
                     kv[j], (char *)all + (size_t)start * row);
}

/* dkv[j] = or += its rows of all; with =, rows that no query sees become 0. */
static void scatter(const struct sp_backend *k, const struct sp_attention *at, const void *all,
                    void *const *dkv, bool first)
{
    size_t row = kv_row(at), batch = (size_t)at->batch, total = (size_t)visible(at) * row;

    for (int j = 0, start = 0; j < at->n_kv; start += at->kv_len[j++]) {
        size_t n = (size_t)visible_in(at, j, start) * row, len = (size_t)at->kv_len[j] * row;
        const void *from = sp_cudnn_offset(all, (size_t)start * row);

        if (first && n < len)
            k->clear(k, 2 * batch * len, dkv[j]);
        if (first)
            k->copy_rows(
                k,
                &(struct sp_row_copy){.n = batch, .bytes = 2 * n, .from = 2 * total, .to = 2 * len},
                from, dkv[j]);
        else if (n == len && n == total)
            k->add(k, batch * n, from, dkv[j]);
        else
            for (size_t b = 0; n && b < batch; b++)
                k->add(k, n, sp_cudnn_offset(from, b * total), sp_cudnn_offset(dkv[j], b * len));
    }
}

/* ---- the functions of the table ---- */

static void attention(const struct sp_backend *k, const struct sp_attention *at, const void *q,
                      const void *const *kv, void *o, float *lse)
{
    struct sp_cuda_attention *a = k->cuda->attention;
    const void *addresses[] = {q, kv[0], o, lse};
    struct sp_fused_shape shape = shape_of(at);
    struct sp_fused_tensors t = {.q = q, .k = kv[0], .o = o, .lse = lse};
    size_t gathered = one_slice(at) ? 0 : gathered_bytes(at);
    /* Sampling adds one key each time; a plan for each length would take longer than it saves. */
    bool samples = at->q_len == 1 && at->q_pos > 0;
    unsigned char *workspace;
    struct engine engine;

    if (samples || !all_there(at) || !aligned(addresses, 4) || !find_engine(a, &shape, &engine)) {
        a->tiled.attention(k, at, q, kv, o, lse);
        return;
    }
    workspace = sp_cuda_workspace(k, gathered + engine.workspace_bytes);
    if (gathered) {
        gather(k, at, kv, workspace);
        t.k = workspace;
    }
    t.v = sp_cudnn_offset(t.k, kv_row(at) / 2);
    run_engine(k, &engine, &shape, &t, workspace + gathered);
}

static void attention_bwd(const struct sp_backend *k, const struct sp_attention *at,
                          const struct sp_attention_bwd *b)
{
    struct sp_cuda_attention *a = k->cuda->attention;
    const void *addresses[] = {b->q, b->kv[0], b->o, b->lse, b->d_o, b->dq, b->dkv[0]};
    struct sp_fused_shape shape = shape_of(at);
    struct sp_fused_tensors t = {.q = b->q,
                                 .k = b->kv[0],
                                 .o = (void *)b->o,
                                 .lse = (void *)b->lse,
                                 .d_o = b->d_o,
                                 .dq = b->dq,
                                 .dk = b->dkv[0]};
    bool direct = b->first && one_slice(at);
    size_t gathered = one_slice(at) ? 0 : gathered_bytes(at);
    size_t apart = direct ? 0 : gathered_bytes(at);
    unsigned char *workspace;
    struct engine engine;

    shape.backward = 1;
    shape.deterministic = a->deterministic;
    shape.dkv_rows = direct ? at->kv_len[0] : visible(at);
    if (!all_there(at) || !aligned(addresses, 7) || !find_engine(a, &shape, &engine)) {
        a->tiled.attention_bwd(k, at, b);
        return;
    }
    workspace = sp_cuda_workspace(k, gathered + apart + engine.workspace_bytes);
    if (gathered) {
        gather(k, at, b->kv, workspace);
        t.k = workspace;
    }
    if (apart)
        t.dk = workspace + gathered;
    for (int j = 0; direct && j < at->n_kv; j++)
        if (j > 0 || at->kv_len[0] > visible(at))
            k->clear(k, 2 * (size_t)at->batch * (size_t)at->kv_len[j] * kv_row(at), b->dkv[j]);
    t.v = sp_cudnn_offset(t.k, kv_row(at) / 2);
    t.dv = sp_cudnn_offset(t.dk, kv_row(at) / 2);
    run_engine(k, &engine, &shape, &t, workspace + gathered + apart);
    if (apart)
        scatter(k, at, t.dk, b->dkv, b->first);
}

/* ---- the table ---- */

static bool is_set(const char *name, const char *value)
{
    const char *set = getenv(name);

    return set && strcmp(set, value) == 0;
}

static bool wants_cudnn(void)
{
    return !is_set("SP_CUDA_CUDNN", "0");
}

static bool has_flash3(int device)
{
    return !is_set("SP_CUDA_FLASH3", "0") && sp_flash3_usable(device);
}

static bool deterministic(void)
{
    return !is_set("SP_CUDA_FAST", "1");
}

/* The most workspace of a plan; above it, attention is done in parts. Without a number in the
 * environment it is a share of the device. */
static size_t most_bytes(size_t device_bytes)
{
    const char *set = getenv("SP_CUDA_ATTENTION_MIB");
    static bool told;
    char *end;
    long mib;

    if (!set || !*set)
        return sp_cudnn_most_bytes(device_bytes);
    mib = strtol(set, &end, 10);
    if (!*end && mib > 0 && mib < 1 << 20)
        return (size_t)mib << 20;
    if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
        sp_warn("cuda: SP_CUDA_ATTENTION_MIB=%s is no number of MiB from 1 to %d: ignored", set,
                (1 << 20) - 1);
    return sp_cudnn_most_bytes(device_bytes);
}

size_t sp_cuda_attention_bytes(int device, const struct sp_attention *at, size_t device_bytes)
{
    struct sp_fused_shape shape = shape_of(at);
    size_t gathered = at->n_kv > 1 ? gathered_bytes(at) : 0, bytes;

    shape.backward = 1;
    shape.deterministic = deterministic();
    bytes = has_flash3(device) ? sp_flash3_bytes(&shape) : 0;
    if (!bytes) {
        if (!wants_cudnn() || !sp_cudnn_there())
            return 0;
        bytes = sp_cudnn_bound(&shape, most_bytes(device_bytes));
    }
    return bytes ? 2 * gathered + bytes : gathered; /* the forward's alone */
}

/* NULL: cuDNN is not wanted, or missing, which a line says the first time. */
static struct sp_cudnn *open_cudnn(cudaStream_t stream, bool flash3)
{
    static bool told;
    struct sp_cudnn *cudnn;

    if (!wants_cudnn())
        return NULL;
    cudnn = sp_cudnn_open(stream);
    if (!cudnn && !__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
        sp_warn("cuda: without cuDNN attention%s is computed by slower kernels (%s)",
                flash3 ? " that FlashAttention-3 has no kernels for" : "", sp_cudnn_about());
    return cudnn;
}

bool sp_cuda_attention_fused(struct sp_cuda *cuda, struct sp_backend *backend)
{
    size_t unused, device_bytes = 0;
    bool flash3 = has_flash3(cuda->device);
    struct sp_cudnn *cudnn = open_cudnn(cuda->stream, flash3);
    struct sp_cuda_attention *a;

    if (!cudnn && !flash3)
        return false;
    a = calloc(1, sizeof *a);
    if (!a)
        sp_cuda_fatal("cuda: no memory for the plans of attention");
    a->plans.cudnn = cudnn;
    a->flash3 = flash3;
    a->tiled = *backend;
    cudaMemGetInfo(&unused, &device_bytes);
    a->plans.most_bytes = most_bytes(device_bytes);
    a->deterministic = deterministic();
    cuda->attention = a;
    backend->attention = attention;
    backend->attention_bwd = attention_bwd;
    return true;
}

void sp_cuda_attention_free(struct sp_cuda_attention *a)
{
    if (!a)
        return;
    sp_cudnn_forget(&a->plans);
    if (a->plans.cudnn)
        sp_cudnn_close(a->plans.cudnn);
    free(a);
}
#endif
