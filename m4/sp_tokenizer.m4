# SP_TOKENIZER: what reads tokenizers: PCRE2 for their regular expressions, utf8proc for the classes and normal
# forms of characters. Sets TOKENIZER_CFLAGS, TOKENIZER_LIBS and sp_tokenizer; conditional HAVE_TOKENIZER.

AC_DEFUN([SP_TOKENIZER],
[SP_ARG_GUESS([tokenizer], [reading tokenizer.json, with PCRE2 and utf8proc])
sp_tokenizer=no
AS_IF([test "$with_tokenizer" != no],
    [PKG_CHECK_MODULES([TOKENIZER], [libpcre2-8 >= 10.30 libutf8proc >= 2.1], [sp_tokenizer=yes],
        [SP_ABSENT([tokenizer], [PCRE2 and utf8proc were not found: libpcre2-dev, libutf8proc-dev])])])
AS_IF([test "$sp_tokenizer" = yes], [], [TOKENIZER_CFLAGS= TOKENIZER_LIBS=])
SP_ISYSTEM([TOKENIZER_CFLAGS])
AC_SUBST([TOKENIZER_CFLAGS])
AC_SUBST([TOKENIZER_LIBS])
AM_CONDITIONAL([HAVE_TOKENIZER], [test "$sp_tokenizer" = yes])])
