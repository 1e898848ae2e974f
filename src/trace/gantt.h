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

/* What a bar is of; the letter is also its name in legends. */
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
    int mb;                 /* shades the bar; -1: none */
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

struct sp_gantt {
    char title[160], subtitle[160];
    const char *unit; /* of time: "ms", or "" for the unit of the costs */
    double end;       /* of the time axis, which begins at 0 */
    int stages, n, cap;
    int chunks;   /* of a stage; layers, where bars are parts of them */
    bool parts;   /* bars are parts of layers: odd ones are attention */
    bool uneven;  /* bars are of any length: text fills its width, each tells what fits in it */
    double share; /* of a micro-batch on a whole stage that one activation is */
    struct sp_bar *bars;  /* stage by stage, in order of start */
    double *idle_percent; /* [stages] negative: not shown; NULL: none */
    char (*note)[32];     /* [stages] "peak 4"; NULL: none */
    char (*row)[32];      /* [stages] what rows are called in an SVG; NULL: "stage 0", ... */
    int n_messages, cap_messages;
    struct sp_gantt_message *messages; /* drawn under the bars of the stage that receives; by it */
};

/* An empty picture; 0 or -ENOMEM. */
int sp_gantt_create(int stages, struct sp_gantt *g);
void sp_gantt_destroy(struct sp_gantt *g);
int sp_gantt_add(struct sp_gantt *g, const struct sp_bar *bar); /* 0 or -ENOMEM */

/* The label of an op: its micro-batch, and the chunk and slice where there are several. */
void sp_gantt_label(const struct sp_op *op, int slices, int chunks, char text[SP_OP_TEXT]);
enum sp_bar_kind sp_gantt_kind(const struct sp_op *op);

/* The chunk of an op as pictures show it: odd ones are hatched, so is attention by itself. */
int sp_gantt_shade(const struct sp_op *op);

/* 0 or -ENOMEM. One that arrived before it was sent by the clock takes no time. */
int sp_gantt_add_message(struct sp_gantt *g, const struct sp_gantt_message *message);

/* Sets `live` and `after` of the bars, which are the ops of the plan in order, and share. */
void sp_gantt_set_live(struct sp_gantt *g, const struct sp_plan *plan);

/* The picture of list-simulated times, with the bubble and peak of each stage. 0 or -ENOMEM. */
int sp_gantt_from_times(const struct sp_plan *plan, const struct sp_times *times,
                        struct sp_gantt *g);

/* Of a simulated step the messages that took time, and what of ops went to exchanges. 0 or -ENOMEM. */
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

/* A self-contained SVG document. */
void sp_gantt_svg(const struct sp_gantt *g, FILE *out);

/* A line of figures under the title of a page. */
struct sp_gantt_fact {
    char name[32], value[768];
};

/*
 * Pictures as one JSON object, for pages that draw them (page/picture.js):
 *   facts        [name, value] lines
 *   pictures[]   title, subtitle, unit, end, stages, chunks, share, note[stage], idle[stage]
 *                (percent, negative: unknown), and rows[stage][k] = [start, end, name, kind (enum
 *                sp_bar_kind), micro-batch, chunk, live, after, lane, joined], with an eleventh where
 *                devices of the stage send each other something: the time that takes; and
 *                messages[stage][k] = [sent, arrived, name, from], of those that it receives
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
