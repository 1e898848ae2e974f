/* Memory: the runtime's own copies, queued; and the scan for what is no finite number, which waits.
 * */
#include "kernels/cuda/device/launch.h"
#include <stdlib.h>

enum { SCAN_BYTES = 4 << 20, MOST_PITCH = INT32_MAX /* of a 2D copy, on any device */ };

static void clear(const struct sp_backend *k, size_t bytes, void *y)
{
    if (bytes)
        sp_cuda_must(cudaMemsetAsync(y, 0, bytes, k->cuda->stream), "clear");
}

static void copy(const struct sp_backend *k, size_t bytes, const void *x, void *y)
{
    if (bytes)
        sp_cuda_must(cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice, k->cuda->stream),
                     "copy");
}

static void copy_rows(const struct sp_backend *k, const struct sp_row_copy *c, const void *x,
                      void *y)
{
    const unsigned char *in = (const unsigned char *)x;
    unsigned char *out = (unsigned char *)y;

    if (c->n > 1 && c->bytes && c->from <= MOST_PITCH && c->to <= MOST_PITCH)
        sp_cuda_must(cudaMemcpy2DAsync(y, c->to, x, c->from, c->bytes, c->n,
                                       cudaMemcpyDeviceToDevice, k->cuda->stream),
                     "copy_rows");
    else
        for (size_t i = 0; i < c->n; i++)
            copy(k, c->bytes, in + i * c->from, out + i * c->to);
}

/* Exponent bits all set: infinite or no number. */
static bool finite(enum sp_dtype dtype, const unsigned char *at)
{
    uint32_t bits = 0;

    if (dtype == SP_BF16) {
        uint16_t half;

        memcpy(&half, at, sizeof half);
        bits = (uint32_t)half << 16;
    } else {
        memcpy(&bits, at, sizeof bits);
    }
    return (bits & 0x7f800000u) != 0x7f800000u;
}

static size_t first_not_finite(const struct sp_backend *k, enum sp_dtype dtype, const void *x,
                               size_t n)
{
    size_t each = sp_dtype_bytes(dtype), bytes = n * each, piece = SCAN_BYTES;
    unsigned char *host = (unsigned char *)malloc(bytes < piece ? bytes + 1 : piece);
    size_t found = n;

    if (!host)
        sp_cuda_fatal("cuda: no memory for %zu bytes to scan", bytes < piece ? bytes + 1 : piece);
    sp_cuda_must(cudaStreamSynchronize(k->cuda->stream), "first_not_finite");
    for (size_t at = 0; at < bytes && found == n; at += piece) {
        size_t here = bytes - at < piece ? bytes - at : piece;

        sp_cuda_must(cudaMemcpy(host, (const unsigned char *)x + at, here, cudaMemcpyDeviceToHost),
                     "first_not_finite");
        for (size_t i = 0; i < here && found == n; i += each)
            if (!finite(dtype, host + i))
                found = (at + i) / each;
    }
    free(host);
    return found;
}

extern "C" void sp_cuda_memory_fill(struct sp_backend *backend)
{
    backend->clear = clear;
    backend->copy = copy;
    backend->copy_rows = copy_rows;
    backend->first_not_finite = first_not_finite;
}
