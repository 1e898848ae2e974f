#include "sp_error.h"
#include "sp_grow.h"
#include "trace/fxt/rewrite.h"
#include <stdio.h>

/* A worker and the thread that contains it. */
struct worker {
    char alias[32], thread[32];
    size_t cap;
    int n, *stages; /* ascending */
};

struct workers {
    int n;
    size_t cap;
    struct worker *at;
};

static void add_worker(struct workers *all, const char *alias, const char *thread)
{
    struct worker *w;

    SP_NEED(sp_grow(&all->at, (size_t)all->n + 1, &all->cap, sizeof *all->at),
            "trace: no memory for %d workers", all->n);
    w = &all->at[all->n++];
    *w = (struct worker){0};
    snprintf(w->alias, sizeof w->alias, "%s", alias);
    snprintf(w->thread, sizeof w->thread, "%s", thread);
}

static void add_stage(struct workers *all, const char *alias, int stage)
{
    struct worker *w = NULL;
    int at = 0;

    for (int i = 0; i < all->n; i++)
        if (!strcmp(all->at[i].alias, alias))
            w = &all->at[i];
    while (w && at < w->n && w->stages[at] < stage)
        at++;
    if (!w || (at < w->n && w->stages[at] == stage))
        return;
    SP_NEED(sp_grow(&w->stages, (size_t)w->n + 1, &w->cap, sizeof *w->stages),
            "trace: no memory for %d stages", w->n);
    memmove(&w->stages[at + 1], &w->stages[at], (size_t)(w->n++ - at) * sizeof *w->stages);
    w->stages[at] = stage;
}

/* Finds the stages that each worker ran; sp_fxt_name_tasks has put its tasks' names into Params. */
static void find_workers(const struct sp_paje *p, struct workers *all)
{
    int container = sp_paje_field(p, SP_PAJE_TASK, "Container");
    int name = sp_paje_field(p, SP_PAJE_TASK, "Params");
    struct sp_paje_words w = {0};
    struct sp_task_name what;
    size_t i = 0;

    while (sp_paje_next(p, SP_PAJE_CREATE, &i, &w))
        if (w.n > 2 && !strcmp(w.at[1], "W"))
            add_worker(all, w.at[0], w.at[2]);
    i = 0;
    while (sp_paje_next(p, SP_PAJE_TASK, &i, &w))
        if (name >= 0 && w.n > name && sp_task_name_read(w.at[name], &what))
            add_stage(all, w.at[container], what.stage);
}

/* Names the container of a thread: "0_stage2", "0_stage1.5", "0_nostage". */
static void name_stages(const struct workers *all, const char *thread, char *name, size_t size)
{
    const char *rank_end = strchr(thread, '_');
    int n = rank_end ? (int)(rank_end - thread) + 1 : 0, found = 0;
    size_t at = (size_t)snprintf(name, size, "%.*s", n, thread);

    for (int i = 0; i < all->n; i++)
        for (int k = 0; k < all->at[i].n && !strcmp(all->at[i].thread, thread); k++)
            if (at < size)
                at += (size_t)snprintf(name + at, size - at, "%s%d", found++ ? "." : "stage",
                                       all->at[i].stages[k]);
    if (!found)
        snprintf(name + at, size - at, "nostage");
}

static bool exists(const struct sp_paje_event *events, size_t n, const char *alias)
{
    size_t length = strlen(alias);

    for (size_t i = 0; i < n; i++)
        if (events[i].code == SP_PAJE_CREATE && events[i].rest &&
            !strncmp(events[i].rest, alias, length) && events[i].rest[length] == '\t')
            return true;
    return false;
}

/* Adds the creation of a thread from its words, after that of its stages' container if it is
 * new. */
static void put_thread(struct sp_paje *to, const struct workers *all, const struct sp_paje_event *e,
                       const struct sp_paje_words *w)
{
    char stages[128];

    name_stages(all, w->at[0], stages, sizeof stages);
    if (!exists(to->events, to->n, stages))
        sp_paje_add(to, SP_PAJE_CREATE, e->ms, "%s\tSt\t%s\t%s", stages, w->at[2], stages);
    sp_paje_add(to, SP_PAJE_CREATE, e->ms, "%s\tT\t%s\t%s", w->at[0], stages, w->at[3]);
}

void sp_fxt_group_by_stage(struct sp_paje *p)
{
    struct sp_paje to = {.cap = p->n + 1};
    struct sp_paje_words w = {0};
    struct workers all = {0};

    find_workers(p, &all);
    to.events = malloc(to.cap * sizeof *to.events);
    if (!to.events)
        abort();
    for (size_t i = 0; i < p->n; i++) {
        struct sp_paje_event *e = &p->events[i];

        if (e->rest && (e->code == SP_PAJE_CREATE || e->code == SP_PAJE_DEFINE_CONTAINER))
            sp_paje_split(e->rest, &w);
        if (e->rest && e->code == SP_PAJE_CREATE && w.n > 3 && !strcmp(w.at[1], "T")) {
            put_thread(&to, &all, e, &w);
            sp_paje_remove(e);
        } else if (e->rest && e->code == SP_PAJE_DEFINE_CONTAINER && !strcmp(w.at[0], "T")) {
            sp_paje_add(&to, e->code, 0, "St\t%s\t\"Stage\"", w.at[1]);
            sp_paje_add(&to, e->code, 0, "T\tSt\t\"%s\"", w.at[2]);
            sp_paje_remove(e);
        } else {
            sp_paje_append(&to, e);
        }
    }
    free(p->events);
    p->events = to.events;
    p->n = to.n;
    p->cap = to.cap;
    for (int i = 0; i < all.n; i++)
        free(all.at[i].stages);
    free(all.at);
    sp_paje_words_free(&w);
}
