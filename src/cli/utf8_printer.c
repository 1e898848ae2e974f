#include "cli/print.h"
#include "sp_utf8.h"
#include <string.h>

/* C0 but for tabs and ends of lines, DEL, and C1, of two bytes in UTF-8. */
static bool is_control(const char *at, int n)
{
    unsigned char c = (unsigned char)at[0], next = n > 1 ? (unsigned char)at[1] : 0;

    return (c < 32 && c != '\n' && c != '\t') || c == 127 || (n == 2 && c == 0xc2 && next < 0xa0);
}

/* A character, or as many bytes that are none. */
static void print_character(const struct sp_utf8_printer *p, const char *at, int n, bool valid)
{
    if (!valid)
        fputs("\xef\xbf\xbd", p->to);
    else if (p->plain && is_control(at, n))
        fputc('?', p->to);
    else
        fwrite(at, 1, (size_t)n, p->to);
}

void sp_utf8_print(struct sp_utf8_printer *p, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool valid;
        int length;

        p->waiting[p->n_waiting++] = text[i];
        /* a byte that ends a false beginning may itself begin a character */
        while (p->n_waiting &&
               (length = sp_utf8_next(p->waiting, (size_t)p->n_waiting, &valid)) > 0) {
            print_character(p, p->waiting, length, valid);
            p->n_waiting -= length;
            memmove(p->waiting, p->waiting + length, (size_t)p->n_waiting);
        }
    }
}

void sp_utf8_print_end(struct sp_utf8_printer *p)
{
    if (p->n_waiting)
        print_character(p, p->waiting, p->n_waiting, false);
    p->n_waiting = 0;
}
