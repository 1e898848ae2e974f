/* Products in fp8: see fp8_cuda.h. */
#include "kernels/cuda/gemm/fp8_cuda.h"

enum {
    WORD = 16, /* cuBLASLt's rule for the dimensions of fp8 matrices */
    PART_BYTES = SP_FP8_PARTS * sizeof(unsigned),
    HEAD_BYTES = 2 * PART_BYTES + 256 /* parts and reciprocals */
};

static size_t rounded_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* On Hopper both matrices have the dimension that is summed over along their rows. */
static int depth_of(int k)
{
    return (int)rounded_up((size_t)k, WORD);
}

/* Workspace for the operands of m x n x k, as codes or as bf16. */
static size_t bytes_of(int m, int n, int k, bool codes)
{
    size_t each = codes ? (size_t)depth_of(k) : sizeof(uint16_t) * (size_t)k;

    return HEAD_BYTES + rounded_up(each * (size_t)m, 256) + each * (size_t)n;
}

size_t sp_cuda_fp8_bytes(int T, int in, int out)
{
    const int sizes[3][3] = {{T, out, in}, {T, in, out}, {out, in, T}};
    size_t most = 0;

    for (int i = 0; i < 3; i++) {
        size_t bytes = bytes_of(sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][1] % WORD == 0);

        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Gives the operands their places in the workspace. */
static void place(const struct sp_backend *k, const struct sp_product *p, bool codes,
                  struct sp_fp8_operand *a, struct sp_fp8_operand *b)
{
    char *at = sp_cuda_workspace(k, bytes_of(p->m, p->n, p->k, codes));
    float *reciprocals = (float *)(void *)(at + 2 * PART_BYTES);
    size_t of_a = (codes ? (size_t)depth_of(p->k) : sizeof(uint16_t) * (size_t)p->k) * (size_t)p->m;

    a->part = (unsigned *)(void *)at;
    b->part = (unsigned *)(void *)(at + PART_BYTES);
    a->reciprocal = reciprocals;
    b->reciprocal = reciprocals + 1;
    a->to = at + HEAD_BYTES;
    b->to = at + HEAD_BYTES + rounded_up(of_a, 256);
    a->ld_to = b->ld_to = depth_of(p->k);
    sp_cuda_fp8_amax(k, a);
    sp_cuda_fp8_amax(k, b);
}

/* The same product of codes. */
static struct sp_product in_codes(const struct sp_product *p, enum sp_fp8_format format,
                                  const struct sp_fp8_operand *a, const struct sp_fp8_operand *b)
{
    struct sp_product q = *p;

    q.trans_a = false;
    q.trans_b = true;
    q.in = SP_FP8;
    q.format = format;
    q.k = depth_of(p->k);
    q.A = a->to;
    q.B = b->to;
    q.lda = q.ldb = q.k;
    q.scale_a = a->reciprocal;
    q.scale_b = b->reciprocal;
    return q;
}

void sp_fp8_product(const struct sp_backend *k, enum sp_fp8_format format, struct sp_product *p)
{
    struct sp_fp8_operand a = {.format = format,
                               .rows = p->trans_a ? p->k : p->m,
                               .width = p->trans_a ? p->m : p->k,
                               .ld = p->lda,
                               .x = p->A,
                               .transposed = p->trans_a};
    struct sp_fp8_operand b = {.format = SP_E4M3,
                               .rows = p->trans_b ? p->n : p->k,
                               .width = p->trans_b ? p->k : p->n,
                               .ld = p->ldb,
                               .x = p->B,
                               .transposed = !p->trans_b};
    struct sp_product q;

    place(k, p, true, &a, &b);
    q = in_codes(p, format, &a, &b);
    if (sp_call_allowed(&q)) {
        sp_cuda_fp8_codes(k, &a);
        sp_cuda_fp8_codes(k, &b);
        if (sp_gemm_has(k, &q)) {
            *p = q;
            return;
        }
    }
    place(k, p, false, &a, &b);
    sp_cuda_fp8_numbers(k, &a);
    sp_cuda_fp8_numbers(k, &b);
    p->A = a.to;
    p->B = b.to;
    p->lda = a.width;
    p->ldb = b.width;
}
