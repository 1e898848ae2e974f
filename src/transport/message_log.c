/* The log of messages, and the clocks of the processes that wrote it. */
#include "config.h"
#ifdef HAVE_MPI
#include "transport/messages.h"
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
#include <time.h>
#include <unistd.h>

/* ---- how far the clocks are apart --------------------------------------------------------------- */

/* As in NTP, the time in a reply is taken to lie halfway between sending the request and
 * receiving the reply. */

/* Rank 0 makes at most EXCHANGES exchanges with each rank, and stops after MOST_NS if it has
 * LEAST of them. */
enum { EXCHANGES = 60, LEAST = 5, MOST_NS = 20000000, TAG = 0 };
enum { LAST = 0, AGAIN = 1 };

/* The clocks of two processes at one moment of a run. */
struct clock_point {
    int64_t local_ns;      /* this process's CLOCK_MONOTONIC */
    int64_t offset_ns;     /* this clock less rank 0's */
    int64_t round_trip_ns; /* time of the exchange that gave the offset, whose error is at most half
                            * of it; 0: both processes read the clock of one machine */
};

/* The result, which rank 0 sends to a rank at the end. */
struct verdict {
    struct clock_point point;
    char boot[40]; /* of rank 0's machine */
    int64_t number;
};

/* CLOCK_MONOTONIC. */
static int64_t clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1000000000 * (int64_t)t.tv_sec + t.tv_nsec;
}

/* Reads an id that differs between machines and between starts of one machine. "": not known. */
static void read_boot(char boot[40])
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");

    if (!f || !fgets(boot, 40, f))
        *boot = '\0';
    if (f)
        fclose(f);
}

/* Rank 0 calls this to exchange messages with rank r. */
static struct clock_point ask_clock(MPI_Comm comm, int r)
{
    struct clock_point best = {.round_trip_ns = INT64_MAX};
    int64_t began = clock_ns(), more = AGAIN;

    for (int i = 0; more == AGAIN; i++) {
        int64_t before = clock_ns(), there, after;

        if (i + 1 >= EXCHANGES || (i + 1 >= LEAST && before - began > MOST_NS))
            more = LAST;
        MPI_Send(&more, 1, MPI_INT64_T, r, TAG, comm);
        MPI_Recv(&there, 1, MPI_INT64_T, r, TAG, comm, MPI_STATUS_IGNORE);
        after = clock_ns();
        if (after - before < best.round_trip_ns)
            best = (struct clock_point){.local_ns = there,
                                        .offset_ns = there - (before + (after - before) / 2),
                                        .round_trip_ns = after - before};
    }
    return best;
}

/* Sleeps until rank 0 has sent something. */
static void wait_for_root(MPI_Comm comm)
{
    const struct timespec pause = {.tv_nsec = 200000};
    int here = 0;

    while (MPI_Iprobe(0, TAG, comm, &here, MPI_STATUS_IGNORE), !here)
        nanosleep(&pause, NULL);
}

static void reply_clock(MPI_Comm comm)
{
    wait_for_root(comm);
    for (int64_t more = AGAIN; more == AGAIN;) {
        int64_t time;

        MPI_Recv(&more, 1, MPI_INT64_T, 0, TAG, comm, MPI_STATUS_IGNORE);
        time = clock_ns();
        MPI_Send(&time, 1, MPI_INT64_T, 0, TAG, comm);
    }
}

static void measure_all(MPI_Comm comm, int size, struct verdict *mine)
{
    struct verdict *all = calloc((size_t)size, sizeof *all);

    if (!all)
        MPI_Abort(comm, 1);
    for (int r = 1; r < size; r++) {
        all[r] = *mine;
        all[r].point = ask_clock(comm, r);
    }
    for (int r = 1; r < size; r++)
        MPI_Send(&all[r], (int)sizeof all[r], MPI_BYTE, r, TAG, comm);
    free(all);
}

/*
 * All ranks call this while no other thread calls MPI. Rank 0 exchanges messages with every other
 * rank in turn and takes the fastest of many exchanges. Waiting ranks sleep, so that on a crowded
 * machine they leave the cores to those that measure. *number: rank 0's on entry, the same on every
 * rank afterwards.
 */
