/* Lays the slices of a record out on tracks, on each of which no two slices overlap. */
#ifndef SP_TIMELINE_TRACKS_H
#define SP_TIMELINE_TRACKS_H

#include "trace/timeline/timeline.h"
#include <stddef.h>

enum sp_track_kind {
    SP_TRACK_STAGE,  /* ops */
    SP_TRACK_LINK,   /* between two processes */
    SP_TRACK_MEMORY, /* handed over inside a process */
    SP_TRACK_EVICT,  /* evictions of a stage to a slower memory */
    SP_TRACK_FETCH,  /* fetches */
    SP_TRACK_KINDS
};

struct sp_track {
    enum sp_track_kind kind;
    int a, b;   /* STAGE, EVICT, FETCH: the stage, LINK: ranks from and to, MEMORY: the rank */
    int lane;   /* 0; 1, ... for slices that overlap */
    double end; /* end of its last slice */
    int next;   /* next track of the same kind and `a`; -1: none */
};

struct sp_tracks {
    int n;
    size_t cap;
    struct sp_track *track;
    int *of_op;      /* [n_ops] */
    int *of_message; /* [n_messages] */
    int *first;      /* [SP_TRACK_KINDS * most] by kind and `a` */
    int most;
};

/* 0 or -ENOMEM. */
int sp_tracks_create(const struct sp_timeline *t, struct sp_tracks *tracks);
void sp_tracks_destroy(struct sp_tracks *tracks);

#endif
