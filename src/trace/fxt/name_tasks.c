#include "trace/fxt/rewrite.h"
#include "sp_error.h"
#include "sp_grow.h"
#include <stdio.h>

/* The indices of a task state's fields. */
struct columns {
    int value, params, tag, x, y, subiteration, priority;
};

static struct columns find_columns(const struct sp_paje *p)
{
    return (struct columns){
        .value = sp_paje_field(p, SP_PAJE_TASK, "Value"),
        .params = sp_paje_field(p, SP_PAJE_TASK, "Params"),
        .tag = sp_paje_field(p, SP_PAJE_TASK, "Tag"),
        .x = sp_paje_field(p, SP_PAJE_TASK, "X"),
        .y = sp_paje_field(p, SP_PAJE_TASK, "Y"),
        .subiteration = sp_paje_field(p, SP_PAJE_TASK, "Subiteration"),
        .priority = sp_paje_field(p, SP_PAJE_TASK, "Priority"),
    };
}

static void set(struct sp_paje_words *w, int at, char *value)
{
    if (at >= 0 && at < w->n)
        w->at[at] = value;
}

/* Renames a task state, split into `w`, and writes its kind. False: the task is not one of ours. */
static bool rename_task(struct sp_paje_event *e, struct sp_paje_words *w, const struct columns *c,
                        int micro_batches, char *kind)
{
    char name[128], tag[32], x[16], y[16], mb[16];
    struct sp_task_name what;
    bool known;

    snprintf(name, sizeof name, "%s", c->value < w->n ? w->at[c->value] : "");
    known = sp_task_name_read(name, &what);
    if (known) {
        snprintf(tag, sizeof tag, "%016x", (unsigned)what.stage);
        snprintf(x, sizeof x, "%d", what.layer);
        snprintf(y, sizeof y, "%d", what.slice < 0 ? 0 : what.slice);
        snprintf(mb, sizeof mb, "%d", what.micro_batch < 0 ? micro_batches : what.micro_batch);
        set(w, c->value, sp_task_kind(&what, kind));
        set(w, c->params, name);
        set(w, c->tag, tag);
        set(w, c->x, x);
        set(w, c->y, y);
        set(w, c->subiteration, mb);
    }
    free(e->rest);
    e->rest = sp_paje_join(w, c->priority);
    return known;
}

/* The kinds of tasks seen so far. */
struct kinds {
    int n;
    size_t cap;
    char (*name)[SP_TASK_KIND];
};

static void remember(struct kinds *k, const char *name)
{
    for (int i = 0; i < k->n; i++)
        if (!strcmp(k->name[i], name))
            return;
    SP_NEED(sp_grow(&k->name, (size_t)k->n + 1, &k->cap, sizeof *k->name),
            "trace: no memory for %d kinds", k->n);
    snprintf(k->name[k->n++], sizeof *k->name, "%s", name);
}

static const char *color_of(char pass)
{
    return pass == 'F'   ? "0.30 0.55 0.80"
           : pass == 'B' ? "0.90 0.55 0.20"
           : pass == 'W' ? "0.35 0.70 0.35"
                         : "0.55 0.55 0.55";
}

/* True if a state without columns belongs to a task: StarPU writes another one with columns. */
static bool is_twin(const struct sp_paje_event *e)
{
    const char *value = e->code == SP_PAJE_SET_STATE && e->rest ? strchr(e->rest, '"') : NULL;
    struct sp_task_name what;

    return value && sp_task_name_read(value + 1, &what);
}

static int count_micro_batches(const struct sp_paje *p, const struct columns *c)
{
    struct sp_paje_words w = {0};
    struct sp_task_name what;
    size_t i = 0;
    int n = 0;

    while (sp_paje_next(p, SP_PAJE_TASK, &i, &w))
        if (c->value < w.n && sp_task_name_read(w.at[c->value], &what) && what.micro_batch >= n)
            n = what.micro_batch + 1;
    return n;
}

void sp_fxt_name_tasks(struct sp_paje *p)
{
    struct columns c = find_columns(p);
    struct sp_paje_words w = {0};
    struct sp_task_name what;
    struct kinds kinds = {0};
    char kind[SP_TASK_KIND];
    int micro_batches = count_micro_batches(p, &c);

    for (size_t i = 0; i < p->n; i++) {
        struct sp_paje_event *e = &p->events[i];

        if (e->code == SP_PAJE_DEFINE_VALUE && e->rest && sp_task_name_read(e->rest, &what)) {
            sp_paje_remove(e); /* replaces the value of each task by one for each kind, below */
        } else if (is_twin(e)) {
            sp_paje_remove(e);
        } else if (e->code == SP_PAJE_TASK) {
            sp_paje_split(e->rest, &w);
            if (rename_task(e, &w, &c, micro_batches, kind))
                remember(&kinds, kind);
        }
    }
    if (c.priority >= 0)
        sp_paje_drop_field(p, SP_PAJE_TASK, c.priority);
    for (int i = 0; i < kinds.n; i++)
        sp_paje_add(p, SP_PAJE_DEFINE_VALUE, 0, "\"%s\"\tWS\t\"%s\"\t\"%s\"", kinds.name[i],
                    kinds.name[i], color_of(kinds.name[i][0]));
    free(kinds.name);
    sp_paje_words_free(&w);
}
