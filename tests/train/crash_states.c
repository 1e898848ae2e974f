/*
 * crash_states RECORD ROOT SCRATCH: replays the events that record_files.c saw in ROOT, and stops
 * the machine after every event. The disk then has all that was synced; any subset of the last 24
 * changes to a directory since its last sync; and all, none or half of a file's contents since its
 * last sync. In every state the checkpoint found must be whole: the last complete one or a later
 * one. Exit status 0, or 1 if not.
 */
#define _GNU_SOURCE
#include "model/files/checksums.h"
#include "sp_error.h"
#include "train/checkpoint/step_dirs.h"
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 20000, PATH = 4400, RECENT = 24 };

struct event {
    char kind[12], a[PATH], b[PATH];
    int data;       /* of sync and look */
    int durable_at; /* the event that makes it durable; MOST: none */
    bool drop;      /* in the state being made */
};

static struct event *events;
static int n_events;
static const char *record, *root, *scratch;
static long states, bad;

/* The directory that an event changes. */
static void parent_of(const struct event *e, char dir[PATH])
{
    bool two =
        !strcmp(e->kind, "rename") || !strcmp(e->kind, "exchange") || !strcmp(e->kind, "symlink");

    strcpy(dir, two ? e->b : e->a);
    *strrchr(dir, '/') = '\0';
}

static bool is_change(const struct event *e)
{
    return strcmp(e->kind, "sync") && strcmp(e->kind, "look") && strcmp(e->kind, "syncdir");
}

static void read_log(void)
{
    char path[PATH], line[2 * PATH];
    FILE *f;

    snprintf(path, sizeof path, "%s/log", record);
    f = fopen(path, "r");
    events = calloc(MOST, sizeof *events);
    while (f && events && n_events < MOST && fgets(line, sizeof line, f)) {
        struct event *e = &events[n_events++];

        sscanf(line, "%11s %4399s %4399s", e->kind, e->a, e->b);
        e->data = atoi(e->b);
        e->durable_at = MOST;
    }
    if (f)
        fclose(f);
    for (int i = 0; i < n_events; i++)
        if (!strcmp(events[i].kind, "syncdir"))
            for (int k = 0; k < i; k++) {
                char dir[PATH];

                parent_of(&events[k], dir);
                if (is_change(&events[k]) && events[k].durable_at == MOST &&
                    !strcmp(dir, events[i].a))
                    events[k].durable_at = i;
            }
}

/* ---- one state -------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

/* The recorded path moved into the scratch directory. */
static const char *there(const char *path, char out[2 * PATH])
{
    snprintf(out, 2 * PATH, "%s%s", scratch, path + strlen(root));
    return out;
}

static void put_contents(const char *path, int data, double share)
{
    char from[PATH], *all = NULL;
    size_t n = 0;
    FILE *f;

    snprintf(from, sizeof from, "%s/data-%d", record, data);
    f = fopen(from, "rb");
    if (f) {
        fseek(f, 0, SEEK_END);
        n = (size_t)ftell(f);
        rewind(f);
        all = malloc(n + 1);
        n = all ? fread(all, 1, n, f) : 0;
        fclose(f);
    }
    f = fopen(path, "r+b"); /* not if its creation was lost */
    if (f) {
        fwrite(all, 1, (size_t)(share * (double)n), f);
        fclose(f);
    }
    free(all);
}

/* Applies an event; a fraction `share` of contents that are not synced reaches the disk. */
static void apply(const struct event *e, double share)
{
    char a[2 * PATH], b[2 * PATH];

    there(e->a, a);
    if (!strcmp(e->kind, "create"))
        close(open(a, O_WRONLY | O_CREAT, 0666));
    else if (!strcmp(e->kind, "sync"))
        put_contents(a, e->data, 1);
    else if (!strcmp(e->kind, "look"))
        put_contents(a, e->data, share);
    else if (!strcmp(e->kind, "mkdir"))
        mkdir(a, 0777);
    else if (!strcmp(e->kind, "rename"))
        rename(a, there(e->b, b));
    else if (!strcmp(e->kind, "exchange"))
        renameat2(AT_FDCWD, a, AT_FDCWD, there(e->b, b), RENAME_EXCHANGE);
    else if (!strcmp(e->kind, "symlink"))
        (void)!symlink(e->a, there(e->b, b));
    else if (!strcmp(e->kind, "unlink"))
        unlink(a);
    else if (!strcmp(e->kind, "rmdir"))
        rmdir(a);
}

