/*
 * bf16 products by oneDNN's matmul. A primitive is code generated for one product: making it takes
 * half a millisecond, or 40 us if oneDNN's own cache has the code. So each thread keeps its most
 * recent ones, with their memory objects. Threads share nothing, so there is no lock.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifdef HAVE_DNNL
#include "kernels/cpu/gemm/gemm_bf16.h"
#include "kernels/cpu/team.h"
#include "sp_error.h"
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* oneDNN 3 made descriptors pointers, and dropped one step of the creation. */
#if DNNL_VERSION_MAJOR >= 3
#define DESC(d) (d)
typedef const_dnnl_memory_desc_t desc_of;
#define describe_strides dnnl_memory_desc_create_with_strides
#define append_sum(ops) dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef)
#else
#define DESC(d) (&(d))
typedef const dnnl_memory_desc_t *desc_of;
#define describe_strides dnnl_memory_desc_init_by_strides
#define append_sum(ops) dnnl_post_ops_append_sum(ops, 1)
#endif

enum operand { SRC, WEIGHTS, DST, BIAS, ADDEND, OPERANDS, SCRATCH = OPERANDS, ARGS };

struct product {
    struct sp_gemm_bf16 of;
    int team;
    uint64_t used; /* 0: empty */
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[ARGS]; /* operands without a memory are left out */
    int n_args, at[ARGS];       /* place of an operand in args, -1: none */
    size_t scratch_bytes;
};

/* The bytes of a product hash to a set; when a set is full, its least recently used product is
 * evicted. */
enum { SETS = 64, WAYS = 8 };

struct cache {
    dnnl_stream_t stream;
    uint64_t calls;
    struct product at[SETS][WAYS];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static dnnl_engine_t engine;
static _Thread_local struct cache *mine;

static void must(const struct sp_gemm_bf16 *g, dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return;
    SP_NEED(status != dnnl_out_of_memory, "gemm: no memory for %s of a bf16 product %d x %d x %d",
            what, g->m, g->n, g->k);
    sp_error(EINVAL, "gemm: %s of a bf16 product %d x %d x %d (ld %d, %d, %d) returned %d", what,
             g->m, g->n, g->k, g->lda, g->ldb, g->ldc, (int)status);
    abort();
}

static void drop(struct product *p)
{
    for (int i = 0; i < p->n_args; i++)
        dnnl_memory_destroy(p->args[i].memory);
    dnnl_primitive_destroy(p->primitive);
    *p = (struct product){.used = 0};
}

static void destroy(void *arg)
{
    struct cache *c = arg;

    for (int s = 0; s < SETS; s++)
        for (int w = 0; w < WAYS; w++)
            if (c->at[s][w].used)
                drop(&c->at[s][w]);
    dnnl_stream_destroy(c->stream);
    free(c);
}

static void start(void)
{
    if (pthread_key_create(&key, destroy) || dnnl_engine_create(&engine, dnnl_cpu, 0)) {
        sp_error(EIO, "gemm: oneDNN has no CPU engine");
        abort();
    }
}

static struct cache *my_cache(void)
{
    if (mine)
        return mine;
    pthread_once(&once, start);
    mine = calloc(1, sizeof *mine);
    if (!mine || dnnl_stream_create(&mine->stream, engine, dnnl_stream_default_flags) ||
        pthread_setspecific(key, mine))
        sp_error_end("gemm: no memory for a thread's products");
    return mine;
}

/* A matrix as the product sees it; a single row has no leading dimension. */
struct matrix {
    enum sp_dtype type;
    int rows, width;
    bool trans;
    int ld;
};

static void describe(const struct sp_gemm_bf16 *g, const struct matrix x, dnnl_memory_desc_t *d)
{
    int64_t apart = (x.trans ? x.width : x.rows) == 1 ? (x.trans ? x.rows : x.width) : x.ld;
    dnnl_dims_t dims = {x.rows, x.width}, strides = {x.trans ? 1 : apart, x.trans ? apart : 1};

    must(g, describe_strides(d, 2, dims, x.type == SP_BF16 ? dnnl_bf16 : dnnl_f32, strides),
         "describing an operand");
}

static dnnl_primitive_attr_t attributes(const struct sp_gemm_bf16 *g, desc_of addend)
{
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t ops;

    must(g, dnnl_primitive_attr_create(&attr), "creating attributes");
    must(g, dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user), "scratch");
    must(g, dnnl_post_ops_create(&ops), "creating post-ops");
    if (g->accumulate)
        must(g, append_sum(ops), "the sum");
    if (g->addend)
        must(g, dnnl_post_ops_append_binary(ops, dnnl_binary_add, addend), "the addend");
    must(g, dnnl_primitive_attr_set_post_ops(attr, ops), "post-ops");
    dnnl_post_ops_destroy(ops);
    return attr;
}

