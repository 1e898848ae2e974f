#include "starpipe/schedule.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>

int sp_layout_option(const struct sp_layout *lay, const char *key, char *out, size_t n)
{
    size_t len = strlen(key);
    const char *at = lay->options ? lay->options : "";

    while (*at) {
        size_t item = strcspn(at, ",");

        if (item > len && at[len] == '=' && !strncmp(at, key, len)) {
            size_t value = item - len - 1;

            if (n == 0)
                return 1;
            if (value > n - 1)
                value = n - 1;
            memcpy(out, at + len + 1, value);
            out[value] = 0;
            return 1;
        }
        at += item;
        if (*at == ',')
            at++;
    }
    return 0;
}

int sp_layout_flag(const struct sp_layout *lay, const char *flag)
{
    size_t len = strlen(flag);

    for (const char *at = lay->options ? lay->options : ""; *at;) {
        size_t item = strcspn(at, ",");

        if (item == len && !strncmp(at, flag, len))
            return 1;
        at += item + (at[item] == ',');
    }
    return 0;
}

int sp_layout_option_int(const struct sp_layout *lay, const char *key, int fallback, int *ok)
{
    char text[128], *end;
    long v;

    if (!sp_layout_option(lay, key, text, sizeof text))
        return fallback;
    errno = 0;
    v = strtol(text, &end, 10);
    if (end == text || *end || errno || v < INT_MIN || v > INT_MAX) {
        *ok = 0;
        return fallback;
    }
    return (int)v;
}
