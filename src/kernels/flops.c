/* Counting floating-point operations. */
#include "kernels/kernels.h"

double sp_flops_linear(double T, double in, double out)
{
    return 2 * T * in * out;
}

double sp_flops_pairs(const struct sp_attention *at, double pairs)
{
    return 4.0 * at->head_dim * at->heads * at->batch * pairs;
}

/* Query i sees q_pos + i + 1 keys. */
double sp_flops_attention(const struct sp_attention *at)
{
    return sp_flops_pairs(at, (double)at->q_len * at->q_pos + 0.5 * at->q_len * (at->q_len + 1.0));
}
