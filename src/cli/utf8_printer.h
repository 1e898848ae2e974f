/* Text that a model says, printed as it comes, a few bytes at a time. */
#ifndef SP_UTF8_PRINTER_H
#define SP_UTF8_PRINTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct sp_utf8_printer {
    FILE *to;
    bool plain; /* control characters are shown as '?': a terminal obeys nothing in the text */
    char waiting[4];
    int n_waiting; /* bytes of a character that is not whole yet */
};

/* Prints the characters that are whole, and for bytes that belong to none U+FFFD. */
void sp_utf8_print(struct sp_utf8_printer *p, const char *text, size_t n);
/* There is no more: what waits is no character. */
void sp_utf8_print_end(struct sp_utf8_printer *p);

#endif
