/* As emulated.cpp: what only the products call. */
#include "kernels/cuda/bias_cuda.cu"
