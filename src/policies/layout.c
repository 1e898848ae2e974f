#include "policies/registry.h"
#include <limits.h>
#include <stdio.h>
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
            if (n > 0)
                snprintf(out, n, "%.*s", (int)(item - len - 1), at + len + 1);
            return 1;
        }
        at += item + (at[item] == ',');
    }
    return 0;
}

bool sp_list_has(const char *list, const char *word, size_t length)
{
    while (list && *list) {
        size_t item = strcspn(list, ",");

        if (item == length && !strncmp(list, word, length))
            return true;
        list += item + (list[item] == ',');
    }
    return false;
}

int sp_layout_flag(const struct sp_layout *lay, const char *flag)
{
    return sp_list_has(lay->options, flag, strlen(flag));
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
