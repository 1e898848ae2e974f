# SP_CUDA: nvcc, cuBLASLt and a StarPU that drives GPUs; the headers of cuDNN's frontend and of NCCL
# where they are. Sets NVCC, NVCCFLAGS, CUDA_CFLAGS, CUDA_LIBS, CUDA_LIBDIR and sp_cuda; defines HAVE_CUDA;
# conditionals HAVE_CUDA, HAVE_CUDNN_FRONTEND, HAVE_FLASH3 and HAVE_CUPTI. cuDNN and NCCL are loaded at run time:
# nothing is linked for them.

# The architectures that run fast; others, newer than the oldest, compile their kernels from PTX when
# they start.
AC_DEFUN([SP_CUDA_ARCH],
[AC_ARG_WITH([cuda-arch],
    [AS_HELP_STRING([--with-cuda-arch=LIST], [compute capabilities to build for @<:@80,90@:>@])],
    [], [with_cuda_arch=80,90])
sp_gencode= sp_newest=
for sp_arch in `AS_ECHO(["$with_cuda_arch"]) | tr ',' ' '`; do
    AS_CASE([$sp_arch], [[[1-9][0-9]]|[1-9][0-9][0-9]|[1-9][0-9]a|[1-9][0-9][0-9]a], [],
            [AC_MSG_ERROR([--with-cuda-arch=$with_cuda_arch: say numbers, as in 80,90])])
    sp_gencode="$sp_gencode -gencode arch=compute_$sp_arch,code=sm_$sp_arch"
    AS_CASE([$sp_arch], [*a], [], [sp_newest=$sp_arch])
done
AS_IF([test -n "$sp_newest"],
      [sp_gencode="$sp_gencode -gencode arch=compute_$sp_newest,code=compute_$sp_newest"])
AC_SUBST([CUDA_GENCODE], [$sp_gencode])])

