/* Rates of a machine, and loading by name; the files of the named ones are in the program. */
#include "plan/machine/machine.h"
#include "model/shape.h"
#include "sp_error.h"
#include "sp_suggest.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* { name, text of its file } of each file in named/. */
static const struct named {
    const char *name, *json;
} named[] = {
#include "src/plan/machine/named.inc"
};
enum { NAMED = sizeof named / sizeof *named };

const char *sp_machine_name_at(int i)
{
    return i >= 0 && i < NAMED ? named[i].name : NULL;
}

int sp_machine_head_rows(const struct sp_machine *m, const struct sp_model *model)
{
    return !m || sp_machine_is_cpu(m) ? 0 : sp_head_rows_of_gpu(model);
}

void sp_machine_check_dtype(const struct sp_machine *m, enum sp_dtype dtype)
{
    if (dtype == SP_FP8 && !m->rates.matmul[SP_FP8].n)
        sp_warn("machine %s: it has no rates of products in fp8, those of bf16 are taken", m->name);
}

double sp_curve_rate(const struct sp_curve *c, double size)
{
    int k = 1;
    double part;

    if (size <= c->at[0].size)
        return c->at[0].rate;
    while (k < c->n && c->at[k].size < size)
        k++;
    if (k == c->n)
        return c->at[k - 1].rate;
    part = log(size / c->at[k - 1].size) / log(c->at[k].size / c->at[k - 1].size);
    return c->at[k - 1].rate * pow(c->at[k].rate / c->at[k - 1].rate, part);
}

double sp_curve_s(const struct sp_curve *c, double size)
{
    return size > 0 ? size / sp_curve_rate(c, size) : 0;
}

double sp_link_s(const struct sp_link *l, double bytes)
{
    return l->latency_s + bytes / l->bandwidth;
}

/* ---- loading ------------------------------------------------------------------------------ */

static int refuse_name(const char *name)
{
    struct sp_suggestion suggestion = {.typed = name};
    char names[512], meant[128];
    int at = 0;

    for (int i = 0; i < NAMED && at < (int)sizeof names; i++) {
        at += snprintf(names + at, sizeof names - (size_t)at, "%s%s", i ? " " : "", named[i].name);
        sp_suggest(&suggestion, named[i].name, (int)strlen(named[i].name));
    }
    sp_suggest_text(&suggestion, "", meant, sizeof meant);
    return sp_error(
        EINVAL, "there is no machine '%s'%s %sive one of %s, or a file whose name ends in .json",
        name, *meant ? meant : ";", *meant ? "G" : "g", names);
}

static bool is_file(const char *name)
{
    size_t n = strlen(name);

    return strchr(name, '/') || (n > 5 && !strcmp(name + n - 5, ".json"));
}

/* Reads a whole file; the caller frees *text. A machine's file is short: longer ones are
 * refused. */
static int read_all(const char *path, char **text)
{
    enum { MOST = 1 << 20 };
    FILE *f = fopen(path, "rb");
    int err = f ? 0 : errno;
    size_t n = 0;

    *text = calloc(MOST + 1, 1);
    SP_NEED(*text, "machine %s: no memory to read it", path);
    if (f) {
        n = fread(*text, 1, MOST, f);
        err = ferror(f) ? errno : 0;
        fclose(f);
    }
    if (!err && n < MOST && strlen(*text) == n)
        return 0;
    free(*text);
    return err ? sp_error(err, "machine %s: %s", path, strerror(err))
               : sp_error(EINVAL, "machine %s: it is no text of at most %d bytes", path, MOST - 1);
}

/* Finds the ":N" at the end of a part of a list; returns the part's end if there is none. */
static size_t name_of(const char *part, size_t n)
{
    size_t at = n;

    while (at > 0 && part[at - 1] >= '0' && part[at - 1] <= '9')
        at--;
    return at > 0 && at < n && part[at - 1] == ':' ? at - 1 : n;
}

static bool is_list(const char *name)
{
    size_t n = strlen(name);

    return (strchr(name, ',') || name_of(name, n) < n) && access(name, R_OK);
}

/* Loads the nodes of one kind from "NAME[:N]". */
static int load_part(const char *part, size_t n, struct sp_nodes *nodes)
{
    static struct sp_machine machine;
    size_t end = name_of(part, n);
    char *name = strndup(part, end);
    int err;

    if (!name)
        return sp_error(ENOMEM, "no memory for a machine");
    nodes->count = end < n ? (int)strtol(part + end + 1, NULL, 10) : 1;
    if (end < n && (n - end > 5 || nodes->count < 1 || nodes->count > SP_MACHINE_NODES))
        err = sp_error(EINVAL, "machine %.*s: it must have 1 to %d nodes", (int)n, part,
                       SP_MACHINE_NODES);
    else if (!*name)
        err = sp_error(EINVAL, "a list of machines wants a name before each ':' and ','");
    else
        err = sp_machine_load(name, &machine);
    if (!err && machine.kinds)
        err = sp_error(EINVAL, "machine %s: it has nodes of several kinds itself", name);
    err = err ? err : sp_machine_keep(&machine, part, end, nodes);
    free(name);
    return err;
}

static int load_list(const char *list, struct sp_machine *m)
{
    struct sp_nodes kind[SP_MACHINE_KINDS];
    int n = 0, err = 0;

    for (const char *at = list; at && !err; n++) {
        size_t length = strcspn(at, ",");

        if (n == SP_MACHINE_KINDS)
            return sp_error(EINVAL, "machine %s: there are at most %d kinds of nodes", list,
                            SP_MACHINE_KINDS);
        err = load_part(at, length, &kind[n]);
        at = at[length] ? at + length + 1 : NULL;
    }
    return err ? err : sp_machine_join(list, kind, n, m);
}

int sp_machine_load(const char *name, struct sp_machine *m)
{
    char where[128], *text = NULL;
    int err;

    for (int i = 0; i < NAMED; i++)
        if (!strcmp(name, named[i].name))
            return sp_machine_parse(name, named[i].json, m);
    if (is_list(name))
        return load_list(name, m);
    if (!is_file(name))
        return refuse_name(name);
    err = read_all(name, &text);
    if (err)
        return err;
    snprintf(where, sizeof where, "machine %.100s", name);
    err = sp_machine_parse(where, text, m);
    free(text);
    return err;
}
