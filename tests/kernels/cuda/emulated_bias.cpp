/* As emulated.cpp: what only the products call. */
#include "kernels/cuda/pointwise/bias_cuda.cu"
