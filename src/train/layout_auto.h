/*
 * --schedule auto: the layout that is predicted to be fastest on the devices that there are, of those that the
 * options leave open. Options that were given stay as they are, and so do the sequences of a step. Pure.
 */
#ifndef SP_TRAIN_LAYOUT_AUTO_H
#define SP_TRAIN_LAYOUT_AUTO_H

#include "plan/search/search.h"
#include "train/groups.h"
#include <string.h>

#define SP_AUTO_SCHEDULE "auto"

/* Seconds that choosing may take where --auto-within does not say. */
#define SP_AUTO_WITHIN 30

static inline bool sp_layout_is_auto(const struct sp_layout_args *l)
{
    return l->schedule && !strcmp(l->schedule, SP_AUTO_SCHEDULE);
}

/* Has the parser note, in `kept`, which options of a table were given whose defaults are left to auto. */
void sp_layout_auto_watch(struct sp_option *options, struct sp_layout_kept *kept);

/* Devices that layouts are tried on: processes, each with one device, or with workers that share its cores or GPUs. */
struct sp_auto_devices {
    int processes, node_processes; /* all of them, those of a node */
    int workers;                   /* of a process, at most */
    int cores;   /* of a process, that its workers share evenly; 0: workers have no threads */
    int threads; /* of each worker, where the user says; 0: as cores allow */
};

struct sp_auto_request {
    const char *command; /* that messages begin with */
    const struct sp_layout_args *layout;
    const struct sp_group_args *groups;
    const struct sp_model *model;
    enum sp_dtype dtype;
    const struct sp_machine *machine; /* with its figures of all numbers of threads */
    struct sp_auto_devices devices;
    int64_t
        node_bytes; /* of a node's memory, that its workers share, or of a GPU; 0: as the machine says */
    bool no_tensor; /* parameters are not shared out */
    double
        within_s; /* no search of another number of workers begins after so long; 0: all are made */
};

/* A layout, with what it was preferred to. */
struct sp_auto_choice {
    struct sp_found found;
    bool ring;            /* --context-method */
    int64_t memory;       /* bytes of a device that it was planned within */
    struct sp_found next; /* the next best; step_ms 0: there is none */
    int layouts;          /* that were compared, those that do not fit counted */
    double took_s;        /* for that */
    bool cut_short;       /* by within_s */
};

/* Of a described machine: as many as stages and groups were given for, or a node's; a process each. */
struct sp_auto_devices sp_auto_devices_of(const struct sp_machine *machine,
                                          const struct sp_layout_args *l,
                                          const struct sp_group_args *groups);

/* What no search is needed for: 0, or -EINVAL after one line that begins with the command. */
int sp_layout_auto_check(const char *command, const struct sp_layout_args *l,
                         const struct sp_group_args *groups, const struct sp_model *model);

/* Layouts that a run may compare its choice with: the fastest of other numbers of devices and of other schedules, of those
 * that are predicted to take at most SP_AUTO_NEAR times as long. */
enum { SP_AUTO_CONTENDERS = 3 };
#define SP_AUTO_NEAR 1.35

struct sp_auto_contenders {
    struct sp_auto_choice layout[SP_AUTO_CONTENDERS];
    int n;
};

/* 0; -EINVAL after one line: nothing can be run so, or nothing fits, with what the least needs; or -ENOMEM.
 * `contenders`: NULL, they are not asked for. */
int sp_layout_auto(const struct sp_auto_request *r, struct sp_auto_choice *choice,
                   struct sp_auto_contenders *contenders);

/* Takes a choice over as if it had been given. Its texts live in `texts`. */
struct sp_auto_texts {
    char schedule[64], recompute[24];
};

void sp_layout_auto_take(const struct sp_auto_choice *choice, struct sp_layout_args *l,
                         struct sp_group_args *groups, struct sp_auto_texts *texts);

/* As text that any rank reads back as the same layout. */
enum { SP_AUTO_TEXT = 256 };

void sp_auto_choice_pack(const struct sp_auto_choice *choice, char text[SP_AUTO_TEXT]);
int sp_auto_choice_unpack(const char *text, struct sp_auto_choice *choice);

/* "1f1b on 2 stages, 4 micro-batches of 1, recompute none" */
void sp_auto_choice_name(const struct sp_auto_choice *choice, char text[SP_AUTO_TEXT]);
/* "next best zb1p 12.6 ms, +2 %; chosen among 38 layouts in 0.8 s", where the chosen one takes step_ms. */
void sp_auto_choice_reason(const struct sp_auto_choice *choice, double step_ms,
                           char text[SP_AUTO_TEXT]);

/* Whether two choices are one layout. */
bool sp_auto_same(const struct sp_auto_choice *a, const struct sp_auto_choice *b);

#endif
