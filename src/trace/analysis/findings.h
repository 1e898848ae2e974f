/* Finds why a step is long: replays it without each cause in turn, and lists the longest waits. */
#ifndef SP_FINDINGS_H
#define SP_FINDINGS_H

#include "trace/analysis/waits.h"

enum sp_finding_kind {
    SP_FINDING_STAGES,     /* stages do not compute alike: a slow one, an uneven partition */
    SP_FINDING_OPS,        /* ops that took longer than others of their kind */
    SP_FINDING_MESSAGES,   /* a slow link */
    SP_FINDING_INTERFACE,  /* messages that queue behind others */
    SP_FINDING_OFFLOAD,    /* evictions and fetches */
    SP_FINDING_SUBMISSION, /* late submission */
    SP_FINDING_CORE,       /* workers without a core, stages that share a worker */
    SP_FINDING_ENGINE,     /* the runtime */
    SP_FINDING_UPDATE,     /* norm and optimizer */
    SP_FINDINGS
};

struct sp_finding {
    enum sp_finding_kind kind;
    double gain;    /* the time that the step would save without it */
    int stage;      /* the stage it affects most; for a link, the sender; -1: none */
    char text[256]; /* its description there: a sentence without its full stop */
};

/* Makes all findings, the largest gain first. Each gain stands alone: they do not add up. 0 or
 * -ENOMEM. */
int sp_findings_make(const struct sp_waits *w, struct sp_finding findings[SP_FINDINGS]);
const char *sp_finding_name(enum sp_finding_kind kind);

/* An interval in which a stage waited. */
struct sp_long_wait {
    int op; /* the op that could not start */
    enum sp_part_of_step part;
    double time, start; /* its length and start */
    int producer;       /* the op that it waited for; -1: none */
};
enum { SP_LONG_WAITS = 3 };

/* Finds the longest waits, except for the end of the step; returns how many there are. */
int sp_long_waits(const struct sp_waits *w, struct sp_long_wait longest[SP_LONG_WAITS]);

#endif