/*
 * oneDNN's first implementation is not always the fastest: on AVX512-BF16 the one named after its
 * gemm takes 4 to 14 % less time for gradients of weights, and 0.4 of the time for one row. Both
 * sum in a fixed order. With AMX oneDNN's own order decides.
 */
static bool prefers_gemm(const struct sp_gemm_bf16 *g)
{
    return sp_cpu_bf16_unit() == SP_BF16_AVX512 && ((g->trans_a && g->type == SP_F32) || g->m == 1);
}

static bool is_gemm(dnnl_primitive_desc_t pd)
{
    const char *name;

    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success &&
           strstr(name, "gemm:jit");
}

#if DNNL_VERSION_MAJOR >= 3
static dnnl_primitive_desc_t matmul(const struct sp_gemm_bf16 *g, dnnl_memory_desc_t d[OPERANDS],
                                    dnnl_primitive_attr_t attr, bool gemm)
{
    dnnl_primitive_desc_t pd;

    must(g,
         dnnl_matmul_primitive_desc_create(&pd, engine, d[SRC], d[WEIGHTS],
                                           g->bias ? d[BIAS] : NULL, d[DST], attr),
         "the descriptor");
    while (gemm && !is_gemm(pd))
        if (dnnl_primitive_desc_next_impl(pd) != dnnl_success) {
            dnnl_primitive_desc_destroy(pd);
            return NULL;
        }
    return pd;
}
#else
static dnnl_primitive_desc_t matmul(const struct sp_gemm_bf16 *g, dnnl_memory_desc_t d[OPERANDS],
                                    dnnl_primitive_attr_t attr, bool gemm)
{
    dnnl_primitive_desc_iterator_t it;
    dnnl_primitive_desc_t pd;
    dnnl_matmul_desc_t op;

    must(g, dnnl_matmul_desc_init(&op, &d[SRC], &d[WEIGHTS], g->bias ? &d[BIAS] : NULL, &d[DST]),
         "the operation");
    must(g, dnnl_primitive_desc_iterator_create(&it, &op, attr, engine, NULL), "the descriptor");
    pd = dnnl_primitive_desc_iterator_fetch(it);
    while (gemm && pd && !is_gemm(pd)) {
        dnnl_primitive_desc_destroy(pd);
        pd = dnnl_primitive_desc_iterator_next(it) == dnnl_success
                 ? dnnl_primitive_desc_iterator_fetch(it)
                 : NULL;
    }
    dnnl_primitive_desc_iterator_destroy(it);
    return pd;
}
#endif

static dnnl_primitive_desc_t choose(const struct sp_gemm_bf16 *g, dnnl_memory_desc_t d[OPERANDS])
{
    dnnl_primitive_attr_t attr = attributes(g, DESC(d[ADDEND]));
    dnnl_primitive_desc_t pd = prefers_gemm(g) ? matmul(g, d, attr, true) : NULL;

    if (!pd)
        pd = matmul(g, d, attr, false);
    must(g, pd ? dnnl_success : dnnl_out_of_memory, "the descriptor");
    dnnl_primitive_attr_destroy(attr);
    return pd;
}

