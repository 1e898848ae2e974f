# SP_GEMM: the library behind the matrix products, --with-gemm=auto|onednn|cblas.
# Sets GEMM_CFLAGS, GEMM_LIBS and sp_gemm, and defines HAVE_DNNL or HAVE_CBLAS.

AC_DEFUN([SP_GEMM_ONEDNN],
[AC_CHECK_HEADER([dnnl.h],
    [sp_save_LIBS=$LIBS
     LIBS="-ldnnl $LIBS"
     AC_MSG_CHECKING([for dnnl_sgemm in -ldnnl])
     AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <dnnl.h>]],
                                     [[return dnnl_sgemm('N', 'N', 0, 0, 0, 0.f, 0, 1, 0, 1, 0.f, 0, 1);]])],
        [GEMM_LIBS=-ldnnl
         sp_gemm=oneDNN
         AC_DEFINE([HAVE_DNNL], [1], [Matrix products come from oneDNN.])
         AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])])
     LIBS=$sp_save_LIBS])])

# Every BLAS packager has another name for it: pkg-config first, then the usual libraries.
AC_DEFUN([SP_GEMM_CBLAS],
[AC_MSG_CHECKING([for cblas_sgemm])
sp_save_LIBS=$LIBS
sp_save_CPPFLAGS=$CPPFLAGS
for sp_blas in openblas cblas blis flexiblas -lopenblas -lcblas '-lcblas -lblas' -lblis; do
    AS_CASE([$sp_blas],
        [-*], [sp_cflags= sp_libs=$sp_blas],
        [$PKG_CONFIG --exists $sp_blas 2>/dev/null || continue
         sp_cflags=`$PKG_CONFIG --cflags $sp_blas`
         sp_libs=`$PKG_CONFIG --libs $sp_blas`])
    CPPFLAGS="$sp_cflags $sp_save_CPPFLAGS"
    LIBS="$sp_libs $sp_save_LIBS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cblas.h>]],
                                    [[float x = 0;
                                      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 1, 1, 1,
                                                  1.f, &x, 1, &x, 1, 0.f, &x, 1);]])],
        [GEMM_CFLAGS=$sp_cflags
         GEMM_LIBS=$sp_libs
         sp_gemm="CBLAS ($sp_libs)"])
    test -z "$sp_gemm" || break
done
CPPFLAGS=$sp_save_CPPFLAGS
LIBS=$sp_save_LIBS
AC_MSG_RESULT([${sp_gemm:-no}])
AS_IF([test -n "$sp_gemm"],
      [AC_DEFINE([HAVE_CBLAS], [1], [Matrix products come from a CBLAS.])])])

AC_DEFUN([SP_GEMM],
[AC_REQUIRE([PKG_PROG_PKG_CONFIG])
AC_ARG_WITH([gemm],
    [AS_HELP_STRING([--with-gemm=auto|onednn|cblas], [matrix products: oneDNN, or any CBLAS @<:@auto@:>@])],
    [], [with_gemm=auto])
sp_gemm=
AS_CASE([$with_gemm],
    [auto], [SP_GEMM_ONEDNN
             AS_IF([test -z "$sp_gemm"], [SP_GEMM_CBLAS])
             AS_IF([test -z "$sp_gemm"],
                   [SP_REQUIRED([A library of matrix products (oneDNN or a CBLAS)],
                                [libdnnl-dev, or libopenblas-dev])])],
    [onednn], [SP_GEMM_ONEDNN
               AS_IF([test -z "$sp_gemm"], [SP_REQUIRED([oneDNN (dnnl.h, -ldnnl)], [libdnnl-dev])])],
    [cblas], [SP_GEMM_CBLAS
              AS_IF([test -z "$sp_gemm"],
                    [SP_REQUIRED([A CBLAS (cblas.h, cblas_sgemm)], [libopenblas-dev])])],
    [AC_MSG_ERROR([--with-gemm=$with_gemm: say auto, onednn or cblas])])
AC_SUBST([with_gemm])
AC_SUBST([GEMM_CFLAGS])
AC_SUBST([GEMM_LIBS])])
