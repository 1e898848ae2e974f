/* Names from outside, in documents that must be UTF-8: files, directories and options may be any bytes. */
#ifndef SP_UTF8_H
#define SP_UTF8_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Bytes of the UTF-8 character at `text`; 0: it is none, or one that XML forbids. */
int sp_utf8_length(const char *text);

/* Bytes of the character at the beginning of text[n], n > 0. With *valid false they are no
 * character but could begin one, at least 1, and Unicode has one U+FFFD for them. 0: more bytes
 * may come. */
int sp_utf8_next(const char *text, size_t n, bool *valid);

/* A string of text[n], which ends earlier at a zero byte: each byte that belongs to no character becomes
 * U+FFFD. JSON's null for NULL; NULL without memory. */
json_t *sp_utf8_jsonn(const char *text, size_t n);
json_t *sp_utf8_json(const char *text);

#endif
