/* Counting floating-point operations. */
#include "kernels/kernels.h"
#include <math.h>

double sp_flops_linear(double T, double in, double out)
{
    return 2 * T * in * out;
}

/* Two products of 2d operations for each visible (query, key) pair: query i sees q_pos + i + 1 keys,
 * as far as there are keys. */
double sp_flops_attention(const struct sp_attention *at)
{
    double queries = at->q_len, own = queries, pairs, keys = 0;

    for (int j = 0; j < at->n_kv; j++)
        keys += at->kv_len[j];
    if (at->n_kv)
        own = fmin(fmax(keys - at->q_pos, 0), queries);
    pairs = queries * at->q_pos + own * queries - own * (own - 1) / 2;
    return 4.0 * at->head_dim * at->heads * at->batch * pairs;
}
