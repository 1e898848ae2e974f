#include "trace/fxt/convert.h"
#include "sp_error.h"
#include "trace/fxt/rewrite.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *in(const char *dir, const char *name, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%s", dir, name);
    return path;
}

/* ---- the graph ------------------------------------------------------------------------------- */

/* Writes a node of StarPU's dag.dot; messages have the names that StarPU-MPI gives them. */
static void put_node(FILE *f, const struct sp_fxt_messages *m, const struct sp_fxt_task *task,
                     int message)
{
    if (task)
        fprintf(f, "\"task_%s\"", task->job);
    else
        fprintf(f, "\"mpi_%lld_%d\"", (long long)m->message[message].tag, message);
}

/* Copies the file, with the dependencies of messages before its last brace, instead of those that
 * --transport starpu left. */
static int write_graph(const char *from, const char *to, const struct sp_fxt_messages *m,
                       const struct sp_fxt_dependencies *d)
{
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");
    char *line = NULL;
    size_t size = 0;
    int err = 0;

    if (!in || !out) {
        err = sp_error(errno, "trace: cannot copy %s to %s: %s", from, to, strerror(errno));
    } else {
        while (getline(&line, &size, in) > 0)
            if (strcmp(line, "}\n") && !strstr(line, "\"mpi_"))
                fputs(line, out);
        for (int i = 0; i < d->n; i++) {
            fputs("\t ", out);
            put_node(out, m, d->at[i].after, d->at[i].after_message);
            fputs("->", out);
            put_node(out, m, d->at[i].task, d->at[i].message);
            fputc('\n', out);
        }
        fputs("}\n", out);
        if (ferror(in) || ferror(out))
            err = sp_error(EIO, "trace: cannot copy %s to %s", from, to);
    }
    free(line);
    if (in)
        fclose(in);
    if (out && fclose(out) && !err)
        err = sp_error(EIO, "trace: cannot write %s", to);
    return err;
}

/* ---- conversion ------------------------------------------------------------------------------ */

static void summarize(const struct sp_fxt_messages *m, const struct sp_fxt_tasks *tasks,
                      struct sp_fxt_summary *s)
{
    *s = (struct sp_fxt_summary){
        .ranks = m->ranks, .messages = m->n, .turned = m->turned, .turned_us = m->turned_ns / 1e3};
    for (int i = 0; i < tasks->n; i++)
        s->tasks += tasks->task[i].known && tasks->task[i].end_ns > 0;
    for (int r = 0; r < m->ranks; r++)
        for (int i = 0; i < 2; i++) {
            const struct sp_rank_offset *o = &m->clocks[r].offset[i];

            s->offset_us = fmax(s->offset_us, fabs(o->offset_ns) / 1e3);
            s->round_trip_us = fmax(s->round_trip_us, o->round_trip_ns / 1e3);
        }
}

static int rewrite(struct sp_paje *p, const struct sp_fxt_messages *m, double *zero_ns)
{
    int err = sp_fxt_align(p, m->clocks, m->ranks, zero_ns);

    if (err)
        return err;
    sp_fxt_name_tasks(p);
    sp_fxt_group_by_stage(p);
    err = sp_fxt_add_messages(p, m, *zero_ns);
    sp_paje_sort(p);
    return err;
}

static int write_all(const char *from, const char *dir, const struct sp_fxt_trace *t)
{
    struct sp_fxt_dependencies across = {0};
    char a[PATH_MAX], b[PATH_MAX];
    int err = sp_paje_write(t->paje, in(dir, "paje.trace", a));

    err = err ? err
              : sp_fxt_tasks_write(t->tasks, t->messages->clocks, t->zero_ns,
                                   in(dir, "tasks.rec", a));
    if (!err) {
        sp_fxt_dependencies_of_messages(t->tasks, t->messages, &across);
        err = write_graph(in(from, "dag.dot", a), in(dir, "dag.dot", b), t->messages, &across);
        sp_fxt_dependencies_destroy(&across);
    }
    err = err ? err : sp_fxt_tables_write(t, dir);
    if (!err && rename(in(from, "data.rec", a), in(dir, "data.rec", b)))
        err = sp_error(errno, "trace: cannot move %s to %s: %s", a, b, strerror(errno));
    return err;
}

int sp_fxt_convert(const char *from, const char *dir, int ranks, struct sp_fxt_summary *summary)
{
    struct sp_paje paje = {0};
    struct sp_fxt_messages messages;
    struct sp_fxt_tasks tasks = {0};
    struct sp_fxt_dependencies all = {0};
    struct sp_fxt_trace t = {&paje, &tasks, &messages, &all, 0};
    char path[PATH_MAX];
    int err = sp_fxt_messages_read(dir, ranks, &messages);

    err = err ? err : sp_paje_read(in(from, "paje.trace", path), &paje);
    err = err ? err : rewrite(&paje, &messages, &t.zero_ns);
    err =
        err ? err : sp_fxt_tasks_read(in(from, "tasks.rec", path), messages.clocks, ranks, &tasks);
    if (!err) {
        sp_fxt_dependencies_of_messages(&tasks, &messages, &all);
        sp_fxt_dependencies_of_tasks(&tasks, &all);
        err = write_all(from, dir, &t);
        summarize(&messages, &tasks, summary);
    }
    sp_fxt_dependencies_destroy(&all);
    sp_fxt_tasks_destroy(&tasks);
    sp_paje_destroy(&paje);
    sp_fxt_messages_destroy(&messages);
    return err;
}
