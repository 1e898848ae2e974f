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
    struct sp_paje_words w = {0};

    fprintf(f, "rank,node,ms,mb\n");
    for (size_t i = 0; i < t->paje->n; i++) {
        const struct sp_paje_event *e = &t->paje->events[i];
        const char *node;

        if (!e->rest || e->code != SP_PAJE_SET_VARIABLE)
            continue;
        sp_paje_split(e->rest, &w); /* "0_mm1 use 12.5" */
        node = w.n > 2 && !strcmp(w.at[1], "use") ? strstr(w.at[0], "mm") : NULL;
        if (node)
            fprintf(f, "%d,%s,%.6f,%s\n", sp_fxt_container_rank(w.at[0], t->messages->ranks),
                    node + 2, e->ms, w.at[2]);
    }
    sp_paje_words_free(&w);
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
    } tables[] = {{"tasks.csv", write_tasks},
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
