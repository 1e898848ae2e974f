# SP_NCCL: the headers of NCCL, after SP_MPI and SP_CUDA; libnccl itself is loaded at run time.
# Sets NCCL_CFLAGS and sp_nccl; defines HAVE_NCCL, conditional HAVE_NCCL: messages between GPUs may go over
# NCCL. Conditional NCCL_TESTS: the headers and MPI are there, as the tests bring what stands for the rest.

AC_DEFUN([SP_NCCL],
[SP_ARG_GUESS([nccl], [messages between GPUs over NCCL])
AM_COND_IF([ENGINE], [], [with_nccl=no])
AS_IF([test $sp_simulates = yes], [with_nccl=no])
sp_nccl=no sp_nccl_headers=no NCCL_CFLAGS=$CUDA_CFLAGS
AS_IF([test "$with_nccl" != no],
    [AS_IF([test -n "$NCCL_CFLAGS"], [],
           [test -n "$NVCC"], [SP_TOOLKIT_INCLUDE([NCCL_CFLAGS], [`AS_DIRNAME(["$NVCC"])`/..])],
           [NCCL_CFLAGS="-isystem ${CUDA_HOME:-/usr/local/cuda}/include"])
     sp_save_CPPFLAGS=$CPPFLAGS
     CPPFLAGS="$NCCL_CFLAGS $CPPFLAGS"
     AC_CHECK_DECL([ncclCommInitRankConfig], [sp_nccl_headers=yes], [], [[#include <nccl.h>]])
     CPPFLAGS=$sp_save_CPPFLAGS
     AS_IF([test $sp_nccl_headers = no], [SP_ABSENT([nccl], [nccl.h of NCCL 2.18 or newer was not found])],
           [test -z "$CUDA_LIBS"], [SP_ABSENT([nccl], [there is no CUDA])],
           [test "$sp_mpi" != yes], [SP_ABSENT([nccl], [there is no MPI])],
           [sp_nccl=yes
            AC_DEFINE([HAVE_NCCL], [1], [Messages between GPUs may go over NCCL.])])])
AM_CONDITIONAL([HAVE_NCCL], [test "$sp_nccl" = yes])
AM_CONDITIONAL([NCCL_TESTS], [test $sp_nccl_headers = yes && test "$sp_mpi" = yes])
AC_SUBST([NCCL_CFLAGS])])
