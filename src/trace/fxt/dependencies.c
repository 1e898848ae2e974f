#include "trace/fxt/traced_run.h"
#include "sp_error.h"
#include "sp_grow.h"

static void add(struct sp_fxt_dependencies *d, struct sp_fxt_dependency what)
{
    SP_NEED(sp_grow(&d->at, (size_t)d->n + 1, &d->cap, sizeof *d->at),
            "trace: no memory for %d dependencies", d->n);
    d->at[d->n++] = what;
}

void sp_fxt_dependencies_destroy(struct sp_fxt_dependencies *d)
{
    free(d->at);
    *d = (struct sp_fxt_dependencies){0};
}

/* ---- messages -------------------------------------------------------------------------------- */

/* A use of a buffer, by a task or a message. */
struct use {
    int rank;
    uint64_t handle;
    bool reads, writes;
    double start_ns, end_ns;
    const struct sp_fxt_task *task;
    int message;
};

struct uses {
    int n;
    size_t cap;
    struct use *at;
};

static void add_use(struct uses *u, struct use what)
{
    SP_NEED(sp_grow(&u->at, (size_t)u->n + 1, &u->cap, sizeof *u->at),
            "trace: no memory for %d uses of buffers", u->n);
    u->at[u->n++] = what;
}

static void uses_of_task(struct uses *u, const struct sp_fxt_task *t)
{
    char *handles = strdup(t->handles), *modes = strdup(t->modes), *h, *m, *hs = NULL, *ms = NULL;

    for (h = strtok_r(handles, " ", &hs), m = strtok_r(modes, " ", &ms); h && m;
         h = strtok_r(NULL, " ", &hs), m = strtok_r(NULL, " ", &ms)) {
        add_use(u, (struct use){.rank = t->rank,
                                .handle = strtoull(h, NULL, 16),
                                .reads = *m == 'R',
                                .writes = strchr(m, 'W') != NULL,
                                .start_ns = t->start_ns,
                                .end_ns = t->end_ns,
                                .task = t,
                                .message = -1});
    }
    free(handles);
    free(modes);
}

static void uses_of_message(struct uses *u, const struct sp_fxt_message *m, int i)
{
    add_use(u, (struct use){.rank = m->src,
                            .handle = m->handle[0],
                            .reads = true,
                            .start_ns = m->start_ns,
                            .end_ns = m->sent_ns,
                            .message = i});
    add_use(u, (struct use){.rank = m->dst,
                            .handle = m->handle[1],
                            .writes = true,
                            .start_ns = m->posted_ns,
                            .end_ns = m->end_ns,
                            .message = i});
}

/* Sorts the uses of each buffer by time. */
static int in_turn(const void *a, const void *b)
{
    const struct use *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->handle != y->handle)
        return x->handle < y->handle ? -1 : 1;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

void sp_fxt_dependencies_of_messages(const struct sp_fxt_tasks *tasks,
                                     const struct sp_fxt_messages *messages,
                                     struct sp_fxt_dependencies *d)
{
    struct uses u = {0};
    const struct use *writer = NULL;

    *d = (struct sp_fxt_dependencies){0};
    for (int i = 0; i < tasks->n; i++)
        if (tasks->task[i].end_ns > 0)
            uses_of_task(&u, &tasks->task[i]);
    for (int i = 0; i < messages->n; i++)
        if (*messages->message[i]
                 .tensor) /* other messages belong to the start, or wait for written data */
            uses_of_message(&u, &messages->message[i], i);
    if (u.n)
        qsort(u.at, (size_t)u.n, sizeof *u.at, in_turn);
    for (int i = 0; i < u.n; i++) {
        const struct use *x = &u.at[i];

        if (i > 0 && (x->rank != x[-1].rank || x->handle != x[-1].handle))
            writer = NULL;
        /* a message that sends on received or written data, or a task that reads received data */
        if (writer && x->reads && (x->message >= 0 || writer->message >= 0))
            add(d, (struct sp_fxt_dependency){x->task, writer->task, x->message, writer->message});
        if (x->writes)
            writer = x;
    }
    free(u.at);
}

/* ---- tasks ----------------------------------------------------------------------------------- */

struct walk {
    const struct sp_fxt_tasks *tasks;
    const struct sp_fxt_task *from;
    int *seen; /* [tasks] the last task from which it was reached, plus 1 */
    struct sp_fxt_dependencies *d;
};

/* Adds the tasks that `t` waited for, through those that never ran. */
static void walk_back(struct walk *w, const struct sp_fxt_task *t)
{
    int stamp = (int)(w->from - w->tasks->task) + 1;
    char *jobs = strdup(t->after), *save = NULL;

    for (char *job = strtok_r(jobs, " ", &save); job; job = strtok_r(NULL, " ", &save)) {
        const struct sp_fxt_task *before = sp_fxt_task_find(w->tasks, job);
        int *seen = before ? &w->seen[before - w->tasks->task] : NULL;

        if (!before || *seen == stamp)
            continue;
        *seen = stamp;
        if (before->end_ns > 0)
            add(w->d, (struct sp_fxt_dependency){w->from, before, -1, -1});
        else
            walk_back(w, before);
    }
    free(jobs);
}

void sp_fxt_dependencies_of_tasks(const struct sp_fxt_tasks *tasks, struct sp_fxt_dependencies *d)
{
    struct walk w = {tasks, NULL, calloc((size_t)tasks->n + 1, sizeof(int)), d};

    for (int i = 0; w.seen && i < tasks->n; i++)
        if (tasks->task[i].end_ns > 0) {
            w.from = &tasks->task[i];
            walk_back(&w, w.from);
        }
    free(w.seen);
}
