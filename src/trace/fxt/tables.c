#include "sp_error.h"
#include "trace/fxt/rewrite.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes a number, or nothing if it is negative. */
static void put_number(FILE *f, long long x)
{
    if (x >= 0)
        fprintf(f, "%lld", x);
    fputc(',', f);
}

static void write_tasks(FILE *f, const struct sp_fxt_trace *t)
{
    fprintf(f, "job,rank,worker,stage,step,pass,micro_batch,slice,layer,part,start_ms,end_ms\n");
    for (int i = 0; i < t->tasks->n; i++) {
        const struct sp_fxt_task *k = &t->tasks->task[i];

        if (!k->known || k->end_ns <= 0)
            continue;
        fprintf(f, "%s,%d,%d,%d,", k->job, k->rank, k->worker, k->what.stage);
        put_number(f, k->step);
        fprintf(f, "%c,", k->what.pass);
        put_number(f, k->what.micro_batch);
        put_number(f, k->what.slice);
        put_number(f, k->what.layer);
        fprintf(f, "%s,%.6f,%.6f\n", k->what.part, (k->start_ns - t->zero_ns) / 1e6,
                (k->end_ns - t->zero_ns) / 1e6);
    }
}

static void write_messages(FILE *f, const struct sp_fxt_trace *t)
{
    const struct sp_fxt_messages *m = t->messages;
    int *stage = malloc(2 * sizeof *stage * ((size_t)m->n + 1));

    if (!stage)
        abort();
    for (int i = 0; i < 2 * m->n; i++)
        stage[i] = -1;
    for (int i = 0; i < t->dependencies->n; i++) {
        const struct sp_fxt_dependency *d = &t->dependencies->at[i];

        if (d->message >= 0 && d->after && d->after->known)
            stage[2 * d->message] = d->after->what.stage;
        else if (d->after_message >= 0 && d->task && d->task->known)
            stage[2 * d->after_message + 1] = d->task->what.stage;
    }
    fprintf(f, "message,from_rank,to_rank,from_stage,to_stage,tag,bytes,tensor,start_ms,end_ms\n");
    for (int i = 0; i < m->n; i++) {
        const struct sp_fxt_message *k = &m->message[i];

        fprintf(f, "mpicom_%d,%d,%d,", i, k->src, k->dst);
        put_number(f, stage[2 * i]);
        put_number(f, stage[2 * i + 1]);
        fprintf(f, "%lld,%lld,%s,%.6f,%.6f\n", (long long)k->tag, (long long)k->bytes, k->tensor,
                (k->start_ns - t->zero_ns) / 1e6, (k->end_ns - t->zero_ns) / 1e6);
    }
    free(stage);
}

static void write_memory(FILE *f, const struct sp_fxt_trace *t)
{
    const struct sp_paje_event *e;
    struct sp_paje_words w = {0};
    size_t i = 0;

    fprintf(f, "rank,node,ms,mb\n");
    while ((e = sp_paje_next(t->paje, SP_PAJE_SET_VARIABLE, &i, &w))) { /* "0_mm1 use 12.5" */
        const char *node = w.n > 2 && !strcmp(w.at[1], "use") ? strstr(w.at[0], "mm") : NULL;

        if (node)
            fprintf(f, "%d,%s,%.6f,%s\n", sp_fxt_container_rank(w.at[0], t->messages->ranks),
                    node + 2, e->ms, w.at[2]);
    }
}

/* Finds the name of a type or of a container by its alias: word `field` of the event that defines
 * it. */
static void name_of(const struct sp_paje *p, enum sp_paje_code code, int field, const char *alias,
                    char name[64])
{
    struct sp_paje_words w = {0};
    size_t i = 0;

    snprintf(name, 64, "%s", alias);
    while (sp_paje_next(p, (int)code, &i, &w))
        if (w.n > field && !strcmp(w.at[0], alias))
            snprintf(name, 64, "%s", w.at[field]);
}

/* Writes the containers as pj_dump --entity-hierarchy does, with the states and variables they
 * had. */
static void write_entities(FILE *f, const struct sp_fxt_trace *t)
{
    static const char *const states[][3] = {{"W", "Worker State", "State"},
                                            {"MPICt", "Communication Thread State", "State"},
                                            {"Mm", "Memory Node State", "State"},
                                            {"Mm", "Used (MB)", "Variable"}};
    const struct sp_paje *p = t->paje;
    struct sp_paje_words w = {0};
    char type[64], parent[64];
    size_t i = 0;

    fprintf(f, "Parent,Name,Type,Nature\n");
    while (sp_paje_next(p, SP_PAJE_CREATE, &i, &w)) {
        if (w.n < 4)
            continue;
        name_of(p, SP_PAJE_DEFINE_CONTAINER, 2, w.at[1], type);
        name_of(p, SP_PAJE_CREATE, 3, w.at[2], parent);
        fprintf(f, "%s,%s,%s,Container\n", parent, w.at[3], type);
        for (size_t k = 0; k < sizeof states / sizeof *states; k++)
            if (!strcmp(states[k][0], w.at[1]))
                fprintf(f, "%s,%s,%s,%s\n", w.at[3], states[k][1], states[k][1], states[k][2]);
    }
}

static void put_id(FILE *f, const struct sp_fxt_task *task, int message, char end)
{
    if (task)
        fprintf(f, "%s%c", task->job, end);
    else
        fprintf(f, "mpicom_%d%c", message, end);
}

static void write_dependencies(FILE *f, const struct sp_fxt_trace *t)
{
    fprintf(f, "id,after\n");
    for (int i = 0; i < t->dependencies->n; i++) {
        const struct sp_fxt_dependency *d = &t->dependencies->at[i];

        put_id(f, d->task, d->message, ',');
        put_id(f, d->after, d->after_message, '\n');
    }
}

int sp_fxt_tables_write(const struct sp_fxt_trace *t, const char *dir)
{
    static const struct {
        const char *name;
        void (*write)(FILE *f, const struct sp_fxt_trace *t);
    } tables[] = {{"entities.csv", write_entities},
                  {"tasks.csv", write_tasks},
                  {"messages.csv", write_messages},
                  {"memory.csv", write_memory},
                  {"dependencies.csv", write_dependencies}};
    char path[PATH_MAX];

    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        FILE *f;

        snprintf(path, sizeof path, "%s/%s", dir, tables[i].name);
        f = fopen(path, "w");
        if (!f)
            return sp_error(errno, "trace: cannot write %s: %s", path, strerror(errno));
        tables[i].write(f, t);
        if (ferror(f) | fclose(f))
            return sp_error(EIO, "trace: cannot write %s", path);
    }
    return 0;
}
