/*
 * Rotary positions, equations in rope.c. Floor: the rotated heads, read and written once.
 *
 * A block has a few whole rows: first the angles of each, shared by all heads, in double and in
 * turns as on the CPU, then the rotations.
 */
#include "kernels/cuda/device/launch.h"

enum {
    HALF = 128,       /* pairs of a head, at most */
    ROPE_ROWS = 8,    /* of a block, at most */
    ROPE_WORK = 1024, /* accesses of a block, if its rows have them */
};

struct rope_turns {
    double of[HALF]; /* of sp_rope_turns */
};

template <typename T, int V>
SP_KERNEL void rope_kernel(const __grid_constant__ struct rope_turns turns, int rows, int each,
                           int len, int heads, int half, size_t ld, int pos0, int step,
                           bool inverse, T *x)
{
    float *cosine = sp_shared<float>(), *sine = cosine + each * half;
    int first = (int)blockIdx.x * each, n = rows - first < each ? rows - first : each;
    int items = heads * (half / V);

    for (int i = (int)threadIdx.x; i < n * half; i += (int)blockDim.x) {
        double f = (double)(pos0 + (first + i / half) % len * step) * turns.of[i % half];
        float s, c;

        sincospif(2.0f * (float)(f - rint(f)), &s, &c);
        cosine[i] = c;
        sine[i] = inverse ? -s : s;
    }
    __syncthreads();
    for (int j = (int)threadIdx.x; j < n * items; j += (int)blockDim.x) {
        int row = j / items, head = j % items / (half / V), i = j % (half / V) * V;
        T *x1 = x + (size_t)(first + row) * ld + (size_t)head * 2 * half + i, *x2 = x1 + half;
        float a[V], b[V], c[V], s[V];

        sp_load<V>(x1, a);
        sp_load<V>(x2, b);
        sp_load<V>(cosine + row * half + i, c);
        sp_load<V>(sine + row * half + i, s);
        for (int v = 0; v < V; v++) {
            float turned = a[v] * c[v] - b[v] * s[v];

            b[v] = b[v] * c[v] + a[v] * s[v];
            a[v] = turned;
        }
        sp_store<V>(x1, a);
        sp_store<V>(x2, b);
    }
}

template <typename T>
static void rope(const struct sp_backend *k, const struct sp_rotation *r, bool inverse, void *x)
{
    int half = r->d / 2, rows = r->batch * r->len, items, each;
    bool wide = half % sp_wide<T>::N == 0 && sp_is_wide((T *)x, (size_t)r->ld);
    struct rope_turns turns;

    if (half > HALF)
        sp_cuda_fatal("cuda: heads of %d, and rope is made for %d at most", r->d, 2 * HALF);
    if (!half || !r->heads)
        return;
    sp_rope_turns(r->rope, r->d, turns.of);
    items = r->heads * (half / (wide ? (int)sp_wide<T>::N : 1));
    each = (int)sp_at_most((unsigned)(ROPE_WORK / items + 1), ROPE_ROWS);
    sp_launch(k, "rope", wide ? rope_kernel<T, sp_wide<T>::N> : rope_kernel<T, 1>,
              sp_blocks((size_t)rows, (size_t)each), SP_BLOCK,
              2 * (size_t)each * (size_t)half * sizeof(float), turns, rows, each, r->len, r->heads,
              half, (size_t)r->ld, r->pos0, 1 + r->skip, inverse, (T *)x);
}

extern "C" void sp_cuda_rope_fill(struct sp_backend *backend)
{
    backend->rope = backend->dtype == SP_BF16 ? rope<bf16> : rope<float>;
}
