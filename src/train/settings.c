#define _GNU_SOURCE /* asprintf */
#include "train/settings.h"
#include "sp_error.h"
#include "sp_utf8.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line is one setting, so a newline within it becomes "\\n" and a backslash two. NULL without
 * memory. */
static char *escaped(const char *value)
{
    char *text = malloc(2 * strlen(value) + 1), *to = text;

    for (; text && *value; value++) {
        if (*value == '\n' || *value == '\\')
            *to++ = '\\';
        *to++ = *value == '\n' ? 'n' : *value;
    }
    if (text)
        *to = '\0';
    return text;
}

/* The value as it was given, from the first n letters of a line's value. NULL without memory. */
static char *unescaped(const char *value, int n)
{
    char *text = malloc((size_t)n + 1), *to = text;

    for (int i = 0; text && i < n; i++) {
        bool escape = value[i] == '\\' && i + 1 < n;

        i += escape;
        *to++ = escape && value[i] == 'n' ? '\n' : value[i];
    }
    if (text)
        *to = '\0';
    return text;
}

char *sp_settings_add(char *text, const char *name, const char *format, ...)
{
    char *given = NULL, *value, *longer = NULL;
    va_list ap;
    int n;

    va_start(ap, format);
    n = vasprintf(&given, format, ap);
    va_end(ap);
    if (n < 0)
        return text;
    value = escaped(given);
    if (!value || asprintf(&longer, "%s%s=%s\n", text ? text : "", name, value) < 0)
        longer = text;
    else
        free(text);
    free(value);
    free(given);
    return longer;
}

/* A line: the name from `at`, the value after its '='. */
struct line {
    const char *name, *value;
    int name_length, value_length;
};

/* Reads the line at *at, which moves on to the next; false at the end. */
static bool next(const char **at, struct line *l)
{
    if (!**at)
        return false;
    l->name = *at;
    l->name_length = (int)strcspn(*at, "=\n");
    l->value = *at + l->name_length + ((*at)[l->name_length] == '=');
    l->value_length = (int)strcspn(l->value, "\n");
    *at = l->value + l->value_length;
    *at += **at == '\n';
    return true;
}

static bool find(const char *text, const char *name, int length, struct line *l)
{
    while (next(&text, l))
        if (l->name_length == length && !strncmp(l->name, name, (size_t)length))
            return true;
    return false;
}

static bool same(const char *a, int n, const char *b, int m)
{
    return n == m && !strncmp(a, b, (size_t)n);
}

int sp_settings_same(const char *mine, const char *root)
{
    struct line l, r;

    for (const char *at = mine; next(&at, &l);) {
        if (!find(root, l.name, l.name_length, &r))
            return sp_error(EINVAL,
                            "%.*s: rank 0 has no such setting: start the same program everywhere",
                            l.name_length, l.name);
        if (!same(l.value, l.value_length, r.value, r.value_length))
            return sp_error(
                EINVAL, "%.*s is %.*s here and %.*s on rank 0: give all processes the same",
                l.name_length, l.name, l.value_length ? l.value_length : 9,
                l.value_length ? l.value : "not given", r.value_length ? r.value_length : 9,
                r.value_length ? r.value : "not given");
    }
    return 0;
}

json_t *sp_settings_json(const char *text)
{
    json_t *object = json_object();
    struct line l;

    while (object && next(&text, &l)) {
        char *name = strndup(l.name, (size_t)l.name_length);
        char *given = unescaped(l.value, l.value_length);
        json_t *value = given ? sp_utf8_json(given) : NULL;

        if (name && value)
            json_object_set(object, name, value);
        json_decref(value);
        free(given);
        free(name);
    }
    return object;
}

int sp_settings_changes(const char *text, const json_t *saved, sp_setting_counts *counts, char *out,
                        size_t n)
{
    size_t used = 0;
    int changes = 0;
    struct line l;

    out[0] = '\0';
    for (const char *at = text; next(&at, &l);) {
        const char *was;
        char name[64], *is;
        bool alike;

        snprintf(name, sizeof name, "%.*s", l.name_length, l.name);
        was = json_string_value(json_object_get(saved, name));
        if (!was || !counts(name))
            continue;
        is = unescaped(l.value, l.value_length);
        alike = is && !strcmp(is, was);
        free(is);
        if (alike)
            continue;
        if (used < n)
            used +=
                (size_t)snprintf(out + used, n - used, "%s%s %.*s (was %s)", changes ? ", " : "",
                                 name, l.value_length ? l.value_length : 9,
                                 l.value_length ? l.value : "not given", *was ? was : "not given");
        changes++;
    }
    return changes;
}
