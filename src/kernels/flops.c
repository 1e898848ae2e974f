/* Counting floating-point operations. */
#include "kernels/kernels.h"

double sp_flops_linear(double T, double in, double out)
{
    return 2 * T * in * out;
}

/* Two products of 2d operations for each visible (query, key) pair: query i sees q_pos + i + 1. */
double sp_flops_attention(const struct sp_attention *at)
{
    double pairs = (double)at->q_len * at->q_pos + 0.5 * at->q_len * (at->q_len + 1.0);

    return 4.0 * at->head_dim * at->heads * at->batch * pairs;
}
