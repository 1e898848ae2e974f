/* Reads a machine. The file must have every key of the table, and no other. */
#include "model/config_keys.h"
#include "plan/machine/fields.h"
#include "sp_error.h"
#include "sp_text.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* The value being read, for messages. */
struct reading {
    const char *where;
    const char *path;
};

static int refuse(const struct reading *r, const json_t *v, const char *must)
{
    char text[64];

    return sp_error(EINVAL, "%s: %s: it is %s, it must be %s", r->where, r->path,
                    sp_config_show(v, text), must);
}

/* ---- values: each function reads one into the member at `to` ------------------------------------ */

static int read_text(const struct reading *r, const struct sp_machine_field *f, const json_t *v,
                     void *to)
{
    const char *s = json_string_value(v);

    if (!s || !*s || !sp_text_is_plain(s))
        return refuse(r, v, "a text in one line");
    if (strlen(s) >= f->size)
        return sp_error(EINVAL, "%s: %s: it is longer than %zu bytes", r->where, r->path,
                        f->size - 1);
    memcpy(to, s, strlen(s) + 1);
    return 0;
}

static int read_lines(const struct reading *r, const struct sp_machine_field *f, const json_t *v,
                      void *to)
{
    char *text = to;
    size_t at = 0;

    if (!json_is_array(v))
        return refuse(r, v, "a list of lines");
    if (json_array_size(v) == 0)
        return sp_error(EINVAL, "%s: %s: it must have at least one line", r->where, r->path);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *line = json_string_value(json_array_get(v, i));

        if (!line || !sp_text_is_plain(line))
            return refuse(r, json_array_get(v, i), "lines of text");
        if (at + strlen(line) + 2 > f->size)
            return sp_error(EINVAL, "%s: %s: it is longer than %zu bytes", r->where, r->path,
                            f->size - 2);
        at += (size_t)snprintf(text + at, f->size - at, "%s%s", i ? "\n" : "", line);
    }
    return 0;
}

/* 80e9 is a whole number as well. */
static int read_number(const struct reading *r, struct sp_machine_bounds b, bool whole,
                       const json_t *v, double *x)
{
    char must[64];

    *x = json_number_value(v);
    if (json_is_number(v) && *x >= b.min && *x <= b.max && (!whole || *x == (double)(int64_t)*x))
        return 0;
    snprintf(must, sizeof must, "a %snumber between %g and %g", whole ? "whole " : "", b.min,
             b.max);
    return refuse(r, v, must);
}

static int read_real(const struct reading *r, const struct sp_machine_field *f, const json_t *v,
                     void *to)
{
    return read_number(r, f->bounds, false, v, to);
}

static int read_count(const struct reading *r, const struct sp_machine_field *f, const json_t *v,
                      void *to)
{
    double x;
    int err = read_number(r, f->bounds, true, v, &x);

    if (!err)
        *(int *)to = (int)x;
    return err;
}

static int read_bytes(const struct reading *r, const struct sp_machine_field *f, const json_t *v,
                      void *to)
{
    double x;
    int err = read_number(r, f->bounds, true, v, &x);

    if (!err)
        *(int64_t *)to = json_is_integer(v) ? json_integer_value(v) : (int64_t)x;
    return err;
}

static int read_flag(const struct reading *r, const struct sp_machine_field *f, const json_t *v,
                     void *to)
{
    (void)f;
    if (!json_is_boolean(v))
        return refuse(r, v, "true or false");
    *(bool *)to = json_is_true(v);
    return 0;
}

static int read_point(const struct reading *r, const json_t *v, struct sp_machine_bounds rates,
                      struct sp_curve *c)
{
    const json_t *size = json_array_get(v, 0), *rate = json_array_get(v, 1);
    int err;

    if (json_array_size(v) != 2)
        return sp_error(EINVAL, "%s: %s: it must be a size and a rate", r->where, r->path);
    err = read_number(r, SP_MACHINE_SIZES, false, size, &c->at[c->n].size);
    err = err ? err : read_number(r, rates, false, rate, &c->at[c->n].rate);
    if (!err && c->n && c->at[c->n].size <= c->at[c->n - 1].size)
        return sp_error(EINVAL, "%s: %s: sizes must ascend, %g is not above %g", r->where, r->path,
                        c->at[c->n].size, c->at[c->n - 1].size);
    c->n++;
    return err;
}

/* Refuses a list of no or too many elements. */
static int check_length(const struct reading *r, const json_t *v, const char *of, int most)
{
    return json_array_size(v) >= 1 && json_array_size(v) <= (size_t)most
               ? 0
               : sp_error(EINVAL, "%s: %s: it has %zu %s, it must have 1 to %d", r->where, r->path,
                          json_array_size(v), of, most);
}

