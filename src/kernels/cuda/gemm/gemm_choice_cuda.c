/*
 * Chooses the algorithm of cuBLASLt that computes a product. Its heuristics name some, the best
 * guess first. When a shape is new, each is timed on the worker's own stream and the fastest is
 * kept for this run and later ones (tuning_cache.h): algorithms sum in different orders, and runs
 * must give the same bits. SP_CUDA_TUNE=0 takes the first guess.
 *
 * Measuring must change nothing. A product that only writes D is timed in place: the run that
 * follows overwrites its results. A product that adds to D in place reads the true C and writes to
 * memory allocated for the purpose; if that is more than half of the free memory, which others will
 * want, it is not timed.
 */
#include "kernels/cuda/gemm/gemm_cuda.h"
#include "kernels/cuda/gemm/tuning_cache.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Everything that heuristics may look at. Compared as bytes: no padding, nothing left unset. */
struct key {
    int m, n, k, lda, ldb, ldd;
    uint8_t trans_a, trans_b, in, out, epilogue;
    uint8_t c;            /* 0: not read, 1: D itself, 2: another */
    uint8_t align[4];     /* of A, B, C and D: less one, to fit a byte */
    uint8_t format, fast; /* in fp8 */
};

struct sp_choice {
    struct key key;
    struct sp_call call;
    cublasLtMatmulAlgo_t algos[SP_GEMM_CANDIDATES];
    int n, at; /* candidates, and the one in use */
    float us;  /* its time, 0 if unknown */
    int fuses; /* sp_gemm_fuses: 0 undecided, 1 yes, -1 no */
    struct sp_choice *next;
};

static struct key key_of(const struct sp_cuda_gemm *gemm, const struct sp_product *p)
{
    const void *at[4] = {p->A, p->B, p->beta == 0 ? p->D : p->C, p->D};
    struct key key = {.m = p->m,
                      .n = p->n,
                      .k = p->k,
                      .lda = p->lda,
                      .ldb = p->ldb,
                      .ldd = p->ldd,
                      .trans_a = p->trans_a,
                      .trans_b = p->trans_b,
                      .in = (uint8_t)p->in,
                      .out = (uint8_t)p->out,
                      .epilogue = (uint8_t)p->epilogue,
                      .c = p->beta == 0   ? 0
                           : p->C == p->D ? 1
                                          : 2,
                      .format = p->in == SP_FP8 ? (uint8_t)p->format : 0,
                      .fast = p->in == SP_FP8 && gemm->fast};

    for (int i = 0; i < 4; i++)
        key.align[i] = (uint8_t)(sp_call_alignment(at[i]) - 1);
    return key;
}

static unsigned slot_of(const struct key *key)
{
    const unsigned char *bytes = (const unsigned char *)key;
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < sizeof *key; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return (hash ^ hash >> 16) % SP_GEMM_SLOTS;
}

