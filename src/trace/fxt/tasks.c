#include "trace/fxt/traced_run.h"
#include "sp_error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading --------------------------------------------------------------------------------- */

/* The value of a field of a record, "" if there is none; the caller frees it. */
static char *field(const char *text, const char *name)
{
    size_t n = strlen(name);

    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        if (!strncmp(line, name, n) && !strncmp(line + n, ": ", 2))
            return strndup(line + n + 2, strcspn(line + n + 2, "\n"));
        if (!line[strcspn(line, "\n")])
            break;
    }
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

static struct sp_fxt_task *append(struct sp_fxt_tasks *tasks, int *cap)
{
    if (tasks->n == *cap) {
        *cap = *cap ? 2 * *cap : 1024;
        tasks->task = realloc(tasks->task, (size_t)*cap * sizeof *tasks->task);
        if (!tasks->task) {
            sp_error(ENOMEM, "trace: no memory for %d tasks", *cap);
            abort();
        }
    }
    return &tasks->task[tasks->n++];
}

int sp_fxt_tasks_read(const char *path, const struct sp_rank_clock *clocks, int ranks,
                      struct sp_fxt_tasks *tasks)
{
    FILE *f = fopen(path, "r"), *record = NULL;
    char *line = NULL, *text = NULL;
    size_t size = 0, length = 0;
    int cap = 0, err = 0;

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
            err = read_task(text, clocks, ranks, append(tasks, &cap));
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
    bool written = false;

    for (const char *line = t->text; *line; line += strcspn(line, "\n") + 1) {
        size_t length = strcspn(line, "\n");

        for (int i = 0; !written && i < 3; i++)
            if (!strncmp(line, times[i], strlen(times[i]))) {
                double ms = strtod(line + strlen(times[i]), NULL);

                fprintf(f, "%s%.6f\n", times[i],
                        (sp_rank_clock_of_trace(clock, ms) - zero_ns) / 1e6);
                written = true;
            }
        if (!written)
            fprintf(f, "%.*s\n", (int)length, line);
        if (t->known && !strncmp(line, "Name: ", 6))
            write_what(f, t);
        written = false;
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
