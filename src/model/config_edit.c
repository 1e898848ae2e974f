#include "model/config_edit.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a text that was read once ------------------------------------------------------------ */

struct cursor {
    const char *at, *end;
};

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && memchr(" \t\r\n", *c->at, 4))
        c->at++;
}

static void skip_string(struct cursor *c)
{
    c->at++;
    while (c->at < c->end && *c->at != '"')
        c->at += *c->at == '\\' && c->at + 1 < c->end ? 2 : 1;
    c->at += c->at < c->end;
}

/* To the comma or the bracket after a value. */
static void skip_value(struct cursor *c)
{
    int depth = 0;

    while (c->at < c->end) {
        char x = *c->at;

        if (!depth && (x == ',' || x == '}'))
            return;
        if (x == '"') {
            skip_string(c);
            continue;
        }
        depth += (x == '{' || x == '[') - (x == '}' || x == ']');
        c->at++;
    }
}

/* The place of a member: the blanks before its key, the key, the value. */
struct member {
    const char *blanks, *key, *key_end, *value, *value_end;
};

/* The next member after the bracket or comma that the cursor is at. False: there is none. */
static bool next_member(struct cursor *c, struct member *m)
{
    if (c->at == c->end || (*c->at != '{' && *c->at != ','))
        return false;
    m->blanks = ++c->at;
    skip_blanks(c);
    m->key = c->at;
    if (c->at == c->end || *c->at != '"')
        return false;
    skip_string(c);
    m->key_end = c->at;
    skip_blanks(c);
    if (c->at == c->end || *c->at != ':')
        return false;
    c->at++;
    skip_blanks(c);
    m->value = c->at;
    skip_value(c);
    m->value_end = c->at;
    while (m->value_end > m->value && memchr(" \t\r\n", m->value_end[-1], 4))
        m->value_end--;
    return m->value_end > m->value;
}

/* ---- edits -------------------------------------------------------------------------------- */

/* True if text[begin .. end) and `json` are the same value. */
static bool same_value(const char *begin, const char *end, const char *json)
{
    json_t *a = json_loadb(begin, (size_t)(end - begin), JSON_DECODE_ANY, NULL);
    json_t *b = json_loads(json, JSON_DECODE_ANY, NULL);
    bool same = a && json_equal(a, b);

    json_decref(a);
    json_decref(b);
    return same;
}

/* True if a key, which may have escapes, is `name`. */
static bool is_key(const struct member *m, const char *name)
{
    json_t *key =
        json_loadb(m->key, (size_t)(m->key_end - m->key), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    bool same = json_is_string(key) && json_string_length(key) == strlen(name) &&
                !strcmp(json_string_value(key), name);

    json_decref(key);
    return same;
}

static const struct sp_config_edit *edit_of(const struct sp_config_edit *edits,
                                            const struct member *m)
{
    for (; edits->key; edits++)
        if (is_key(m, edits->key))
            return edits;
    return NULL;
}

static void put(FILE *f, const char *begin, const char *end)
{
    fwrite(begin, 1, (size_t)(end - begin), f);
}

/* Writes the object with its edits. False: it is no object with members. */
static bool write_edited(struct cursor *c, const struct sp_config_edit *edits, FILE *f)
{
    const char *done = c->at;
    struct member m, last = {0};
    unsigned found = 0;

    skip_blanks(c);
    if (c->at == c->end || *c->at != '{')
        return false;
    while (next_member(c, &m)) {
        const struct sp_config_edit *e = edit_of(edits, &m);

        last = m;
        if (!e)
            continue;
        found |= 1u << (e - edits);
        if (same_value(m.value, m.value_end, e->value))
            continue;
        put(f, done, m.value);
        fputs(e->value, f);
        done = m.value_end;
    }
    if (!last.key || c->at == c->end || *c->at != '}')
        return false;
    put(f, done, last.value_end);
    for (int i = 0; edits[i].key; i++)
        if (edits[i].wanted && !(found & 1u << i)) {
            putc(',', f);
            put(f, last.blanks, last.key);
            fprintf(f, "\"%s\": %s", edits[i].key, edits[i].value);
        }
    put(f, last.value_end, c->end);
    return true;
}

int sp_config_edit(const char *text, size_t len, const struct sp_config_edit *edits, char **out,
                   size_t *out_len)
{
    struct cursor c = {text, text + len};
    char *edited = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&edited, &n);
    bool is_object, failed;

    if (!f)
        return -ENOMEM;
    is_object = write_edited(&c, edits, f);
    failed = ferror(f);
    if (fclose(f) || failed || !is_object) {
        free(edited);
        return is_object ? -ENOMEM : -EINVAL;
    }
    *out = edited;
    *out_len = n;
    return 0;
}
