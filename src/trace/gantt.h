/*
 * A Gantt picture of a pipeline, whatever it shows: the list simulation of a schedule, or what a
 * run measured. One row per stage, bars in time, a note and two figures per stage at the right.
 */
#ifndef SP_GANTT_H
#define SP_GANTT_H

#include "policies/lowering/tensor.h"
#include "policies/simulation/times.h"
#include <stdbool.h>
#include <stdio.h>

/* What a bar is of. */
enum sp_bar_kind {
    SP_BAR_F, /* forward */
    SP_BAR_B, /* backward: full, or of the input where W bars exist */
    SP_BAR_W, /* weight gradient */
    SP_BAR_R, /* recompute */
    SP_BAR_U, /* update */
    SP_BAR_C, /* communication, waiting */
    SP_BAR_KINDS
};

struct sp_bar {
    double start, end;
    int stage;
    enum sp_bar_kind kind;
    int mb; /* shades the bar: its micro-batch, or its slice where there is one micro-batch; -1: none */
    int chunk;              /* odd ones are hatched */
    bool joined;            /* one unit with the bar after it */
    int lane;               /* 0 all the row; 1 upper, 2 lower half, of two bars at the same time */
    int live, after;        /* activations alive while it runs, and when it ended */
    double exchange;        /* of its time: for what other devices of its stage send */
    char label[SP_OP_TEXT]; /* short text drawn in the bar when it fits */
    char name[SP_OP_TEXT];  /* full name, shown on hovering */
};

/* A tensor, or several, on the way from one stage to another. */
struct sp_gantt_message {
    double sent, arrived;
    int from, to;
    char name[SP_TENSOR_TEXT]; /* of the op that sends, or the tensor */
};

/* Activations that are not in memory: from when they have left until they are back. */
struct sp_gantt_evicted {
    int stage;
    double from, until;
    int64_t bytes;
};

/* So many bytes of a stage are away from `at` on. */
struct sp_gantt_step {
    double at;
    int64_t bytes;
};

struct sp_gantt {
    char title[160], subtitle[320];
    const char *unit; /* of time: "ms", or "" for the unit of the costs */
    double end;       /* of the time axis, which begins at 0 */
    int stages, n, cap;
    bool parts;   /* bars are parts of layers: odd ones are attention */
    bool uneven;  /* bars are of any length: text fills its width, each tells what fits in it */
    double share; /* of a micro-batch on a whole stage that one activation is */
    struct sp_bar *bars;  /* stage by stage, in order of start */
    double *idle_percent; /* [stages] negative: not shown; NULL: none */
    char (*note)[32];     /* [stages] "peak 4"; NULL: none */
    const char *notes;    /* what they say, in words; "" if they do themselves */
    char (*row)[32];      /* [stages] what rows are called in an SVG; NULL: "stage 0", ... */
    int n_messages, cap_messages;
    struct sp_gantt_message *messages; /* drawn under the bars of the stage that receives; by it */
    int n_away, cap_away;
    struct sp_gantt_evicted *evicted; /* drawn under them, in a row of their own; in any order */
};

/* An empty picture; 0 or -ENOMEM. */
int sp_gantt_create(int stages, struct sp_gantt *g);
void sp_gantt_destroy(struct sp_gantt *g);
int sp_gantt_add(struct sp_gantt *g, const struct sp_bar *bar); /* 0 or -ENOMEM */

/* What a legend shows before its words. */
enum sp_mark {
    SP_MARK_BAR,      /* the shades of a kind of bar */
    SP_MARK_IDLE,     /* the ground of a row */
    SP_MARK_HATCHED,  /* an odd chunk, or attention */
    SP_MARK_FRAME,    /* two bars that are one unit */
    SP_MARK_EXCHANGE, /* a line along the top of a bar */
    SP_MARK_MESSAGE,  /* a line under the bars */
    SP_MARK_EVICTED,  /* a row under the bars, as high as much is away */
    SP_MARK_NUMBER,   /* what stands in bars */
    SP_MARKS
};

struct sp_gantt_key {
    enum sp_mark mark;
    enum sp_bar_kind kind; /* BAR */
    const char *sample;    /* NUMBER: "3.1" */
    const char *text;      /* "forward", "micro-batch 3, chunk 1" */
};

enum { SP_GANTT_KEYS = SP_BAR_KINDS + SP_MARKS, SP_GANTT_SHADES = 8 };

/* What a picture needs explained, in the order of legends: how many. */
int sp_gantt_legend(const struct sp_gantt *g, struct sp_gantt_key key[SP_GANTT_KEYS]);

struct sp_color {
    int r, g, b;
};