static bool prefer(cublasLtMatmulPreference_t pref, cublasLtMatmulPreferenceAttributes_t what,
                   const void *value, size_t bytes)
{
    return cublasLtMatmulPreferenceSetAttribute(pref, what, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

/* Sums that are split along k must be added up in f32: a result in bf16 is rounded only once. */
static bool state_preferences(const struct sp_cuda_gemm *gemm, const struct key *key,
                              cublasLtMatmulPreference_t pref)
{
    const cublasLtMatmulPreferenceAttributes_t what[4] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint64_t workspace = gemm->workspace_bytes;
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

    for (int i = 0; i < 4; i++) {
        uint32_t align = key->align[i] + 1u;

        if (!prefer(pref, what[i], &align, sizeof align))
            return false;
    }
    return (key->out == SP_F32 ||
            prefer(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes)) &&
           prefer(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
}

static void ask_heuristics(struct sp_cuda_gemm *gemm, struct sp_choice *choice)
{
    cublasLtMatmulHeuristicResult_t found[SP_GEMM_CANDIDATES];
    struct sp_call *call = &choice->call;
    cublasLtMatmulPreference_t pref;
    int n = 0;

    if (cublasLtMatmulPreferenceCreate(&pref) != CUBLAS_STATUS_SUCCESS)
        return;
    if (state_preferences(gemm, &choice->key, pref) &&
        cublasLtMatmulAlgoGetHeuristic(gemm->lt, call->op, call->first, call->second, call->result,
                                       call->result, pref, SP_GEMM_CANDIDATES, found,
                                       &n) != CUBLAS_STATUS_SUCCESS)
        n = 0;
    cublasLtMatmulPreferenceDestroy(pref);
    for (int i = 0; i < n; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS &&
            found[i].workspaceSize <= gemm->workspace_bytes)
            choice->algos[choice->n++] = found[i].algo;
}

/* ---- measuring ---- */

enum {
    ROUNDS = 3,      /* candidates take turns, so that a change of clocks affects all of them */
    WARM_MS = 200,   /* until clocks are up, before the first shape */
    WARM_MOST = 2000 /* products for that */
};

struct timed {
    struct sp_cuda_gemm *gemm;
    const struct sp_call *call;
    const struct sp_product *p;
    const cublasLtMatmulAlgo_t *algo;
    bool failed;
    float us; /* best of the rounds so far, 0: none */
};

static void run_timed(void *arg)
{
    struct timed *t = arg;

    t->failed |= sp_call_run(t->gemm, t->call, t->p, t->algo) != CUBLAS_STATUS_SUCCESS;
}

static float elapsed(struct sp_cuda_gemm *gemm, int times, void (*work)(void *arg), void *arg)
{
    float ms = 0;

    sp_cuda_must(cudaEventRecord(gemm->start, gemm->stream), "event");
    for (int i = 0; i < times; i++)
        work(arg);
    sp_cuda_must(cudaEventRecord(gemm->end, gemm->stream), "event");
    sp_cuda_must(cudaEventSynchronize(gemm->end), "while products are measured");
    sp_cuda_must(cudaEventElapsedTime(&ms, gemm->start, gemm->end), "event");
    return 1000 * ms / (float)times;
}

/* Microseconds: runs once to warm up, once to see how long it takes, then for about a
 * millisecond. */
static float measure(struct sp_cuda_gemm *gemm, void (*work)(void *arg), void *arg)
{
    float us;
    int times;

    work(arg);
    us = elapsed(gemm, 1, work, arg);
    times = us < 100 ? 10 : us < 500 ? (int)(1000 / us) : 2;
    return elapsed(gemm, times, work, arg);
}

static void warm_up(struct timed *t)
{
    enum { TIMES = 20 };
    float us = 0;

    for (int n = 0; !t->failed && us < 1000.0f * WARM_MS && n < WARM_MOST; n += TIMES)
        us += TIMES * elapsed(t->gemm, TIMES, run_timed, t);
    t->gemm->warm = true;
}

/* NULL: not enough is free. Allocates in the order of the stream, like a workspace, since
 * messages between GPUs may be on their way. */
static void *take_scratch(struct sp_cuda_gemm *gemm, size_t bytes)
{
    size_t available = 0, total = 0;
    void *scratch = NULL;

    if (cudaMemGetInfo(&available, &total) == cudaSuccess && bytes <= available / 2 &&
        cudaMallocAsync(&scratch, bytes, gemm->stream) == cudaSuccess)
        return scratch;
    cudaGetLastError(); /* clear the error */
    return NULL;
}

/* Takes the best of some rounds each. The earlier guess stays unless a later one is clearly
 * faster: noise alone must not change the choice. An algorithm that fails is not taken. */
static void measure_all(struct sp_cuda_gemm *gemm, struct sp_choice *choice,
                        const struct sp_product *p)
{
    struct sp_product apart = *p;
    struct timed timed[SP_GEMM_CANDIDATES] = {{0}};
    void *scratch = NULL;

    if (choice->key.c == 1) {
        scratch = take_scratch(gemm, (size_t)p->m * (size_t)p->ldd * sp_dtype_bytes(p->out));
        if (!scratch)
            return;
        apart.D = scratch;
    }
    for (int i = 0; i < choice->n; i++) {
        timed[i] = (struct timed){gemm, &choice->call, &apart, &choice->algos[i], false, 0};
        run_timed(&timed[i]);
        if (!gemm->warm && !timed[i].failed)
            warm_up(&timed[i]);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < choice->n; i++) {
            float us = timed[i].failed ? 0 : measure(gemm, run_timed, &timed[i]);

            if (us > 0 && (timed[i].us == 0 || us < timed[i].us))
                timed[i].us = us;
        }
    for (int i = 0; i < choice->n; i++)
        if (!timed[i].failed && timed[i].us > 0 &&
            (choice->us == 0 || timed[i].us < 0.97f * choice->us)) {
            choice->us = timed[i].us;
            choice->at = i;
        }
    if (scratch)
        sp_cuda_must(cudaFreeAsync(scratch, gemm->stream), "after products were measured");
}

/* ---- decisions that are kept ---- */

enum { NAME_BYTES = 2 * sizeof(struct key) + 2 };

/* name(NAME_BYTES): the name under which a decision about a key is kept. */
static void name_of(const struct key *key, char decision, char *name)
{
    for (size_t i = 0; i < sizeof *key; i++)
        snprintf(name + 2 * i, 3, "%02x", ((const unsigned char *)key)[i]);
    name[NAME_BYTES - 2] = decision;
    name[NAME_BYTES - 1] = '\0';
}

/* A kept decision is an index and the number of candidates: the heuristics name the same ones
 * every time. */
static bool recall(const char *value, struct sp_choice *choice)
{
    int n, at;
    float us;

    if (!value || sscanf(value, "%d of %d %f", &at, &n, &us) != 3 || n != choice->n || at < 0 ||
        at >= n || !(us >= 0))
        return false;
    choice->at = at;
    choice->us = us;
    return true;
}

/* Takes the fastest. The first worker with this shape measures it for all, or keeps its guess if
 * it cannot measure. */
static void decide(struct sp_cuda_gemm *gemm, struct sp_choice *choice, const struct sp_product *p)
{
    char name[NAME_BYTES], value[64];

    name_of(&choice->key, 'a', name);
    sp_kept_lock(gemm->kept);
    if (!recall(sp_kept_find(gemm->kept, name), choice)) {
        measure_all(gemm, choice, p);
        snprintf(value, sizeof value, "%d of %d %.2f", choice->at, choice->n, (double)choice->us);
        sp_kept_add(gemm->kept, name, value);
    }
    sp_kept_unlock(gemm->kept);
}

/* ---- choices ---- */

/* NULL if there is none. May overwrite the product's output, if C is not D. */
static struct sp_choice *choose(const struct sp_backend *k, const struct sp_product *p)
{
    struct sp_cuda_gemm *gemm = k->cuda->gemm;
    struct key key = key_of(gemm, p);
    struct sp_choice **slot = &gemm->table[slot_of(&key)], *choice;

    if (!sp_call_allowed(p))
        return NULL;
    for (choice = *slot; choice; choice = choice->next)
        if (memcmp(&choice->key, &key, sizeof key) == 0)
            return choice->n ? choice : NULL;
    choice = calloc(1, sizeof *choice);
    if (!choice)
        sp_cuda_fatal("cuda: no memory for a product's algorithms");
    choice->key = key;
    choice->next = *slot;
    *slot = choice;
    if (sp_call_create(p, gemm->fast, &choice->call))
        ask_heuristics(gemm, choice);
    if (gemm->tune && choice->n > 0)
        decide(gemm, choice, p);
    return choice->n ? choice : NULL;
}

/* An algorithm may refuse although the heuristics named it: then the next one is tried. */
static bool run_choice(const struct sp_backend *k, struct sp_choice *choice,
                       const struct sp_product *p)
{
    for (int tried = 0; tried < choice->n; tried++) {
        if (sp_call_run(k->cuda->gemm, &choice->call, p, &choice->algos[choice->at]) ==
            CUBLAS_STATUS_SUCCESS)
            return true;
        choice->at = (choice->at + 1) % choice->n;
    }
    sp_cuda_must(cudaPeekAtLastError(), "matrix product");
    choice->n = 0;
    return false;
}

bool sp_gemm_product(const struct sp_backend *k, const struct sp_product *p)
{
    struct sp_choice *choice = choose(k, p);

    return choice && run_choice(k, choice, p);
}

bool sp_gemm_has(const struct sp_backend *k, const struct sp_product *p)
{
    return choose(k, p) != NULL;
}

bool sp_gemm_fuses(const struct sp_backend *k, const struct sp_product *fused,
                   const struct sp_product *plain, void (*rest)(void *arg), void *arg)
{
    struct sp_cuda_gemm *gemm = k->cuda->gemm;
    struct sp_choice *one = choose(k, fused), *two;
    char name[NAME_BYTES];
    const char *value;

    if (!one)
        return false;
    if (one->fuses == 0) {
        one->fuses = 1;
        two = one->us > 0 ? choose(k, plain) : NULL;
        name_of(&one->key, 'f', name);
        sp_kept_lock(gemm->kept);
        value = sp_kept_find(gemm->kept, name);
        if (value)
            one->fuses = strncmp(value, "no", 2) == 0 ? -1 : 1;
        else if (two && two->us > 0) {
            if (two->us + measure(gemm, rest, arg) < one->us)
                one->fuses = -1;
            sp_kept_add(gemm->kept, name, one->fuses < 0 ? "no" : "yes");
        }
        sp_kept_unlock(gemm->kept);
    }
    return one->fuses > 0;
}

void sp_gemm_forget(struct sp_cuda_gemm *gemm)
{
    for (int i = 0; i < SP_GEMM_SLOTS; i++)
        while (gemm->table[i]) {
            struct sp_choice *choice = gemm->table[i];

            gemm->table[i] = choice->next;
            sp_call_destroy(&choice->call);
            free(choice);
        }
}
