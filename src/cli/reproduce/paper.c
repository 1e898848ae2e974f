#include "cli/reproduce/paper.h"
#include "sp_error.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* { name, text } of all of published/. */
static const struct published {
    const char *name, *json;
} published[] = {
#include "src/cli/reproduce/published.inc"
};
enum { PUBLISHED = sizeof published / sizeof *published };

/* ---- cells */

const char *sp_cell_text(const struct sp_cell *cell, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(cell->config, key));

    return text ? text : otherwise;
}

int sp_cell_int(const struct sp_cell *cell, const char *key, int otherwise)
{
    const json_t *value = json_object_get(cell->config, key);

    return json_is_number(value) ? (int)json_number_value(value) : otherwise;
}

void sp_cell_set(struct sp_cell *cell, double simulated)
{
    cell->simulated = (struct sp_value){SP_VALUE_NUMBER, simulated};
}

void sp_cell_note(struct sp_cell *cell, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(cell->note, sizeof cell->note, fmt, ap);
    va_end(ap);
}

void sp_cell_holds(struct sp_cell *claim, bool holds, const char *fmt, ...)
{
    va_list ap;

    sp_cell_set(claim, holds);
    va_start(ap, fmt);
    vsnprintf(claim->note, sizeof claim->note, fmt, ap);
    va_end(ap);
}

bool sp_cell_is_claim(const struct sp_cell *cell)
{
    return !strcmp(cell->what, "claim");
}

void sp_value_print(struct sp_value v, char text[32])
{
    if (v.kind == SP_VALUE_OOM)
        snprintf(text, 32, "OOM");
    else if (v.kind == SP_VALUE_NONE)
        snprintf(text, 32, "-");
    else
        snprintf(text, 32, v.number >= 1000 ? "%.0f" : "%.4g", v.number);
}

struct sp_cell_words sp_cell_words(const struct sp_cell *c)
{
    struct sp_cell_words words = {.off = ""};
    double off = sp_cell_error(c);

    sp_value_print(c->published, words.published);
    sp_value_print(c->simulated, words.simulated);
    if (off >= 0)
        snprintf(words.off, sizeof words.off, "%.1f %%", 100 * off);
    return words;
}

const char *sp_title(const json_t *of)
{
    return json_string_value(json_object_get(of, "title"));
}

/* ---- reading */

static struct sp_value value_of(const json_t *value)
{
    if (json_is_number(value))
        return (struct sp_value){SP_VALUE_NUMBER, json_number_value(value)};
    if (json_is_string(value) && !strcmp(json_string_value(value), "OOM"))
        return (struct sp_value){.kind = SP_VALUE_OOM};
    return (struct sp_value){.kind = SP_VALUE_NONE};
}

/* Values of `from` that are known. */
static void put_known(json_t *config, json_t *from)
{
    for (void *at = json_object_iter(from); at; at = json_object_iter_next(from, at))
        if (!json_is_null(json_object_iter_value(at)))
            json_object_set(config, json_object_iter_key(at), json_object_iter_value(at));
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* The machine, the setup and what is inferred of an experiment may be "as" those of an earlier one:
 * they have all from there that they do not say themselves, null for what they have not. */
static void inherit_settings(const json_t *list, size_t at)
{
    static const char *const keys[] = {"machine", "setup", "inferred"};

    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        json_t *own = json_object_get(json_array_get(list, at), keys[k]);
        const char *as = text_of(own, "as");

        for (size_t i = 0; as && i < at; i++) {
            json_t *earlier = json_array_get(list, i);

            if (!strcmp(text_of(earlier, "id"), as))
                json_object_update_missing(own, json_object_get(earlier, keys[k]));
        }
    }
}

/* The settings that all cells of an experiment have in common, and those of this one. */
static json_t *config_of(json_t *experiment, json_t *from)
{
    json_t *machine = json_object_get(experiment, "machine"), *config = json_object();

    put_known(config, json_object_get(experiment, "setup"));
    put_known(config, json_object_get(experiment, "inferred"));
    if (text_of(machine, "name"))
        json_object_set(config, "machine", json_object_get(machine, "name"));
    put_known(config, json_object_get(from, "config"));
    return config;
}

static void read_claim(json_t *experiment, json_t *from, struct sp_cell *cell)
{
    const char *reason = text_of(from, "reason");

    *cell = (struct sp_cell){.experiment = experiment,
                             .config = config_of(experiment, from),
                             .id = text_of(experiment, "id"),
                             .what = "claim",
                             .row = text_of(from, "claim"),
                             .column = text_of(from, "from"),
                             .unit = "1: it holds",
                             .test = text_of(from, "test"),
                             .published = {SP_VALUE_NUMBER, 1}};
    if (reason)
        sp_cell_note(cell, "%s", reason);
}