static void add_argument(struct product *p, enum operand o, int arg, desc_of d)
{
    p->at[o] = p->n_args;
    p->args[p->n_args].arg = arg;
    must(&p->of, dnnl_memory_create(&p->args[p->n_args++].memory, d, engine, NULL), "memory");
}

static void make_product(const struct sp_gemm_bf16 *g, struct product *p)
{
    static const int names[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS,
                                        DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1};
    dnnl_memory_desc_t d[OPERANDS];
    dnnl_primitive_desc_t pd;
    desc_of scratch;

    describe(g, (struct matrix){SP_BF16, g->m, g->k, g->trans_a, g->lda}, &d[SRC]);
    describe(g, (struct matrix){SP_BF16, g->k, g->n, g->trans_b, g->ldb}, &d[WEIGHTS]);
    describe(g, (struct matrix){g->type, g->m, g->n, false, g->ldc}, &d[DST]);
    describe(g, (struct matrix){SP_BF16, 1, g->n, false, g->n}, &d[BIAS]);
    describe(g, (struct matrix){SP_BF16, g->m, g->n, false, g->n}, &d[ADDEND]);
    pd = choose(g, d);
    must(g, dnnl_primitive_create(&p->primitive, pd), "the primitive");
    for (int o = 0; o < OPERANDS; o++) {
        p->at[o] = -1;
        if ((o != BIAS || g->bias) && (o != ADDEND || g->addend))
            add_argument(p, o, names[o], DESC(d[o]));
#if DNNL_VERSION_MAJOR >= 3
        dnnl_memory_desc_destroy(d[o]);
#endif
    }
    scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    p->scratch_bytes = dnnl_memory_desc_get_size(scratch);
    add_argument(p, SCRATCH, DNNL_ARG_SCRATCHPAD, scratch);
    dnnl_primitive_desc_destroy(pd);
}

/* The code is made for a team. Inside a parallel region that is one thread, which oneDNN does
 * not check. */
static void make_for_team(const struct sp_gemm_bf16 *g, int team, struct product *p)
{
    int threads = omp_get_max_threads();

    if (p->used)
        drop(p);
    p->of = *g;
    p->team = team;
    omp_set_num_threads(team);
    make_product(g, p);
    omp_set_num_threads(threads);
}

static struct product *find(struct cache *c, const struct sp_gemm_bf16 *g)
{
    struct product *set, *oldest;
    int words[sizeof *g / sizeof(int)], team;
    uint64_t hash;

    sp_team_ensure();
    team = omp_in_parallel() ? 1 : omp_get_max_threads();
    hash = (uint64_t)team;
    memcpy(words, g, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = (hash ^ (uint64_t)words[i]) * 0x9e3779b97f4a7c15u;
    set = oldest = c->at[hash >> 32 & (SETS - 1)];
    for (int w = 0; w < WAYS; w++) {
        if (set[w].used && set[w].team == team && !memcmp(&set[w].of, g, sizeof *g))
            return &set[w];
        if (set[w].used < oldest->used)
            oldest = &set[w];
    }
    make_for_team(g, team, oldest);
    return oldest;
}

void sp_gemm_bf16_native(const struct sp_gemm_bf16 *g, const void *A, const void *B,
                         const void *bias, const void *addend, void *C)
{
    struct cache *c = my_cache();
    struct product *p = find(c, g);
    /* oneDNN takes pointers without const even to data that it only reads. */
    void *at[ARGS] = {[SRC] = (void *)A,
                      [WEIGHTS] = (void *)B,
                      [DST] = C,
                      [BIAS] = (void *)bias,
                      [ADDEND] = (void *)addend,
                      [SCRATCH] = sp_scratch(SP_SCRATCH_PRODUCT, p->scratch_bytes)};

    p->used = ++c->calls;
    for (int o = 0; o < ARGS; o++)
        if (p->at[o] >= 0)
            must(g, dnnl_memory_set_data_handle(p->args[p->at[o]].memory, at[o]), "an operand");
    must(g, dnnl_primitive_execute(p->primitive, c->stream, p->n_args, p->args), "execution");
}
#endif
