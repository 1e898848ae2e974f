/* As emulated.cpp: what only the products call. */
#include "kernels/cuda/gemm/fp8_cuda.cu"
