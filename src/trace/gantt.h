/*
 * A Gantt picture of a pipeline: of a schedule's list simulation, or of a measured run. Each stage
 * has a row with bars in time, and a note and two figures at the right.
 */
#ifndef SP_GANTT_H
#define SP_GANTT_H

#include "policies/lowering/tensor.h"
#include "policies/simulation/times.h"
#include <stdbool.h>
#include <stdio.h>

/* The kinds of bars. */
enum sp_bar_kind {
    SP_BAR_F, /* forward */
    SP_BAR_B, /* backward: full, or of the input if W bars exist */
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
    int mb;                 /* for the shade: micro-batch, or slice of the only one; -1: none */
    int chunk;              /* odd ones are hatched */
    bool joined;            /* one unit with the bar after it */
    int lane;               /* 0: whole row; 1, 2: upper, lower half, for two bars at once */
    int live, after;        /* activations alive while it runs, and after its end */
    double exchange;        /* part of its time that is spent on exchanges within its stage */
    char label[SP_OP_TEXT]; /* short text drawn in the bar if it fits */
    char name[SP_OP_TEXT];  /* full name, shown on hovering */
};

/* A tensor, or several, in transit from one stage to another. */
struct sp_gantt_message {
    double sent, arrived;
    int from, to;
    char name[SP_TENSOR_TEXT]; /* name of the op that sends, or of the tensor */
};

/* Evicted activations: from the end of their eviction to the end of their fetch. */
struct sp_gantt_evicted {
    int stage;
    double from, until;
    int64_t bytes;
};

/* From `at` on, so many bytes of a stage are evicted. */
struct sp_gantt_step {
    double at;
    int64_t bytes;
};

struct sp_gantt {
    char title[160], subtitle[320];
    const char *unit; /* of time: "ms", or "" for the unit of the costs */
    double end;       /* end of the time axis, which begins at 0 */
    int stages, n;
    size_t cap;
    bool parts;   /* bars are parts of layers: odd ones are attention */
    bool uneven;  /* bars have any length: text fills its width, each shows as much as fits */
    double share; /* one activation, as part of a micro-batch on a whole stage */
    struct sp_bar *bars;  /* stage by stage, in order of start */
    double *idle_percent; /* [stages] negative: not shown; NULL: none */
    char (*note)[32];     /* [stages] "peak 4"; NULL: none */
    const char *notes;    /* explains the notes; "" if they explain themselves */
    char (*row)[32];      /* [stages] names of rows in an SVG; NULL: "stage 0", ... */
    int n_messages;
    size_t cap_messages;
    struct sp_gantt_message *messages; /* by receiver, and drawn under the bars of that stage */
    int n_away;
    size_t cap_away;
    struct sp_gantt_evicted *evicted; /* drawn below them, in a separate row; in any order */
};

/* Makes an empty picture. 0 or -ENOMEM. */
int sp_gantt_create(int stages, struct sp_gantt *g);
void sp_gantt_destroy(struct sp_gantt *g);
int sp_gantt_add(struct sp_gantt *g, const struct sp_bar *bar); /* 0 or -ENOMEM */

/* The sign that a legend shows before its words. */
enum sp_mark {
    SP_MARK_BAR,      /* the shades of a kind of bar */
    SP_MARK_IDLE,     /* the ground of a row */
    SP_MARK_HATCHED,  /* an odd chunk, or attention */
    SP_MARK_FRAME,    /* two bars that are one unit */
    SP_MARK_EXCHANGE, /* a line along the top of a bar */
    SP_MARK_MESSAGE,  /* a line under the bars */
    SP_MARK_EVICTED,  /* a row under the bars whose height is the evicted bytes */
    SP_MARK_NUMBER,   /* the label of a bar */
    SP_MARKS
};

struct sp_gantt_key {
    enum sp_mark mark;
    enum sp_bar_kind kind; /* BAR */
    const char *sample;    /* NUMBER: "3.1" */
    const char *text;      /* "forward", "micro-batch 3, chunk 1" */
};

enum { SP_GANTT_KEYS = SP_BAR_KINDS + SP_MARKS, SP_GANTT_SHADES = 8 };

/* Lists the signs that a picture must explain, in the order of legends. Returns how many. */
int sp_gantt_legend(const struct sp_gantt *g, struct sp_gantt_key key[SP_GANTT_KEYS]);

struct sp_color {
    int r, g, b;
};

/* The colour of a bar; that of text on a bar of this colour; and the contrast of two colours, 1 to
 * 21 (WCAG 2.1). */
struct sp_color sp_gantt_color(enum sp_bar_kind kind, int mb);
struct sp_color sp_gantt_ink(struct sp_color fill);
double sp_color_contrast(struct sp_color a, struct sp_color b);
const char *sp_gantt_kind_name(enum sp_bar_kind kind);

