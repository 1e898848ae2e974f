/* Writes a machine as a file: one key a line, lists of numbers in one line. */
#include "plan/machine/fields.h"
#include "sp_error.h"
#include "sp_utf8.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The object that is null because the machine does not have it, if this path is in one; or NULL. */
static const char *left_out(const struct sp_machine *m, const char *path)
{
    const char *object = sp_machine_optional(path);
    bool has = object && (!strcmp(object, "node.copy") ? m->copy.to_host : m->disk.write) > 0;

    return has ? NULL : object;
}

/* ---- values ------------------------------------------------------------------------------- */

static json_t *lines(const char *text)
{
    json_t *list = json_array();

    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        json_array_append_new(list, sp_utf8_jsonn(text, n));
    }
    return list;
}

static json_t *curve(const struct sp_curve *c)
{
    json_t *list = json_array();

    for (int i = 0; i < c->n; i++)
        json_array_append_new(list, json_pack("[f,f]", c->at[i].size, c->at[i].rate));
    return list;
}

static json_t *teams(const struct sp_machine *m);

static json_t *value(const struct sp_machine_field *f, const void *at)
{
    switch (f->kind) {
    case SP_FIELD_TEXT:
        return sp_utf8_json(at);
    case SP_FIELD_LINES:
        return lines(at);
    case SP_FIELD_REAL:
        return json_real(*(const double *)at);
    case SP_FIELD_COUNT:
        return json_integer(*(const int *)at);
    case SP_FIELD_BYTES:
        return json_integer(*(const int64_t *)at);
    case SP_FIELD_FLAG:
        return json_boolean(*(const bool *)at);
    case SP_FIELD_TEAMS:
        return teams((const struct sp_machine *)((const char *)at - f->at));
    case SP_FIELD_CURVE:
        break;
    }
    return curve(at);
}

/* Sets the value of a path, making the objects on the way to it. */
static int put(json_t *root, const char *path, json_t *v)
{
    const char *dot;

    while ((dot = strchr(path, '.'))) {
        char key[32];
        json_t *next;

        snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
        next = json_object_get(root, key);
        if (!next && !json_object_set_new(root, key, json_object()))
            next = json_object_get(root, key);
        root = next;
        path = dot + 1;
    }
    return json_object_set_new(root, path, v);
}

/* True if a field holds nothing. It is a rate, a count, a curve, which begins with its number of
 * points, or teams. */
static bool is_unknown(const struct sp_machine_field *f, const void *at)
{
    if (f->kind == SP_FIELD_TEAMS)
        at = &((const struct sp_machine *)((const char *)at - f->at))->teams;
    if (f->kind == SP_FIELD_REAL)
        return f->optional && *(const double *)at <= 0;
    return f->optional && *(const int *)at == 0;
}

/* The figures for other numbers of threads, under the keys of the device. */
static json_t *teams(const struct sp_machine *m)
{
    json_t *list = json_array();

    for (int i = 0; i < m->teams; i++) {
        json_t *team = json_object();

        for (const struct sp_machine_field *f = sp_machine_fields; f->path; f++) {
            const char *at = (const char *)&m->team[i] + f->at - offsetof(struct sp_machine, rates);

            if (sp_machine_is_rate(f) && !is_unknown(f, at))
                put(team, f->path + strlen("device."), value(f, at));
        }
        json_array_append_new(list, team);
    }
    return list;
}

static json_t *tree(const struct sp_machine *m);

/* A machine of several kinds of nodes has only a name and "nodes". */
static json_t *kinds(const struct sp_machine *m)
{
    json_t *list = json_array();

    for (int k = 0; k < m->kinds; k++)
        json_array_append_new(list, json_pack("{s:i,s:o}", "count", m->kind[k].count, "machine",
                                              tree(m->kind[k].machine)));
    return json_pack("{s:o,s:o}", "name", sp_utf8_json(m->name), "nodes", list);
}

static json_t *tree(const struct sp_machine *m)
{
    json_t *root = m->kinds ? kinds(m) : json_object();
    int err = 0;

    if (m->kinds)
        return root;
    for (const struct sp_machine_field *f = sp_machine_fields; f->path && !err; f++) {
        const char *object = left_out(m, f->path);

        if (object)
            err = put(root, object, json_null());
        else if (!is_unknown(f, (const char *)m + f->at))
            err = put(root, f->path, value(f, (const char *)m + f->at));
    }
    if (!err)
        return root;
    json_decref(root);
    return NULL;
}

/* ---- text --------------------------------------------------------------------------------- */

/* The digits that make a number read back exactly. */
static int digits_of(double x)
{
    char text[64];

    for (int n = 4; n < 17; n++) {
        snprintf(text, sizeof text, "%.*g", n, x);
        if (strtod(text, NULL) == x) /* exactly */
            return n;
    }
    return 17;
}

static void print(FILE *f, const json_t *v, int indent);

static void print_members(FILE *f, const json_t *v, int indent)
{
    const char *key, *between = "{";
    json_t *member;

    json_object_foreach((json_t *)v, key, member)
    {
        fprintf(f, "%s\n%*s\"%s\": ", between, indent + 4, "", key);
        print(f, member, indent + 4);
        between = ",";
    }
    fprintf(f, "\n%*s}", indent, "");
}

/* Writes points in one line; texts and objects one a line. */
static void print_list(FILE *f, const json_t *v, int indent)
{
    bool text = !json_is_array(json_array_get(v, 0)) && !json_is_number(json_array_get(v, 0));

    fputc('[', f);
    for (size_t i = 0; i < json_array_size(v); i++) {
        fputs(i && !text ? ", " : i ? "," : "", f);
        if (text)
            fprintf(f, "\n%*s", indent + 4, "");
        print(f, json_array_get(v, i), indent + 4);
    }
    if (text)
        fprintf(f, "\n%*s", indent, "");
    fputc(']', f);
}

static void print(FILE *f, const json_t *v, int indent)
{
    if (json_is_object(v))
        print_members(f, v, indent);
    else if (json_is_array(v))
        print_list(f, v, indent);
    else if (json_is_real(v))
        fprintf(f, "%.*g", digits_of(json_real_value(v)), json_real_value(v));
    else
        json_dumpf(v, f, JSON_ENCODE_ANY);
}

char *sp_machine_text(const struct sp_machine *m)
{
    json_t *root = tree(m);
    char *text = NULL;
    size_t n;
    FILE *f = root ? open_memstream(&text, &n) : NULL;

    if (f) {
        print(f, root, 0);
        fputc('\n', f);
    }
    json_decref(root);
    if (f && !fclose(f))
        return text;
    free(text);
    sp_error(ENOMEM, "machine %s: no memory to write it", m->name);
    return NULL;
}
