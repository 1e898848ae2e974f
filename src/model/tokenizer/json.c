#include "model/tokenizer/json.h"
#include "model/tokenizer/unicode.h"
#include "sp_error.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NESTED = 16 };

int sp_part_refuse(const struct sp_part *p, const char *fmt, ...)
{
    bool named = p->type && *p->type;
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return sp_error(EINVAL, "%s: %s%s%s%s: %s", p->where, p->what, named ? " '" : "",
                    named ? p->type : "", named ? "'" : "", text);
}

static int read_part(const struct sp_part *p, const char *list, const struct sp_part_type *types,
                     void *to, int depth)
{
    struct sp_part part = *p;
    const json_t *parts;
    int err = 0;

    if (!p->json || json_is_null(p->json))
        return 0;
    part.type = json_string_value(json_object_get(p->json, "type"));
    if (!part.type)
        return sp_part_refuse(p, "an object with a \"type\" is wanted");
    if (strcmp(part.type, "Sequence")) {
        while (types->name && strcmp(types->name, part.type))
            types++;
        return types->name ? types->read(&part, to) : sp_part_refuse(&part, "not supported");
    }
    parts = json_object_get(p->json, list);
    if (!json_is_array(parts))
        return sp_part_refuse(&part, "\"%s\" is no list", list);
    if (depth == NESTED)
        return sp_part_refuse(&part, "nested more than %d deep", NESTED);
    for (size_t i = 0; !err && i < json_array_size(parts); i++) {
        part = *p;
        part.json = json_array_get(parts, i);
        err = json_is_null(part.json) ? sp_part_refuse(p, "null in a Sequence")
                                      : read_part(&part, list, types, to, depth + 1);
    }
    return err;
}

int sp_part_read(const struct sp_part *p, const char *list, const struct sp_part_type *types,
                 void *to)
{
    return read_part(p, list, types, to, 0);
}

int sp_word_find(const char *list, const char *word)
{
    size_t n = strlen(word), length;

    for (int i = 0; *list; i++, list += length + strspn(list + length, " ")) {
        length = strcspn(list, " ");
        if (length == n && !memcmp(list, word, n))
            return i;
    }
    return -1;
}

int sp_part_keys(const struct sp_part *p, const char *keys)
{
    json_t *value;
    const char *key;

    json_object_foreach((json_t *)p->json, key, value)
    {
        if (sp_word_find(keys, key) < 0 && strcmp(key, "type"))
            return sp_part_refuse(p, "\"%s\" is not supported", key);
    }
    return 0;
}

/* The value of a key; NULL: absent, or null. */
static const json_t *value_of(const struct sp_part *p, const char *key)
{
    const json_t *v = json_object_get(p->json, key);

    return json_is_null(v) ? NULL : v;
}

int sp_part_bool(const struct sp_part *p, const char *key, bool *out)
{
    const json_t *v = value_of(p, key);

    if (v && !json_is_boolean(v))
        return sp_part_refuse(p, "\"%s\" is neither true nor false", key);
    *out = v ? json_is_true(v) : *out;
    return 0;
}

int sp_part_int(const struct sp_part *p, const char *key, int64_t *out)
{
    const json_t *v = value_of(p, key);

    if (v && !json_is_integer(v))
        return sp_part_refuse(p, "\"%s\" is no whole number", key);
    *out = v ? json_integer_value(v) : *out;
    return 0;
}

int sp_part_text(const struct sp_part *p, const char *key, const char **out, size_t *n)
{
    const json_t *v = value_of(p, key);

    if (v && !json_is_string(v))
        return sp_part_refuse(p, "\"%s\" is no text", key);
    if (v) {
        *out = json_string_value(v);
        *n = json_string_length(v);
    }
    return 0;
}

int sp_part_char(const struct sp_part *p, const char *key, uint32_t *out)
{
    const char *text = NULL;
    size_t n = 0;
    int err = sp_part_text(p, key, &text, &n);

    if (err || !text)
        return err;
    if (!n || (size_t)sp_unicode_next(text, out) != n)
        return sp_part_refuse(p, "\"%s\" is not one character", key);
    return 0;
}

int sp_part_word(const struct sp_part *p, const char *key, const char *words, int *out)
{
    const char *text = NULL;
    size_t n;
    int err = sp_part_text(p, key, &text, &n), found;

    if (err || !text)
        return err;
    found = sp_word_find(words, text);
    if (found < 0)
        return sp_part_refuse(p, "\"%s\" is \"%s\", which is not supported", key, text);
    *out = found;
    return 0;
}

int sp_part_pattern(const struct sp_part *p, const char *key, struct sp_pattern *out)
{
    const json_t *v = json_object_get(p->json, key);
    const json_t *text = json_object_get(v, "String"), *regex = json_object_get(v, "Regex");
    const json_t *given = text ? text : regex;

    if (json_object_size(v) != 1 || !json_is_string(given))
        return sp_part_refuse(p, "\"%s\" is neither {\"String\": ...} nor {\"Regex\": ...}", key);
    *out = (struct sp_pattern){given == regex, json_string_value(given), json_string_length(given)};
    return 0;
}
