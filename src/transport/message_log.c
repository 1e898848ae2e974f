#include "config.h"
#ifdef HAVE_MPI
#include "transport/message_log.h"
#include "transport/clock_offset.h"
#include "sp_error.h"
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sp_logged_message {
    struct sp_logged_message *next;
    bool sends;
    int peer;
    int64_t tag, bytes, start_ns, end_ns;
    void *handle;
    char tensor[40];
};

static struct {
    bool on;
    int rank, ranks;
    int64_t run;
    struct sp_clock_point start;
    pthread_mutex_t mutex; /* of the list */
    struct sp_logged_message *first, **end;
} book = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Makes several marks, as a thread may lose its core between reading the clock and adding the
 * event. */
static void mark_clock(const char *when)
{
    enum { MARKS = 5 };
    char text[64];

    for (int i = 0; i < MARKS; i++) {
        snprintf(text, sizeof text, "starpipe clock %s %" PRId64, when, sp_clock_ns());
        starpu_fxt_trace_user_event_string(text);
    }
}

/* All processes get the same answer: train/start/agree.c has checked the environment. */
static bool traced(void)
{
#ifdef STARPU_USE_FXT
    return starpu_fxt_is_enabled() > 0;
#else
    return false;
#endif
}

void sp_message_log_start(MPI_Comm comm)
{
    MPI_Comm_rank(comm, &book.rank);
    MPI_Comm_size(comm, &book.ranks);
    book.on = book.ranks > 1 && traced();
    if (!book.on)
        return;
    book.first = NULL;
    book.end = &book.first;
    book.run = sp_clock_ns();
    sp_clock_measure(comm, &book.start, &book.run);
    mark_clock("start");
}

bool sp_message_log_on(void)
{
    return book.on;
}

struct sp_logged_message *sp_message_log_new(starpu_data_handle_t handle, bool sends, int peer,
                                             int64_t tag, const char *tensor)
{
    struct sp_logged_message *r = book.on ? malloc(sizeof *r) : NULL;

    if (!r)
        return NULL;
    *r = (struct sp_logged_message){.sends = sends,
                                    .peer = peer,
                                    .tag = tag,
                                    .bytes = (int64_t)starpu_data_get_size(handle),
                                    .handle = handle};
    snprintf(r->tensor, sizeof r->tensor, "%s", tensor);
    pthread_mutex_lock(&book.mutex);
    *book.end = r;
    book.end = &r->next;
    pthread_mutex_unlock(&book.mutex);
    return r;
}

void sp_message_log_begins(struct sp_logged_message *r)
{
    if (r)
        r->start_ns = sp_clock_ns();
}

void sp_message_log_ends(struct sp_logged_message *r)
{
    if (r)
        r->end_ns = sp_clock_ns();
}

/* ---- the file -------------------------------------------------------------------------------- */

static json_t *point(const struct sp_clock_point *p)
{
    return json_pack("{sI sI sI}", "local_ns", (json_int_t)p->local_ns, "offset_ns",
                     (json_int_t)p->offset_ns, "round_trip_ns", (json_int_t)p->round_trip_ns);
}

static json_t *message(const struct sp_logged_message *r)
{
    char handle[32];

    snprintf(handle, sizeof handle, "%" PRIxPTR, (uintptr_t)r->handle); /* as StarPU writes it */
    return json_pack("{si sI sI ss ss sI sI}", r->sends ? "to" : "from", r->peer, "tag",
                     (json_int_t)r->tag, "bytes", (json_int_t)r->bytes, "tensor", r->tensor,
                     "handle", handle, "start_ns", (json_int_t)r->start_ns, "end_ns",
                     (json_int_t)r->end_ns);
}

static int put(json_t *line, FILE *f)
{
    int err = line ? json_dumpf(line, f, JSON_COMPACT) : -1;

    json_decref(line);
    return err || fputc('\n', f) == EOF;
}

static void write_file(const struct sp_clock_point *end)
{
    const char *dir = getenv("STARPU_FXT_PREFIX"); /* trace_dir.h */
    char path[PATH_MAX];
    int err, fd;
    FILE *f;

    snprintf(path, sizeof path, "%s/messages_%d.jsonl", dir ? dir : ".", book.rank);
    unlink(
        path); /* never follow a link of that name, nor overwrite a file that others have */
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    f = fd < 0 ? NULL : fdopen(fd, "w");
    err = !f || put(json_pack("{si si sI so so}", "rank", book.rank, "ranks", book.ranks, "run",
                              (json_int_t)book.run, "start", point(&book.start), "end", point(end)),
                    f);
    for (struct sp_logged_message *r = book.first; !err && r; r = r->next)
        err = put(message(r), f);
    if (f && (fclose(f) || err))
        err = 1;
    else if (!f && fd >= 0)
        close(fd);
    if (err)
        sp_warn("cannot write %s: %s", path, strerror(errno));
}

void sp_message_log_stop(MPI_Comm comm)
{
    struct sp_clock_point end;

    if (!book.on)
        return;
    mark_clock("end");
    sp_clock_measure(comm, &end, &book.run);
    write_file(&end);
    for (struct sp_logged_message *r = book.first, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    book.on = false;
}
#endif
