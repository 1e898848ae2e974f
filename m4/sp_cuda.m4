# SP_CUDA: nvcc, cuBLAS and a StarPU that drives GPUs. Sets NVCC and sp_cuda.
# There are no CUDA kernels yet: what is found is only reported.

AC_DEFUN([SP_CUDA],
[AC_ARG_VAR([NVCC], [CUDA compiler])
SP_ARG_GUESS([cuda], [kernels for NVIDIA GPUs])
AM_COND_IF([ENGINE], [], [with_cuda=no])
sp_cuda=no
AS_IF([test "$with_cuda" != no],
    [AC_PATH_PROG([NVCC], [nvcc], [], [$PATH$PATH_SEPARATOR${CUDA_HOME:-/usr/local/cuda}/bin])
     sp_save_CPPFLAGS=$CPPFLAGS
     CPPFLAGS="$STARPU_CFLAGS $CPPFLAGS"
     AC_CHECK_DECL([STARPU_USE_CUDA], [sp_starpu_cuda=yes], [sp_starpu_cuda=no],
                   [[#include <starpu_config.h>]])
     AS_IF([test -n "$NVCC"],
           [CPPFLAGS="$sp_save_CPPFLAGS -isystem `AS_DIRNAME(["$NVCC"])`/../include"
            AC_CHECK_HEADER([cublas_v2.h], [sp_cublas=yes], [sp_cublas=no])])
     CPPFLAGS=$sp_save_CPPFLAGS
     AS_IF([test -z "$NVCC"], [SP_ABSENT([cuda], [nvcc was not found])],
           [test $sp_cublas = no], [SP_ABSENT([cuda], [cublas_v2.h was not found])],
           [test $sp_starpu_cuda = no], [SP_ABSENT([cuda], [StarPU has no CUDA])],
           [SP_ABSENT([cuda], [starpipe has no CUDA kernels yet])])])])