/*
 * Makes the label of an op: micro-batch, chunk (or layer) and slice, "3.1s2". Once all bars are
 * there, sp_gantt_shorten_labels drops the parts that are the same in all labels: the chunk if
 * there is one, the micro-batch if there is one and it has slices; then the slice shades the bars.
 * sp_gantt_shorten drops the last part of a label that does not fit; false: it has only one part.
 */
void sp_gantt_label(const struct sp_op *op, int slices, char text[SP_OP_TEXT]);
void sp_gantt_shorten_labels(struct sp_gantt *g);
bool sp_gantt_shorten(char label[SP_OP_TEXT]);
enum sp_bar_kind sp_gantt_kind(const struct sp_op *op);

/* The chunk of an op as pictures show it: odd chunks are hatched, and so is attention as a separate
 * op. */
int sp_gantt_shade(const struct sp_op *op);

/* Adds a message. If the clocks say that it arrived before it was sent, it takes no time. 0 or
 * -ENOMEM. */
int sp_gantt_add_message(struct sp_gantt *g, const struct sp_gantt_message *message);

/* Sets the note of a stage to its peak of activations, in micro-batches on a whole stage. */
void sp_gantt_note_peak(struct sp_gantt *g, int stage, int activations);

/* Writes "12.25 MiB", "46.1 GiB": narrow enough for a note. */
char *sp_gantt_bytes(int64_t bytes, char text[32]);

/* Adds an eviction; one of no duration or less is ignored. 0 or -ENOMEM. */
int sp_gantt_add_evicted(struct sp_gantt *g, const struct sp_gantt_evicted *evicted);

/* The evicted bytes of a stage over time: *n steps, the first at 0 or later, the last one of 0
 * bytes. The caller frees them; NULL: no memory, or *n is 0. */
struct sp_gantt_step *sp_gantt_evicted_of(const struct sp_gantt *g, int stage, int *n);

/* Makes the picture of list-simulated times, with the bubble and peak of each stage. 0 or
 * -ENOMEM. */
int sp_gantt_from_times(const struct sp_plan *plan, const struct sp_times *times,
                        struct sp_gantt *g);

/* Adds the messages of a simulated step that took time, the exchanges of its ops, and its
 * evictions. 0 or -ENOMEM. */
struct sp_prediction;
int sp_gantt_add_messages(struct sp_gantt *g, const struct sp_plan *plan,
                          const struct sp_prediction *prediction);

/*
 * Draws the picture as text, `columns` wide. Every bar is the number of its micro-batch followed by
 * '-' for F, '=' for B, '~' for W, in odd chunks '_', '%' and '^'; '.' is idle. A bar of one column
 * is a digit (F) or a letter (B: a is 0); a narrower one has only the fill. `color` adds ANSI
 * colours, and underlines odd chunks.
 */
void sp_gantt_text(const struct sp_gantt *g, int columns, bool color, FILE *out);

/* Writes a self-contained SVG document, 880 pixels wide, light or dark as its reader prefers. */
void sp_gantt_svg(const struct sp_gantt *g, FILE *out);

/* Several pictures in one page: first, once, the styles and patterns that they share, then each as
 * an element. */
void sp_gantt_svg_shared(FILE *out);
void sp_gantt_svg_element(const struct sp_gantt *g, FILE *out);

/* A line of figures under the title of a page. */
struct sp_gantt_fact {
    char name[32], value[768];
};

/*
 * Writes pictures as one JSON object, for pages that draw them (page/picture.js):
 *
 * facts        [name, value] lines
 * kinds[]      [name, [red, green, blue, "colour of text"] of micro-batches 0, 1, ...] of enum
 *              sp_bar_kind
 * pictures[]   title, subtitle, unit, end, stages, share, note[stage], notes, idle[stage] (percent,
 *              negative: unknown), legend[] ([mark, kind, sample, text], see sp_gantt_legend), and
 *              rows[stage][k] = [start, end, name, kind (enum sp_bar_kind), micro-batch, chunk,
 *              live, after, lane, joined], with an eleventh if devices of the stage exchange data:
 *              the time of that; and messages[stage][k] = [sent, arrived, name, from], which the
 *              stage receives, and away[stage][k] = [at, MiB]: so much is evicted from then on
 */
void sp_gantt_json(const struct sp_gantt *pictures, int n, const struct sp_gantt_fact *facts,
                   int n_facts, FILE *out);

/* Writes a self-contained HTML page with that object in <script id="data">: the pictures one
 * under the other on the same time axis, each with the memory of its stages, to zoom and to
 * hover over. */
void sp_gantt_html(const struct sp_gantt *pictures, int n, const struct sp_gantt_fact *facts,
                   int n_facts, FILE *out);

/* The step of 1, 2 or 5 times a power of ten that cuts `length` into at most `most` pieces. */
double sp_gantt_tick(double length, int most);

#endif