/* A cell of a table, or a cell that is its own column and row. */
static void read_cell(json_t *experiment, json_t *column, json_t *row, const json_t *value,
                      struct sp_cell *cell)
{
    const char *unit = text_of(column, "unit");

    *cell = (struct sp_cell){.experiment = experiment,
                             .config = config_of(experiment, column),
                             .id = text_of(experiment, "id"),
                             .what = text_of(experiment, "what"),
                             .row = text_of(row, "row"),
                             .column = text_of(column, "column"),
                             .unit = unit ? unit : text_of(experiment, "unit"),
                             .relation = text_of(column, "relation"),
                             .published = value_of(value)};
    put_known(cell->config, json_object_get(row, "config"));
    if (!cell->unit)
        cell->unit = "";
}

/* An experiment has "cells", or "columns" and "rows", whose "published" has a value a column. */
static size_t count_cells(const json_t *experiment)
{
    return json_array_size(json_object_get(experiment, "cells")) +
           json_array_size(json_object_get(experiment, "columns")) *
               json_array_size(json_object_get(experiment, "rows")) +
           json_array_size(json_object_get(experiment, "claims"));
}

static int read_cells(struct sp_paper *paper)
{
    json_t *list = json_object_get(paper->root, "experiments"), *experiment, *row, *column;
    struct sp_cell *cell;
    size_t n = 0, i, k, m;

    json_array_foreach(list, i, experiment)
    {
        n += count_cells(experiment);
        inherit_settings(list, i);
    }
    paper->cells = cell = calloc(n, sizeof *cell);
    if (!cell)
        return sp_error(ENOMEM, "reproduce: no memory for %zu cells", n);
    paper->n = (int)n;
    json_array_foreach(list, i, experiment)
    {
        const json_t *columns = json_object_get(experiment, "columns");

        json_array_foreach(json_object_get(experiment, "cells"), k, row)
        {
            read_cell(experiment, row, row, json_object_get(row, "published"), cell++);
        }
        json_array_foreach(json_object_get(experiment, "rows"), k, row)
        {
            const json_t *values = json_object_get(row, "published");

            json_array_foreach(columns, m, column)
            {
                read_cell(experiment, column, row, json_array_get(values, m), cell++);
            }
        }
        json_array_foreach(json_object_get(experiment, "claims"), k, row)
        {
            read_claim(experiment, row, cell++);
        }
    }
    return 0;
}

static int read_published(struct sp_paper *paper)
{
    json_error_t why;

    for (int i = 0; i < PUBLISHED; i++)
        if (!strcmp(published[i].name, paper->name)) {
            paper->root = json_loads(published[i].json, 0, &why);
            return paper->root ? read_cells(paper)
                               : sp_error(EINVAL, "reproduce: what %s published: %s", paper->name,
                                          why.text);
        }
    return sp_error(ENOENT, "reproduce: nothing published by %s", paper->name);
}

/* ---- simulating */

static int simulate_cell(const struct sp_paper *paper, struct sp_cell *cell)
{
    bool claim = sp_cell_is_claim(cell);
    const struct sp_experiment *e = claim ? paper->claims : paper->experiments;
    const char *id = claim ? cell->test : cell->id;

    for (; e && id && e->id; e++)
        if (!strcmp(e->id, id))
            return e->simulate(cell);
    if (!cell->note[0])
        sp_cell_note(cell, "no simulation of this %s", claim ? "claim" : "experiment");
    return 0;
}

static int add_unpublished(struct sp_paper *paper, bool vary)
{
    int more;

    if (!paper->unpublished && !vary)
        return 0;
    paper->more = calloc(SP_MOST_UNPUBLISHED, sizeof *paper->more);
    if (!paper->more)
        return sp_error(ENOMEM, "reproduce: no memory for %d values", SP_MOST_UNPUBLISHED);
    paper->n_more = paper->unpublished ? paper->unpublished(paper->more) : 0;
    if (paper->n_more < 0 || !vary)
        return paper->n_more < 0 ? paper->n_more : 0;
    more = paper->assumptions(paper, paper->more + paper->n_more);
    paper->n_more += more > 0 ? more : 0;
    return more < 0 ? more : 0;
}

int sp_paper_run(struct sp_paper *paper, bool vary)
{
    int err = read_published(paper);

    for (int i = 0; !err && i < paper->n; i++)
        err = simulate_cell(paper, &paper->cells[i]);
    err = err ? err : add_unpublished(paper, vary);
    if (!err)
        sp_paper_summarize(paper);
    return err;
}

void sp_paper_destroy(struct sp_paper *paper)
{
    for (int i = 0; i < paper->n; i++)
        json_decref(paper->cells[i].config);
    free(paper->cells);
    free(paper->more);
    json_decref(paper->root);
}
