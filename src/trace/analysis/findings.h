/* What makes a step long: replays of it, each without one cause; and the longest waits. */
#ifndef SP_FINDINGS_H
#define SP_FINDINGS_H

#include "trace/analysis/waits.h"

enum sp_finding_kind {
    SP_FINDING_STAGES,     /* stages do not compute alike: a slow one, an uneven partition */
    SP_FINDING_OPS,        /* ops that took longer than others of their kind */
    SP_FINDING_MESSAGES,   /* a link */
    SP_FINDING_INTERFACE,  /* messages behind others */
    SP_FINDING_OFFLOAD,    /* what leaves memory, and comes back */
    SP_FINDING_SUBMISSION, /* what was not submitted in time */
    SP_FINDING_CORE,       /* workers without a core, stages that share a worker */
    SP_FINDING_ENGINE,     /* the runtime */
    SP_FINDING_UPDATE,     /* norm and optimizer */
    SP_FINDINGS
};

struct sp_finding {
    enum sp_finding_kind kind;
    double gain;    /* what the step would be shorter without it */
    int stage;      /* where it is most; of a link, who sends; -1: nowhere */
    char text[256]; /* what it is, where it is most: a sentence without its full stop */
};

/* All of them, that with the largest gain first. Each gain counts by itself: they do not add up. 0 or
 * -ENOMEM. */
int sp_findings_make(const struct sp_waits *w, struct sp_finding findings[SP_FINDINGS]);
const char *sp_finding_name(enum sp_finding_kind kind);

/* An interval in which a stage waited. */
struct sp_long_wait {
    int op; /* the op that could not start */
    enum sp_part_of_step part;
    double time, start; /* how long, from when on */
    int producer;       /* the op that it waited for; -1: none */
};
enum { SP_LONG_WAITS = 3 };

/* The longest, without the end of the step; returns how many there are. */
int sp_long_waits(const struct sp_waits *w, struct sp_long_wait longest[SP_LONG_WAITS]);

#endif
