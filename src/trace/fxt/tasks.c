#include "trace/fxt/traced_run.h"
#include "sp_error.h"
#include "sp_grow.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------- */

bool sp_task_name_read(const char *text, struct sp_task_name *name)
{
    int at = 0, next = 0;

    *name = (struct sp_task_name){.micro_batch = -1, .slice = -1};
    if (sscanf(text, "%c_s%d%n", &name->pass, &name->stage, &at) != 2 || !isupper(name->pass) ||
        !at)
        return false;
    if (sscanf(text + at, "_m%d%n", &name->micro_batch, &next) == 1) {
        at += next;
        if (sscanf(text + at, ".%d%n", &name->slice, &next) == 1)
            at += next;
    }
    next = 0;
    if (sscanf(text + at, "_l%d_%n", &name->layer, &next) != 1 || !next || !text[at + next])
        return false;
    name->part = text + at + next;
    return true;
}

char *sp_task_kind(const struct sp_task_name *name, char *kind)
{
    snprintf(kind, SP_TASK_KIND, "%c %s", name->pass, name->part);
    return kind;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The value of a field of a record, "" if there is none; the caller frees it. */
static char *field(const char *text, const char *name)
{
    size_t n = strlen(name);

    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        if (!strncmp(line, name, n) && !strncmp(line + n, ": ", 2))
            return strndup(line + n + 2, strcspn(line + n + 2, "\n"));
    return strdup("");
}

static double number(const char *text, const char *name, double otherwise)
{
    char *value = field(text, name);
    double x = *value ? strtod(value, NULL) : otherwise;

    free(value);
    return x;
}

static int read_task(char *text, const struct sp_rank_clock *clocks, int ranks,
                     struct sp_fxt_task *t)
{
    double start = number(text, "StartTime", -1), end = number(text, "EndTime", -1);

    *t = (struct sp_fxt_task){.text = text,
                              .name = field(text, "Name"),
                              .job = field(text, "JobId"),
                              .after = field(text, "DependsOn"),
                              .handles = field(text, "Handles"),
                              .modes = field(text, "Modes"),
                              .rank = (int)number(text, "MPIRank", 0),
                              .worker = (int)number(text, "WorkerId", -1),
                              .step = (int64_t)number(text, "Iteration", -1)};
    if (ranks == 1)
        t->rank = 0; /* the file says -1 */
    if (t->rank < 0 || t->rank >= ranks)
        return sp_error(EINVAL, "trace: task %s is of rank %d of %d", t->job, t->rank, ranks);
    if (end >= 0) {
        t->start_ns = sp_rank_clock_of_trace(&clocks[t->rank], start);
        t->end_ns = sp_rank_clock_of_trace(&clocks[t->rank], end);
    }
    t->known = sp_task_name_read(t->name, &t->what);
    return 0;
}

static int by_job(const void *a, const void *b)
{
    return strcmp(((const struct sp_fxt_task *)a)->job, ((const struct sp_fxt_task *)b)->job);
}

int sp_fxt_tasks_read(const char *path, const struct sp_rank_clock *clocks, int ranks,
                      struct sp_fxt_tasks *tasks)
{
    FILE *f = fopen(path, "r"), *record = NULL;
    char *line = NULL, *text = NULL;
    size_t size = 0, length = 0;
    size_t cap = 0;
    int err = 0;

    *tasks = (struct sp_fxt_tasks){0};
    if (!f)
        return sp_error(errno, "trace: cannot read %s: %s", path, strerror(errno));
    for (bool more = true; !err && more;) {
        more = getline(&line, &size, f) > 0;
        if (more && *line != '\n') {
            record = record ? record : open_memstream(&text, &length);
            fputs(line, record);
        } else if (record) {
            fclose(record);
            record = NULL;
            SP_NEED(sp_grow(&tasks->task, (size_t)tasks->n + 1, &cap, sizeof *tasks->task),
                    "trace: no memory for %d tasks", tasks->n);
            err = read_task(text, clocks, ranks, &tasks->task[tasks->n++]);
        }
    }
    free(line);
    fclose(f);
    if (tasks->n)
        qsort(tasks->task, (size_t)tasks->n, sizeof *tasks->task, by_job);
    return err;
}

void sp_fxt_tasks_destroy(struct sp_fxt_tasks *tasks)
{
    for (int i = 0; i < tasks->n; i++) {
        struct sp_fxt_task *t = &tasks->task[i];

        free(t->text);
        free(t->name);
        free(t->job);
        free(t->after);
        free(t->handles);
        free(t->modes);
    }
    free(tasks->task);
    *tasks = (struct sp_fxt_tasks){0};
}

struct sp_fxt_task *sp_fxt_task_find(const struct sp_fxt_tasks *tasks, const char *job)
{
    const struct sp_fxt_task key = {.job = (char *)job};

    return tasks->n ? bsearch(&key, tasks->task, (size_t)tasks->n, sizeof key, by_job) : NULL;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_what(FILE *f, const struct sp_fxt_task *t)
{
    fprintf(f, "Pass: %c\nStage: %d\n", t->what.pass, t->what.stage);
    if (t->what.micro_batch >= 0)
        fprintf(f, "MicroBatch: %d\n", t->what.micro_batch);
    if (t->what.slice >= 0)
        fprintf(f, "Slice: %d\n", t->what.slice);
    fprintf(f, "Layer: %d\nPart: %s\n", t->what.layer, t->what.part);
}

static void write_task(FILE *f, const struct sp_fxt_task *t, const struct sp_rank_clock *clock,
                       double zero_ns)
{
    static const char *const times[] = {"SubmitTime: ", "StartTime: ", "EndTime: "};

    for (const char *line = t->text; *line; line += strcspn(line, "\n") + 1) {
        bool written = false;

        for (int i = 0; !written && i < 3; i++)
            if (!strncmp(line, times[i], strlen(times[i]))) {
                double ms = strtod(line + strlen(times[i]), NULL);

                fprintf(f, "%s%.6f\n", times[i],
                        (sp_rank_clock_of_trace(clock, ms) - zero_ns) / 1e6);
                written = true;
            }
        if (!written)
            fprintf(f, "%.*s\n", (int)strcspn(line, "\n"), line);
        if (t->known && !strncmp(line, "Name: ", 6))
            write_what(f, t);
    }
    fputc('\n', f);
}

int sp_fxt_tasks_write(const struct sp_fxt_tasks *tasks, const struct sp_rank_clock *clocks,
                       double zero_ns, const char *path)
{
    FILE *f = fopen(path, "w");

    if (!f)
        return sp_error(errno, "trace: cannot write %s: %s", path, strerror(errno));
    for (int i = 0; i < tasks->n; i++)
        write_task(f, &tasks->task[i], &clocks[tasks->task[i].rank], zero_ns);
    if (ferror(f) | fclose(f))
        return sp_error(EIO, "trace: cannot write %s", path);
    return 0;
}
