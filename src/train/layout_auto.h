/*
 * --schedule auto: chooses, of the layouts that the options leave open, the one that is predicted
 * to be fastest on the devices that there are. It changes neither options that were given nor the
 * sequences of a step. Pure.
 */
#ifndef SP_TRAIN_LAYOUT_AUTO_H
#define SP_TRAIN_LAYOUT_AUTO_H

#include "plan/search/search.h"
#include "train/groups.h"
#include <string.h>

#define SP_AUTO_SCHEDULE "auto"

/* Seconds that choosing may take if --auto-within is not given. */
#define SP_AUTO_WITHIN 30

static inline bool sp_layout_is_auto(const struct sp_layout_args *l)
{
    return l->schedule && !strcmp(l->schedule, SP_AUTO_SCHEDULE);
}

/* Makes the parser note in `kept` which of the options that auto may choose were given. */
void sp_layout_auto_watch(struct sp_option *options, struct sp_layout_kept *kept);

/* Devices that layouts are tried on: processes, each with one device or with workers that share
 * its cores or GPUs. */
struct sp_auto_devices {
    int processes, node_processes; /* all of them, those of a node */
    int workers;                   /* of a process, at most */
    int cores;   /* of a process, which its workers share evenly; 0: workers have no threads */
    int threads; /* of each worker, if the user says; 0: as many as cores allow */
};

struct sp_auto_request {
    const char *command; /* messages begin with it */
    const struct sp_layout_args *layout;
    const struct sp_group_args *groups;
    const struct sp_model *model;
    enum sp_dtype dtype;
    const struct sp_machine *machine; /* with its figures for all numbers of threads */
    struct sp_auto_devices devices;
    int64_t
        node_bytes; /* memory of a node, which its workers share, or of a GPU; 0: the machine's */
    double
        within_s; /* after this time no search for another number of workers begins; 0: no limit */
};

/* A layout, and the alternatives it was preferred to. */
struct sp_auto_choice {
    struct sp_found found;
    int ulysses;          /* --context-method: devices that divide the heads */
    int64_t memory;       /* bytes of a device that it was planned within */
    struct sp_found next; /* the next best; step_ms 0: there is none */
    int layouts;          /* number of layouts compared, including those that do not fit */
    double took_s;        /* time of the search */
    bool cut_short;       /* within_s ended it */
};

/* The devices of a described machine: enough for the given stages and groups, or those of a
 * node; a process for each. */
struct sp_auto_devices sp_auto_devices_of(const struct sp_machine *machine,
                                          const struct sp_layout_args *l,
                                          const struct sp_group_args *groups);

/* Refuses what needs no search: 0, or -EINVAL after one line that begins with the command. */
int sp_layout_auto_check(const char *command, const struct sp_layout_args *l,
                         const struct sp_group_args *groups, const struct sp_model *model);

/* Layouts that a run may compare its choice with: the fastest with other numbers of devices or
 * other schedules, among those that are predicted to take at most SP_AUTO_NEAR times as long. */
enum { SP_AUTO_CONTENDERS = 3 };
#define SP_AUTO_NEAR 1.35

struct sp_auto_contenders {
    struct sp_auto_choice layout[SP_AUTO_CONTENDERS];
    int n;
};

/* 0; -EINVAL after one line: no such layout can be run, or none fits (the line says what the
 * smallest needs); or -ENOMEM. `contenders` may be NULL. */
int sp_layout_auto(const struct sp_auto_request *r, struct sp_auto_choice *choice,
                   struct sp_auto_contenders *contenders);

/* Takes a choice over as if its options had been given. Its texts live in `texts`. */
struct sp_auto_texts {
    char schedule[64], recompute[24], method[SP_METHOD_TEXT];
};

void sp_layout_auto_take(const struct sp_auto_choice *choice, struct sp_layout_args *l,
                         struct sp_group_args *groups, struct sp_auto_texts *texts);

/* A choice as text that every rank reads back as the same layout. */
enum { SP_AUTO_TEXT = 256 };

void sp_auto_choice_pack(const struct sp_auto_choice *choice, char text[SP_AUTO_TEXT]);
int sp_auto_choice_unpack(const char *text, struct sp_auto_choice *choice);

/* "1f1b on 2 stages, 4 micro-batches of 1, recompute none" */
void sp_auto_choice_name(const struct sp_auto_choice *choice, char text[SP_AUTO_TEXT]);
/* "next best zb1p 12.6 ms, +2 %; chosen among 38 layouts in 0.8 s", where the chosen one takes
 * step_ms. */
void sp_auto_choice_reason(const struct sp_auto_choice *choice, double step_ms,
                           char text[SP_AUTO_TEXT]);

/* True if two choices are the same layout. */
bool sp_auto_same(const struct sp_auto_choice *a, const struct sp_auto_choice *b);

#endif