static int read_curve(const struct reading *r, const struct sp_machine_field *f, const json_t *v,
                      void *to)
{
    int err = json_is_array(v) ? check_length(r, v, "points", SP_CURVE_POINTS)
                               : refuse(r, v, "a list of [size, rate]");

    for (size_t i = 0; i < json_array_size(v) && !err; i++) {
        char path[128];
        struct reading point = {r->where, path};

        snprintf(path, sizeof path, "%s[%zu]", r->path, i);
        err = read_point(&point, json_array_get(v, i), f->bounds, to);
    }
    return err;
}

static int read_teams(const struct reading *r, const struct sp_machine_field *f, const json_t *v,
                      void *to);

static int (*const read_value[])(const struct reading *, const struct sp_machine_field *,
                                 const json_t *, void *) = {
    [SP_FIELD_TEXT] = read_text,   [SP_FIELD_LINES] = read_lines, [SP_FIELD_REAL] = read_real,
    [SP_FIELD_COUNT] = read_count, [SP_FIELD_BYTES] = read_bytes, [SP_FIELD_FLAG] = read_flag,
    [SP_FIELD_CURVE] = read_curve, [SP_FIELD_TEAMS] = read_teams};

/* ---- keys --------------------------------------------------------------------------------- */

/* An object to read: the file, or one of device.teams, which has the keys of the device's
 * figures. */
struct part {
    const char *where;
    const json_t *object;
    size_t skip; /* bytes to skip in paths of fields: "device." for one of device.teams */
};

static bool is_of(const struct part *p, const struct sp_machine_field *f)
{
    return !p->skip || sp_machine_is_rate(f);
}

/* True if it is the path of a field, or of an object with fields. */
static bool is_known(const struct part *p, const char *path, bool *is_object)
{
    for (const struct sp_machine_field *f = sp_machine_fields; f->path; f++) {
        if (!is_of(p, f) || !sp_machine_within(path, f->path + p->skip))
            continue;
        *is_object = strcmp(path, f->path + p->skip) != 0;
        return true;
    }
    return false;
}

static int check_keys(const struct part *p, const char *prefix, const json_t *object)
{
    const char *key;
    json_t *v;
    int err = 0;

    json_object_foreach((json_t *)object, key, v)
    {
        char path[128];
        struct reading r = {p->where, path};
        bool is_object;

        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key);
        if (strchr(key, '.') || !is_known(p, path, &is_object))
            err = sp_error(EINVAL, "%s: %.60s: there is no such key", p->where, path);
        else if (is_object && json_is_object(v))
            err = check_keys(p, path, v);
        else if (is_object && !(json_is_null(v) && sp_machine_optional(path)))
            err = refuse(&r, v, sp_machine_optional(path) ? "an object or null" : "an object");
        if (err)
            break;
    }
    return err;
}

/* The value of a path; if an object on the way is null, that null; NULL if it is missing. */
static const json_t *find(const json_t *root, const char *path)
{
    while (*path && json_is_object(root)) {
        size_t n = strcspn(path, ".");
        char key[32];

        snprintf(key, sizeof key, "%.*s", (int)n, path);
        root = json_object_get(root, key);
        path += n + (path[n] == '.');
    }
    return root;
}

/* Reads all fields of the part: `to` is the structure, or the figures of one of device.teams. */
static int read_part(const struct part *p, char *to)
{
    const size_t first = p->skip ? offsetof(struct sp_machine, rates) : 0;
    int err = check_keys(p, "", p->object);

    for (const struct sp_machine_field *f = sp_machine_fields; f->path && !err; f++) {
        struct reading r = {.where = p->where};
        const char *object;
        const json_t *v;

        if (!is_of(p, f))
            continue;
        r.path = f->path + p->skip;
        v = find(p->object, r.path);
        object = sp_machine_optional(r.path);
        if (v && !(object && json_is_null(find(p->object, object))))
            err = read_value[f->kind](&r, f, v, to + f->at - first);
        else if (!v && (!f->optional || (p->skip && f->kind == SP_FIELD_COUNT)))
            err = sp_error(EINVAL, "%s: %s: it is missing", p->where, r.path);
    }
    return err;
}

/* ---- devices of other numbers of threads ---------------------------------------------------- */

static int check_team(const char *where, const struct sp_machine *m, int i)
{
    int threads = m->team[i].threads;

    if (i > 0 && threads <= m->team[i - 1].threads)
        return sp_error(EINVAL, "%s: threads: they must ascend, %d is not above %d", where, threads,
                        m->team[i - 1].threads);
    if (threads == m->rates.threads)
        return sp_error(EINVAL, "%s: threads: the figures of %d are the device's own", where,
                        threads);
    return 0;
}