/* Of a bar; of the text on a bar of that colour; how well two are told apart, 1 to 21 (WCAG 2.1). */
struct sp_color sp_gantt_color(enum sp_bar_kind kind, int mb);
struct sp_color sp_gantt_ink(struct sp_color fill);
double sp_color_contrast(struct sp_color a, struct sp_color b);
const char *sp_gantt_kind_name(enum sp_bar_kind kind);

/*
 * The label of an op: micro-batch, chunk (or layer) and slice, "3.1s2". Once all bars are there, labels lose what
 * is the same in all of them: chunks where there is one, the micro-batch where slices of one are the only ones, which
 * then are what bars are shaded by. A label that does not fit loses its last part: false, it has only one.
 */
void sp_gantt_label(const struct sp_op *op, int slices, char text[SP_OP_TEXT]);
void sp_gantt_shorten_labels(struct sp_gantt *g);
bool sp_gantt_shorten(char label[SP_OP_TEXT]);
enum sp_bar_kind sp_gantt_kind(const struct sp_op *op);

/* The chunk of an op as pictures show it: odd ones are hatched, so is attention by itself. */
int sp_gantt_shade(const struct sp_op *op);

/* 0 or -ENOMEM. One that arrived before it was sent by the clock takes no time. */
int sp_gantt_add_message(struct sp_gantt *g, const struct sp_gantt_message *message);

/* The note of a stage that holds so many activations at most, in micro-batches on a whole stage. */
void sp_gantt_note_peak(struct sp_gantt *g, int stage, int activations);

/* "12.25 MiB", "46.1 GiB": narrow enough for a note. */
char *sp_gantt_bytes(int64_t bytes, char text[32]);

/* 0 or -ENOMEM. Nothing is away for less than no time. */
int sp_gantt_add_evicted(struct sp_gantt *g, const struct sp_gantt_evicted *evicted);

/* What a stage has away over time: *n steps, the first at 0 or later, the last one of 0 bytes, to be freed; NULL: no
 * memory, or *n is 0. */
struct sp_gantt_step *sp_gantt_evicted_of(const struct sp_gantt *g, int stage, int *n);

/* The picture of list-simulated times, with the bubble and peak of each stage. 0 or -ENOMEM. */
int sp_gantt_from_times(const struct sp_plan *plan, const struct sp_times *times,
                        struct sp_gantt *g);

/* Of a simulated step the messages that took time, what of ops went to exchanges, and what was away. 0 or -ENOMEM. */
struct sp_prediction;
int sp_gantt_add_messages(struct sp_gantt *g, const struct sp_plan *plan,
                          const struct sp_prediction *prediction);

/*
 * Text, `columns` wide: every bar is the number of its micro-batch filled up with '-' for F, '='
 * for B, '~' for W, in odd chunks '_', '%' and '^'; '.' is idle. Bars of one column are digits (F)
 * or letters (B: a is 0); still narrower ones only the fill. `color` adds ANSI colours, and
 * underlines odd chunks.
 */
void sp_gantt_text(const struct sp_gantt *g, int columns, bool color, FILE *out);

/* A self-contained SVG document, 880 pixels wide, light or dark as its reader wants. */
void sp_gantt_svg(const struct sp_gantt *g, FILE *out);

/* Several of them in one page: once the styles and patterns that they share, then each as an element. */
void sp_gantt_svg_shared(FILE *out);
void sp_gantt_svg_element(const struct sp_gantt *g, FILE *out);

/* A line of figures under the title of a page. */
struct sp_gantt_fact {
    char name[32], value[768];
};

/*
 * Pictures as one JSON object, for pages that draw them (page/picture.js):
 *   facts        [name, value] lines
 *   kinds[]      [name, [red, green, blue, "colour of text"] of micro-batches 0, 1, ...] of enum
 *                sp_bar_kind
 *   pictures[]   title, subtitle, unit, end, stages, share, note[stage], notes, idle[stage] (percent,
 *                negative: unknown), legend[] ([mark, kind, sample, text], see sp_gantt_legend), and
 *                rows[stage][k] = [start, end, name, kind (enum sp_bar_kind), micro-batch, chunk, live,
 *                after, lane, joined], with an eleventh where devices of the stage send each other
 *                something: the time that takes; and messages[stage][k] = [sent, arrived, name, from],
 *                of those that it receives, and away[stage][k] = [at, MiB]: so much is away from then on
 */
void sp_gantt_json(const struct sp_gantt *pictures, int n, const struct sp_gantt_fact *facts,
                   int n_facts, FILE *out);

/* A self-contained HTML page with that object in <script id="data">: the pictures one under the other on
 * the same time axis, each with the memory of its stages, to be zoomed and hovered over. */
void sp_gantt_html(const struct sp_gantt *pictures, int n, const struct sp_gantt_fact *facts,
                   int n_facts, FILE *out);

/* A step of 1, 2 or 5 times a power of ten that cuts `length` in at most `most` pieces. */
double sp_gantt_tick(double length, int most);

#endif
