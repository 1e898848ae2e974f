#include "trace/timeline/tracks.h"
#include "sp_grow.h"
#include <errno.h>
#include <stdlib.h>

struct slice {
    double start, end;
    int number; /* number of an op, or n_ops + that of a message */
};

static int compare(const void *x, const void *y)
{
    const struct slice *a = x, *b = y;

    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return a->number - b->number;
}

static int add(struct sp_tracks *all, const struct sp_track *track)
{
    if (!sp_grow(&all->track, (size_t)all->n + 1, &all->cap, sizeof *all->track))
        return -ENOMEM;
    all->track[all->n] = *track;
    return all->n++;
}

/* Finds the first lane of (kind, a, b) that is free when the slice starts. An end that exceeds the
 * next start only by rounding does not overlap. */
static int place(struct sp_tracks *all, enum sp_track_kind kind, int a, int b,
                 const struct slice *s)
{
    int *at = &all->first[kind * all->most + a], lane = 0, last = -1;
    double slack = 1e-9 * (s->end - s->start);

    for (int i = *at; i >= 0; i = all->track[i].next) {
        struct sp_track *track = &all->track[i];

        last = i;
        if (track->b != b)
            continue;
        if (track->end <= s->start + slack) {
            track->end = s->end;
            return i;
        }
        lane++;
    }
    lane = add(all, &(struct sp_track){kind, a, b, lane, s->end, -1});
    if (lane >= 0 && last >= 0)
        all->track[last].next = lane;
    else if (lane >= 0)
        *at = lane;
    return lane;
}

static int place_message(const struct sp_timeline *t, struct sp_tracks *all,
                         const struct sp_timeline_message *m, const struct slice *s)
{
    if (sp_timeline_is_move(m))
        return place(all, m->kind == SP_ACTION_EVICT ? SP_TRACK_EVICT : SP_TRACK_FETCH, m->from, 0,
                     s);
    if (!sp_timeline_crosses(t, m))
        return place(all, SP_TRACK_MEMORY, t->stage[m->to].rank, 0, s);
    return place(all, SP_TRACK_LINK, t->stage[m->from].rank, t->stage[m->to].rank, s);
}

static int place_all(const struct sp_timeline *t, struct sp_tracks *all, struct slice *slice)
{
    int n = 0, track = 0;

    for (int i = 0; i < t->n_ops; i++)
        slice[n++] = (struct slice){t->op[i].start, t->op[i].end, i};
    for (int i = 0; i < t->n_messages; i++)
        slice[n++] = (struct slice){t->message[i].sent, t->message[i].arrived, t->n_ops + i};
    qsort(slice, (size_t)n, sizeof *slice, compare);
    /* a stage gets its first track, whatever slice comes first */
    for (int s = 0; track >= 0 && s < t->stages; s++) {
        track = add(all, &(struct sp_track){SP_TRACK_STAGE, s, 0, 0, -1e300, -1});
        all->first[SP_TRACK_STAGE * all->most + s] = track;
    }
    for (int i = 0; track >= 0 && i < n; i++) {
        int k = slice[i].number;

        if (k < t->n_ops)
            track = all->of_op[k] = place(all, SP_TRACK_STAGE, t->op[k].stage, 0, &slice[i]);
        else
            track = all->of_message[k - t->n_ops] =
                place_message(t, all, &t->message[k - t->n_ops], &slice[i]);
    }
    return track < 0 ? -ENOMEM : 0;
}

int sp_tracks_create(const struct sp_timeline *t, struct sp_tracks *tracks)
{
    size_t slices = (size_t)t->n_ops + (size_t)t->n_messages + 1;
    struct slice *slice = malloc(slices * sizeof *slice);
    int err = -ENOMEM;

    *tracks = (struct sp_tracks){.most = t->stages > t->processes ? t->stages : t->processes};
    tracks->of_op = calloc(slices, sizeof *tracks->of_op);
    tracks->first = malloc(SP_TRACK_KINDS * (size_t)tracks->most * sizeof *tracks->first);
    if (slice && tracks->of_op && tracks->first) {
        tracks->of_message = tracks->of_op + t->n_ops;
        for (int i = 0; i < SP_TRACK_KINDS * tracks->most; i++)
            tracks->first[i] = -1;
        err = place_all(t, tracks, slice);
    }
    free(slice);
    if (err)
        sp_tracks_destroy(tracks);
    return err;
}

void sp_tracks_destroy(struct sp_tracks *tracks)
{
    free(tracks->track);
    free(tracks->of_op);
    free(tracks->first);
    *tracks = (struct sp_tracks){0};
}
