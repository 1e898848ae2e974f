# SP_SIMGRID: whether the StarPU that was found is StarPU-SimGrid, which simulates and computes nothing.
# Sets SIMGRID_CFLAGS, SIMGRID_LIBS and sp_simgrid; defines HAVE_SIMGRID; conditional HAVE_SIMGRID. The
# simulated build has no other devices and no other processes: MPI, CUDA and NCCL are left out. After
# StarPU was found, before SP_MPI.

AC_DEFUN([SP_SIMGRID],
[AC_REQUIRE([PKG_PROG_PKG_CONFIG])
SP_ARG_GUESS([simgrid], [simulated runs, where StarPU was built with SimGrid])
AM_COND_IF([ENGINE], [], [with_simgrid=no])
SIMGRID_CFLAGS= SIMGRID_LIBS= sp_simgrid=no sp_simulates=no
AM_COND_IF([ENGINE],
    [AC_MSG_CHECKING([whether StarPU simulates])
     sp_save_CPPFLAGS=$CPPFLAGS
     CPPFLAGS="$STARPU_CFLAGS $CPPFLAGS"
     AC_PREPROC_IFELSE([AC_LANG_SOURCE([[#include <starpu_config.h>
#ifndef STARPU_SIMGRID
#error StarPU runs
#endif]])], [sp_simulates=yes])
     CPPFLAGS=$sp_save_CPPFLAGS
     AC_MSG_RESULT([$sp_simulates])])
AS_IF([test $sp_simulates = no],
          [AS_IF([test "$with_simgrid" != no], [SP_ABSENT([simgrid], [StarPU was built without SimGrid])])],
      [test "$with_simgrid" = no],
          [AC_MSG_ERROR([--with-simgrid=no was asked for, but this StarPU was built with SimGrid])],
      [PKG_CHECK_MODULES([SIMGRID], [simgrid >= 3.32], [], [SP_REQUIRED([SimGrid 3.32], [libsimgrid-dev])])
       SP_ISYSTEM([SIMGRID_CFLAGS])
       sp_simgrid="yes (simulates, and trains nothing)"
       AC_DEFINE([HAVE_SIMGRID], [1], [Runs are simulated by StarPU-SimGrid.])])
AM_CONDITIONAL([HAVE_SIMGRID], [test $sp_simulates = yes])
AC_SUBST([SIMGRID_CFLAGS])
AC_SUBST([SIMGRID_LIBS])])
