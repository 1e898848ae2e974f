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

/* True if sp_text_show would leave all of it as it is. */
bool sp_text_is_plain(const char *text);

#endif