static int read_teams(const struct reading *r, const struct sp_machine_field *f, const json_t *v,
                      void *to)
{
    struct sp_machine *m = (struct sp_machine *)((char *)to - f->at);
    int err = json_is_array(v) ? check_length(r, v, "objects", SP_MACHINE_TEAMS)
                               : refuse(r, v, "a list of objects");

    if (!err && !m->rates.threads)
        err = sp_error(EINVAL, "%s: %s: device.threads is missing", r->where, r->path);
    for (size_t i = 0; i < json_array_size(v) && !err; i++) {
        char where[256];
        const struct part team = {where, json_array_get(v, i), strlen("device.")};

        snprintf(where, sizeof where, "%.128s: %s[%zu]", r->where, r->path, i);
        err = json_is_object(team.object) ? read_part(&team, (char *)&m->team[i])
                                          : sp_error(EINVAL, "%s: it must be an object", where);
        err = err ? err : check_team(where, m, (int)i);
        m->teams++;
    }
    return err;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* A team has its own cores, and a machine may have at most as many one-thread devices as fields.c
 * allows. */
static int check_cores(const char *where, const struct sp_machine *m)
{
    const int64_t most_cores = 65536;
    int most = m->teams ? m->team[m->teams - 1].threads : 0;
    int64_t cores = (int64_t)m->devices_per_node * m->rates.threads;

    if (most > cores)
        return sp_error(EINVAL,
                        "%s: device.teams: a device of %d threads, a node has %" PRId64 " cores",
                        where, most, cores);
    if (cores > most_cores)
        return sp_error(EINVAL,
                        "%s: device.threads: a node of %d devices of %d threads has more than "
                        "%" PRId64 " cores",
                        where, m->devices_per_node, m->rates.threads, most_cores);
    return 0;
}

static int check_sharing(const char *where, const struct sp_machine *m)
{
    const struct {
        const char *path;
        int by;
    } shared[] = {{"node.copy", m->copy.shared_by},
                  {"node.link", m->node.shared_by},
                  {"network", m->network.shared_by}};

    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (shared[i].by > m->devices_per_node)
            return sp_error(EINVAL, "%s: %s.shared_by: %d devices share it, a node has %d", where,
                            shared[i].path, shared[i].by, m->devices_per_node);
    return 0;
}

/* Reads a machine whose nodes are alike. */
static int read_machine(const char *where, const json_t *root, struct sp_machine *m)
{
    struct sp_machine read = {.copy.shared_by = 0};
    const struct part file = {.where = where, .object = root};
    int err = json_is_object(root) ? read_part(&file, (char *)&read)
                                   : sp_error(EINVAL, "%s: it is no JSON object", where);

    err = err ? err : check_sharing(where, &read);
    err = err ? err : check_cores(where, &read);
    if (!err)
        *m = read;
    return err;
}

/* ---- nodes of several kinds ----------------------------------------------------------------- */

/* Reads one entry of "nodes": a count, and a machine or the name of one. */
static int read_nodes(const char *where, const json_t *v, struct sp_nodes *nodes)
{
    const json_t *count = json_object_get(v, "count"), *machine = json_object_get(v, "machine");
    const struct sp_machine_field counts = {.bounds = {1, SP_MACHINE_NODES}};
    const struct reading r = {where, "count"};
    static struct sp_machine read;
    int err;

    if (!count || !machine || json_object_size(v) != 2)
        return sp_error(EINVAL, "%s: it must be an object of \"count\" and \"machine\"", where);
    err = read_count(&r, &counts, count, &nodes->count);
    if (err)
        return err;
    if (json_is_string(machine))
        err = sp_machine_load(json_string_value(machine), &read);
    else
        err = read_machine(where, machine, &read);
    if (!err && read.kinds)
        err = sp_error(EINVAL, "%s: %s has nodes of several kinds itself", where, read.name);
    return err ? err : sp_machine_keep(&read, NULL, 0, nodes);
}

static int read_kinds(const char *where, const json_t *root, struct sp_machine *m)
{
    const json_t *name = json_object_get(root, "name"), *list = json_object_get(root, "nodes");
    const struct reading r = {where, "name"};
    const struct sp_machine_field names = {.size = sizeof m->name};
    struct sp_nodes kind[SP_MACHINE_KINDS];
    char text[sizeof m->name];
    int err;

    if (!name || json_object_size(root) != 2)
        return sp_error(EINVAL, "%s: beside \"nodes\" it must have a \"name\", and nothing else",
                        where);
    if (!json_is_array(list) || json_array_size(list) < 1 ||
        json_array_size(list) > SP_MACHINE_KINDS)
        return sp_error(EINVAL, "%s: nodes: it must be a list of 1 to %d kinds", where,
                        SP_MACHINE_KINDS);
    err = read_text(&r, &names, name, text);
    for (size_t i = 0; i < json_array_size(list) && !err; i++) {
        char of[192];

        snprintf(of, sizeof of, "%.128s: nodes[%zu]", where, i);
        err = read_nodes(of, json_array_get(list, i), &kind[i]);
    }
    return err ? err : sp_machine_join(text, kind, (int)json_array_size(list), m);
}

int sp_machine_parse(const char *where, const char *json, struct sp_machine *m)
{
    json_error_t error;
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &error);
    int err;

    if (!root)
        return sp_error(EINVAL, "%s: line %d: %s", where, error.line, error.text);
    err = json_is_array(json_object_get(root, "nodes")) ? read_kinds(where, root, m)
                                                        : read_machine(where, root, m);
    json_decref(root);
    return err;
}