static void measure_clock(MPI_Comm comm, struct clock_point *point, int64_t *number)
{
    struct verdict v = {.number = *number};
    char boot[40];
    int rank, size;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    read_boot(boot);
    if (rank == 0) {
        v.point.local_ns = clock_ns();
        memcpy(v.boot, boot, sizeof boot);
        measure_all(comm, size, &v);
    } else {
        reply_clock(comm);
        wait_for_root(comm);
        MPI_Recv(&v, (int)sizeof v, MPI_BYTE, 0, TAG, comm, MPI_STATUS_IGNORE);
        /* One machine has one clock, unless the measurement shows otherwise (as it may in a
         * container). */
        if (*boot && !strcmp(boot, v.boot) && 2 * llabs(v.point.offset_ns) <= v.point.round_trip_ns)
            v.point.offset_ns = v.point.round_trip_ns = 0;
    }
    *point = v.point;
    *number = v.number;
}

/* ---- the log ------------------------------------------------------------------------------------ */

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
    struct clock_point start;
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
        snprintf(text, sizeof text, "starpipe clock %s %" PRId64, when, clock_ns());
        starpu_fxt_trace_user_event_string(text);
    }
}

/* All processes get the same answer: train/start/agree.c has checked the environment. */
static bool is_traced(void)
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
    book.on = book.ranks > 1 && is_traced();
    if (!book.on)
        return;
    book.first = NULL;
    book.end = &book.first;
    book.run = clock_ns();
    measure_clock(comm, &book.start, &book.run);
    mark_clock("start");
}

bool sp_transport_records(void)
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
        r->start_ns = clock_ns();
}

void sp_message_log_ends(struct sp_logged_message *r)
{
    if (r)
        r->end_ns = clock_ns();
}

/* ---- the file -------------------------------------------------------------------------------- */

static json_t *pack_point(const struct clock_point *p)
{
    return json_pack("{sI sI sI}", "local_ns", (json_int_t)p->local_ns, "offset_ns",
                     (json_int_t)p->offset_ns, "round_trip_ns", (json_int_t)p->round_trip_ns);
}

static json_t *pack_message(const struct sp_logged_message *r)
{
    char handle[32];

    snprintf(handle, sizeof handle, "%" PRIxPTR, (uintptr_t)r->handle); /* as StarPU writes it */
    return json_pack("{si sI sI ss ss sI sI}", r->sends ? "to" : "from", r->peer, "tag",
                     (json_int_t)r->tag, "bytes", (json_int_t)r->bytes, "tensor", r->tensor,
                     "handle", handle, "start_ns", (json_int_t)r->start_ns, "end_ns",
                     (json_int_t)r->end_ns);
}

static int write_line(json_t *line, FILE *f)
{
    int err = line ? json_dumpf(line, f, JSON_COMPACT) : -1;

    json_decref(line);
    return err || fputc('\n', f) == EOF;
}

static void write_file(const struct clock_point *end)
{
    const char *dir = getenv("STARPU_FXT_PREFIX"); /* trace_dir.h */
    char path[PATH_MAX];
    int err, fd;
    FILE *f;

    snprintf(path, sizeof path, "%s/messages_%d.jsonl", dir ? dir : ".", book.rank);
    unlink(path); /* never follow a link of that name, nor overwrite a file that others have */
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    f = fd < 0 ? NULL : fdopen(fd, "w");
    err = !f || write_line(json_pack("{si si sI so so}", "rank", book.rank, "ranks", book.ranks,
                                     "run", (json_int_t)book.run, "start", pack_point(&book.start),
                                     "end", pack_point(end)),
                           f);
    for (struct sp_logged_message *r = book.first; !err && r; r = r->next)
        err = write_line(pack_message(r), f);
    if (f && (fclose(f) || err))
        err = 1;
    else if (!f && fd >= 0)
        close(fd);
    if (err)
        sp_warn("cannot write %s: %s", path, strerror(errno));
}

void sp_message_log_stop(MPI_Comm comm)
{
    struct clock_point end;

    if (!book.on)
        return;
    mark_clock("end");
    measure_clock(comm, &end, &book.run);
    write_file(&end);
    for (struct sp_logged_message *r = book.first, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    book.on = false;
}
#endif
