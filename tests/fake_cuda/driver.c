/*
 * A CUDA driver without a GPU, for libraries that ask it while they plan: kernels load, and nothing else
 * succeeds. All else comes from the names of the toolkit's stub, with the error that it has.
 */
#include <cuda.h>
#include <stdint.h>

/* A handle that is not NULL, and new each time. */
static void *handle(void)
{
    static uintptr_t n;

    return (void *)(++n << 4); /* NOLINT: nobody looks behind it */
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit,
                           void **jit_values, unsigned jits, CUlibraryOption *options,
                           void **values, unsigned n)
{
    (void)code, (void)jit, (void)jit_values, (void)jits, (void)options, (void)values, (void)n;
    *library = handle();
    return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    (void)library;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    (void)library, (void)name;
    *kernel = handle();
    return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    *function = (CUfunction)kernel;
    return CUDA_SUCCESS;
}