# The header-only frontend of cuDNN is packaged for Python: `pip install nvidia-cudnn-frontend` puts
# its headers into an include directory beside the packages.
AC_DEFUN([SP_CUDNN_FRONTEND],
[AC_ARG_WITH([cudnn-frontend],
    [AS_HELP_STRING([--with-cudnn-frontend=guess|no|DIR],
                    [DIR/cudnn_frontend.h: cuDNN's fused attention @<:@guess@:>@])],
    [], [with_cudnn_frontend=guess])
sp_frontend="no (tiled kernels serve)"
AS_IF([test "$with_cudnn_frontend" != no],
    [sp_places=$with_cudnn_frontend
     AS_IF([test "$with_cudnn_frontend" = guess],
           [sp_places="`python3 -c 'import site, sys; print(*[p + "/include" for p in site.getsitepackages() + [site.getusersitepackages()]])' 2>/dev/null` /usr/local/include /usr/include"])
     for sp_place in $sp_places; do
         AS_IF([test -f "$sp_place/cudnn_frontend.h"],
               [CUDA_CFLAGS="$CUDA_CFLAGS -isystem $sp_place"
                sp_frontend=$sp_place
                AC_DEFINE([HAVE_CUDNN_FRONTEND], [1], [Attention comes from cuDNN, where it is at run time.])
                break])
     done
     AS_CASE([$with_cudnn_frontend:$sp_frontend],
             [guess:*], [],
             [*:no*], [AC_MSG_ERROR([--with-cudnn-frontend=$with_cudnn_frontend: cudnn_frontend.h is not there])])])])

# FlashAttention-3 comes as sources alone, of templates: DIR is a checkout of github.com/Dao-AILab/flash-attention
# with its submodule of CUTLASS. Sets FLASH3_CFLAGS.
AC_DEFUN([SP_FLASH3],
[AC_ARG_WITH([flash-attention],
    [AS_HELP_STRING([--with-flash-attention=DIR],
                    [sources of FlashAttention-3: faster attention on Hopper, minutes to build @<:@no@:>@])],
    [], [with_flash_attention=no])
AS_IF([test "$with_flash_attention" != no],
    [AS_IF([test -f "$with_flash_attention/hopper/flash_bwd_launch_template.h"], [],
           [AC_MSG_ERROR([--with-flash-attention=$with_flash_attention: hopper/flash_bwd_launch_template.h is not there])])
     AS_IF([test -f "$with_flash_attention/csrc/cutlass/include/cute/tensor.hpp"], [],
           [AC_MSG_ERROR([--with-flash-attention=$with_flash_attention: csrc/cutlass is empty: git submodule update --init csrc/cutlass])])
     AS_CASE([$sp_frontend], [no*],
             [AC_MSG_ERROR([--with-flash-attention wants cuDNN's frontend too, for what FlashAttention-3 does not compute])])
     AS_CASE([,$with_cuda_arch,], [*,90,*|*,90a,*], [],
             [AC_MSG_ERROR([--with-flash-attention is for GPUs of compute capability 9.0: --with-cuda-arch has none])])
     FLASH3_CFLAGS="-isystem $with_flash_attention/hopper -isystem $with_flash_attention/csrc/cutlass/include"
     AC_DEFINE([HAVE_FLASH3], [1], [Attention on Hopper comes from FlashAttention-3.])])
AC_SUBST([FLASH3_CFLAGS])])

# SP_TOOLKIT_INCLUDE(VARIABLE, DIR): sets VARIABLE for the headers of a toolkit. Distributions have it in /usr, which
# the compilers search by themselves, and where named once more, g++ does not find the C library after its own headers.
AC_DEFUN([SP_TOOLKIT_INCLUDE],
[AS_IF([test "`cd "$2/include" 2>/dev/null && pwd -P`" = /usr/include], [$1=], [$1="-isystem $2/include"])])

AC_DEFUN([SP_CUDA],
[AC_ARG_VAR([NVCC], [CUDA compiler])
AC_ARG_VAR([NVCCFLAGS], [more flags for it])
SP_ARG_GUESS([cuda], [kernels for NVIDIA GPUs])
SP_CUDA_ARCH
AM_COND_IF([ENGINE], [], [with_cuda=no])
AS_IF([test $sp_simulates = yes], [with_cuda=no])
sp_cuda=no sp_cupti=no FLASH3_CFLAGS= CUDA_CFLAGS= CUDA_LIBS= CUDA_LIBDIR=/usr/lib
AS_IF([test "$with_cuda" != no],
    [AC_PATH_PROG([NVCC], [nvcc], [], [$PATH$PATH_SEPARATOR${CUDA_HOME:-/usr/local/cuda}/bin])
     sp_save_CPPFLAGS=$CPPFLAGS
     sp_save_LIBS=$LIBS
     CPPFLAGS="$STARPU_CFLAGS $CPPFLAGS"
     AC_CHECK_DECL([STARPU_USE_CUDA], [sp_starpu_cuda=yes], [sp_starpu_cuda=no],
                   [[#include <starpu_config.h>]])
     AS_IF([test -n "$NVCC"],
           [sp_toolkit=`AS_DIRNAME(["$NVCC"])`/..
            SP_TOOLKIT_INCLUDE([CUDA_CFLAGS], [$sp_toolkit])
            for sp_dir in lib64 lib targets/x86_64-linux/lib; do
                AS_IF([test -e "$sp_toolkit/$sp_dir/libcublasLt.so"],
                      [CUDA_LIBDIR=$sp_toolkit/$sp_dir
                       CUDA_LIBS="-L$CUDA_LIBDIR"
                       break])
            done
            CUDA_LIBS="$CUDA_LIBS -lcublasLt -lcudart -lstdc++"
            CPPFLAGS="$CUDA_CFLAGS $sp_save_CPPFLAGS"
            LIBS="$CUDA_LIBS $LIBS"
            AC_CHECK_HEADER([cublasLt.h], [sp_cublas=yes], [sp_cublas=no])
            AS_IF([test $sp_cublas = yes],
                  [AC_MSG_CHECKING([whether cuBLASLt links])
                   AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cublasLt.h>]],
                                                   [[return (int)cublasLtGetVersion() + cudaGetDeviceCount(0);]])],
                                  [], [sp_cublas=no])
                   AC_MSG_RESULT([$sp_cublas])])
            LIBS="$CUDA_LIBS -lcupti $sp_save_LIBS"
            AC_MSG_CHECKING([whether CUPTI links])
            AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cupti.h>]], [[return (int)cuptiActivityFlushAll(0);]])],
                           [sp_cupti=yes])
            AC_MSG_RESULT([$sp_cupti])])
     CPPFLAGS=$sp_save_CPPFLAGS
     LIBS=$sp_save_LIBS
     AS_IF([test -z "$NVCC"], [SP_ABSENT([cuda], [nvcc was not found])],
           [test $sp_cublas = no], [SP_ABSENT([cuda], [cublasLt.h and libcublasLt were not found beside nvcc])],
           [test $sp_starpu_cuda = no], [SP_ABSENT([cuda], [StarPU has no CUDA: STARPIPE_CUDA=yes ./quickstart build makes one that has])],
           [SP_CUDNN_FRONTEND
            SP_FLASH3
            AC_DEFINE([HAVE_CUDA], [1], [Stages may be on NVIDIA GPUs.])
            sp_cuda="$NVCC, for $with_cuda_arch; cuDNN frontend: $sp_frontend; FlashAttention-3: $with_flash_attention"])])
AS_CASE([$sp_cuda:${with_flash_attention-no}], [no*:no], [],
        [no*], [AC_MSG_ERROR([--with-flash-attention=$with_flash_attention is for GPUs: CUDA: $sp_cuda])])
AS_CASE([$sp_cuda], [no*], [CUDA_CFLAGS= CUDA_LIBS=])
AM_CONDITIONAL([HAVE_CUDA], [test -n "$CUDA_LIBS"])
AM_CONDITIONAL([HAVE_CUDNN_FRONTEND], [test -n "$CUDA_LIBS" && test -d "$sp_frontend"])
AM_CONDITIONAL([HAVE_FLASH3], [test -n "$CUDA_LIBS" && test -n "$FLASH3_CFLAGS"])
AM_CONDITIONAL([HAVE_CUPTI], [test -n "$CUDA_LIBS" && test $sp_cupti = yes])
AC_SUBST([CUDA_CFLAGS])
AC_SUBST([CUDA_LIBDIR])
AC_SUBST([CUDA_LIBS])])
