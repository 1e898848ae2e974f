# How a dependency is found, and what happens when it is not.

# SP_ISYSTEM(VARIABLE): other people's headers are not ours to warn about.
AC_DEFUN([SP_ISYSTEM],
[$1=`AS_ECHO(["$$1"]) | sed 's/^-I/-isystem /;s/ -I/ -isystem /g'`])

# SP_RPATH(VARIABLE, PACKAGE): appends to VARIABLE the libtool flag by which a program finds the
# libraries of a pkg-config package that lives outside the system's own directories.
AC_DEFUN([SP_RPATH],
[AC_REQUIRE([PKG_PROG_PKG_CONFIG])
sp_libdir=`$PKG_CONFIG --variable=libdir $2 2>/dev/null`
AS_CASE([$sp_libdir],
        [''|/lib|/lib/*|/lib64|/usr/lib|/usr/lib/*|/usr/lib64|/usr/lib64/*], [],
        [$1="$$1 -R$sp_libdir"])])

# SP_ARG_GUESS(NAME, WHAT): --with-NAME=guess|yes|no, the answer in with_NAME.
AC_DEFUN([SP_ARG_GUESS],
[AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1=guess|yes|no], [$2 @<:@guess@:>@])], [],
             [with_$1=guess])
AS_CASE([$with_$1], [guess|yes|no], [],
        [AC_MSG_ERROR([--with-$1=$with_$1: say guess, yes or no])])])

# SP_ABSENT(NAME, WHY): an optional part that is not there: an error only if it was asked for.
# The summary tells the reason, which is left in sp_NAME.
AC_DEFUN([SP_ABSENT],
[AS_IF([test "$with_$1" = yes], [AC_MSG_ERROR([--with-$1 was asked for, but $2])])
sp_$1="no ($2)"])

# SP_REQUIRED(WHAT, PACKAGES): a part without which there is nothing to build.
AC_DEFUN([SP_REQUIRED],
[AC_MSG_ERROR([$1 was not found.
  Debian, Ubuntu: $2
  Elsewhere set PKG_CONFIG_PATH, CPPFLAGS and LDFLAGS to where it is; ./quickstart help says more.])])