/* N of an event that makes step N, -1 of others. */
static long makes_step(const struct event *e)
{
    bool moves = !strcmp(e->kind, "rename") || !strcmp(e->kind, "exchange");

    return moves && !strncmp(e->b, root, strlen(root)) ? sp_step_number(e->b + strlen(root) + 1, "")
                                                       : -1;
}

/* DIR itself is a model for others. */
static bool links_to_nothing(void)
{
    char path[PATH];
    struct stat st;

    snprintf(path, sizeof path, "%s/model.safetensors", scratch);
    return !lstat(path, &st) && stat(path, &st);
}

static void check(int last, const char *what)
{
    static const char *const names[] = {"config.json", "state.json", "optimizer-m.safetensors",
                                        "optimizer-v.safetensors", NULL};
    long done = -1, step = -1;
    bool expected = false;
    char path[SP_RUN_PATH] = "";
    struct sp_dir dir;
    int err, first = 0;

    for (int i = 0; i <= last; i++)
        if (makes_step(&events[i]) >= 0 && events[i].durable_at <= last) {
            done = makes_step(&events[i]);
            first = i;
        }
    states++;
    sp_error_hold(1); /* the refusal is printed below */
    err = sp_step_open(scratch, &dir);
    if (!err) {
        const char *name = strrchr(dir.path, '/') + 1;

        step = sp_step_number(name, "");
        step = step < 0 ? sp_step_number(name, ".replaced") : step;
        snprintf(path, sizeof path, "%s", dir.path);
        err = sp_checksums_verify(&dir, names, 0, 1);
        sp_dir_close(&dir);
    }
    sp_error_hold(0);
    for (int i = first; i <= last; i++)
        expected |= step >= 0 && makes_step(&events[i]) == step;
    if (links_to_nothing())
        err = -ENOENT, what = "a link to nothing";
    else if ((err && done < 0 && step < 0) || (!err && expected))
        return;
    if (bad++ < 10)
        printf("after event %d (%s %s %s), %s: found step %ld (%s), %ld was complete\n", last,
               events[last].kind, events[last].a, events[last].b, what, step,
               err ? strerror(-err) : "whole", done);
}

/* The disk after event `last`, without the changes that are marked. */
static void make_state(int last, double share, const char *what)
{
    nftw(scratch, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    mkdir(scratch, 0777);
    for (int i = 0; i <= last; i++)
        if (!events[i].drop)
            apply(&events[i], share);
    check(last, what);
}

/* Loses each open change alone, and keeps each alone. Without SP_LONG only every second change is
 * tried, the others after the next event. */
static void stop_after(int last, unsigned *seed)
{
    int open_changes[RECENT], n = 0, step = getenv("SP_LONG") ? 1 : 2;

    for (int i = 0; i <= last; i++) {
        events[i].drop = false;
        /* what is long past has reached the disk, synced or not */
        if (is_change(&events[i]) && events[i].durable_at > last && last - i < RECENT && n < RECENT)
            open_changes[n++] = i;
    }
    make_state(last, 1, "all changes there");
    make_state(last, 0.5, "half of what was not synced");
    make_state(last, 0, "nothing of what was not synced");
    for (int k = last % step; k < n; k += step) {
        events[open_changes[k]].drop = true;
        make_state(last, 1, "one change lost");
        events[open_changes[k]].drop = false;
    }
    for (int alone = -1; n > 1 && alone < n; alone++) {
        if (alone >= 0 && (last + alone) % step)
            continue;
        for (int k = 0; k < n; k++)
            events[open_changes[k]].drop = k != alone;
        make_state(last, 0, alone < 0 ? "all changes lost" : "all changes lost but one");
    }
    for (int turn = 0; n > 2 && turn < 6 / step; turn++) {
        for (int k = 0; k < n; k++)
            events[open_changes[k]].drop = rand_r(seed) & 1;
        make_state(last, (turn % 3) / 2.0, "some changes lost");
    }
}

int main(int argc, char **argv)
{
    unsigned seed = 1;
    int saves = 0;

    if (argc != 4)
        return 1;
    record = argv[1], root = argv[2], scratch = argv[3];
    read_log();
    for (int i = 0; i < n_events; i++) {
        saves += makes_step(&events[i]) >= 0;
        stop_after(i, &seed);
    }
    printf("%d events, %d saves, %ld states: %ld wrong\n", n_events, saves, states, bad);
    free(events);
    return bad > 0 || saves == 0;
}
