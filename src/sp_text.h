/* Text that files hold, as it may be shown: a terminal obeys nothing in it, and it stays on its line. */
#ifndef SP_TEXT_H
#define SP_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* The longest name that is shown whole, escapes counted. */
#define SP_TEXT_SHOWN 512

/*
 * Writes `text` to out(size) and ends it, cut at a character where it is too long: control characters, marks
 * that turn the direction of writing, and bytes that are no UTF-8 become \xNN, byte by byte. Returns `out`.
 */
const char *sp_text_show(const char *text, char *out, size_t size);

/* "1 stage", "4 stages", "2 micro-batches", "3 processes". */
enum { SP_TEXT_COUNT = 64 };
const char *sp_text_count(long long n, const char *noun, char out[SP_TEXT_COUNT]);
#define SP_COUNT(n, noun) sp_text_count(n, noun, (char[SP_TEXT_COUNT]){0})

/* "0:07", "12:05", and from an hour on "1:00:15"; negative ones and those that are none as 0. */
enum { SP_TEXT_DURATION = 32 };
const char *sp_text_duration(double seconds, char out[SP_TEXT_DURATION]);

/* True if sp_text_show would leave all of it as it is. */
bool sp_text_is_plain(const char *text);

#endif
