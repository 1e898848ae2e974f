/* Nothing of cuBLASLt: the tests of src/kernels/cuda have their own products. */
#ifndef SP_STUB_CUBLASLT_H
#define SP_STUB_CUBLASLT_H
#endif
