# SP_MPI: an MPI library and the StarPU-MPI that goes with it.
# Sets MPI_CFLAGS, MPI_LIBS and sp_mpi; defines HAVE_MPI; conditional HAVE_MPI.
#
# CC stays the compiler of every file: the flags of MPI are taken from the wrapper `mpicc`, because
# Open MPI, MPICH, MVAPICH and Intel MPI all print their command on `-show` while their .pc files
# have different names or do not exist. Where CC needs no flag (CC=mpicc, Cray's cc) none is added.

AC_DEFUN([SP_MPI_TRY],
[CPPFLAGS="$MPI_CFLAGS $sp_save_CPPFLAGS"
LIBS="$MPI_LIBS $sp_save_LIBS"
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[return MPI_Init(0, 0);]])],
               [sp_mpi_works=yes])])

AC_DEFUN([SP_MPI_FROM_WRAPPER],
[set dummy `$MPICC -show 2>/dev/null`
shift
# The first word is the compiler; optimisation and hardening flags are the packager's, not ours. A wrapper that is not
# there says nothing.
test $[]# = 0 || shift
for sp_word
do
    AS_CASE([$sp_word],
            [-I*|-D*], [MPI_CFLAGS="$MPI_CFLAGS $sp_word"],
            [-L*|-l*|-Wl,*|-pthread|/*.so|/*.a], [MPI_LIBS="$MPI_LIBS $sp_word"])
done])

# The tests run more ranks than there are cores: Open MPI must be allowed to, others just do. Where the library
# of munge is and its daemon is not, every start would wait seconds for it.
AC_DEFUN([SP_MPIRUN],
[AS_IF([test -z "$MPIRUN"],
    [AC_CHECK_PROGS([MPIRUN], [mpirun mpiexec])
     AS_CASE([`$MPIRUN --version 2>/dev/null`],
             [*'Open MPI'*|*OpenRTE*], [MPIRUN="env PMIX_MCA_psec=^munge $MPIRUN --oversubscribe --bind-to none"])])])

AC_DEFUN([SP_MPI],
[AC_REQUIRE([PKG_PROG_PKG_CONFIG])
AC_ARG_VAR([MPICC], [MPI compiler wrapper, asked for its flags])
AC_ARG_VAR([MPIRUN], [MPI launcher of the tests, with its options])
SP_ARG_GUESS([mpi], [pipelines over several processes])
AM_COND_IF([ENGINE], [], [with_mpi=no])
AS_IF([test $sp_simulates = yes], [with_mpi=no])
MPI_CFLAGS= MPI_LIBS= sp_mpi=no
AS_IF([test "$with_mpi" != no],
    [AC_CHECK_PROGS([MPICC], [mpicc])
     SP_MPIRUN
     AC_MSG_CHECKING([for the flags of MPI])
     sp_save_CPPFLAGS=$CPPFLAGS
     sp_save_LIBS=$LIBS
     sp_mpi_works=no
     SP_MPI_TRY
     AS_IF([test $sp_mpi_works = no && test -n "$MPICC"], [SP_MPI_FROM_WRAPPER
                                                           SP_MPI_TRY])
     AS_IF([test $sp_mpi_works = yes], [AC_MSG_RESULT([${MPI_CFLAGS:-no} ${MPI_LIBS:-flag needed}])],
                                       [AC_MSG_RESULT([not found])])
     PKG_CHECK_EXISTS([starpumpi-1.4 >= 1.4.5], [sp_starpumpi=yes], [sp_starpumpi=no])
     AS_IF([test $sp_mpi_works = no],
               [SP_ABSENT([mpi], [no MPI library was found: install libopenmpi-dev or set MPICC])],
           [test $sp_starpumpi = no],
               [SP_ABSENT([mpi], [StarPU was built without MPI: there is no starpumpi-1.4.pc])],
           [SP_MPI_STARPU])
     CPPFLAGS=$sp_save_CPPFLAGS
     LIBS=$sp_save_LIBS
     AS_IF([test "$sp_mpi" != yes], [MPI_CFLAGS= MPI_LIBS=])])
AM_CONDITIONAL([HAVE_MPI], [test "$sp_mpi" = yes])
AC_SUBST([MPI_CFLAGS])
AC_SUBST([MPI_LIBS])])

# StarPU-MPI must have been built with this very MPI: its calls are linked, not only looked up.
AC_DEFUN([SP_MPI_STARPU],
[PKG_CHECK_MODULES([STARPUMPI], [starpumpi-1.4 >= 1.4.5])
AC_MSG_CHECKING([whether StarPU-MPI links with this MPI])
CPPFLAGS="$STARPUMPI_CFLAGS $CPPFLAGS"
LIBS="$STARPUMPI_LIBS $LIBS"
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <starpu_mpi.h>]],
                                [[return starpu_mpi_init_conf(0, 0, 1, MPI_COMM_WORLD, 0);]])],
    [AC_MSG_RESULT([yes])
     sp_mpi=yes
     MPI_CFLAGS="$STARPUMPI_CFLAGS $MPI_CFLAGS"
     SP_ISYSTEM([MPI_CFLAGS])
     MPI_LIBS="$STARPUMPI_LIBS $MPI_LIBS"
     AC_DEFINE([HAVE_MPI], [1], [Stages may be in several MPI processes.])],
    [AC_MSG_RESULT([no])
     SP_ABSENT([mpi], [StarPU-MPI does not link with this MPI: config.log has the linker's words])])])
