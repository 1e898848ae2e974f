/*
 * A paper's experiments: what it published, as published/NAME.json has it, and what the simulation gives.
 * A file for each paper says how a cell of each of its experiments is simulated.
 */
#ifndef SP_REPRODUCE_PAPER_H
#define SP_REPRODUCE_PAPER_H

#include <jansson.h>
#include <stdbool.h>

enum sp_value_kind { SP_VALUE_NONE, SP_VALUE_NUMBER, SP_VALUE_OOM };

struct sp_value {
    enum sp_value_kind kind;
    double number;
};

struct sp_cell {
    const json_t *experiment;
    json_t *config; /* what the experiment has in common, what that implies, the cell's own */
    const char *id, *row, *column, *unit, *relation, *what; /* relation NULL: equal */
    const char *test;                                       /* of a claim; NULL: it has none */
    struct sp_value published, simulated;
    char note[256]; /* why there is nothing simulated, or what is to be known of it */
};

/* A claim of the text that has no number is a cell too: row the claim, published 1, simulated 1 where it holds in the
 * simulation, and 0. */
bool sp_cell_is_claim(const struct sp_cell *cell);

struct sp_summary {
    int cells, simulated;
    int claims, claims_right;     /* those that are simulated, and hold */
    int winners, winners_right;   /* which of several systems is ahead, which layout is chosen */
    int verdicts, verdicts_right; /* whether a run goes out of memory */
    int compared;                 /* cells with an error */
    double mean_error, worst_error;
    int worst; /* its cell */
};

struct sp_experiment {
    const char *id;
    /* Sets cell->simulated, or cell->note. 0, or -errno after one line on stderr. */
    int (*simulate)(struct sp_cell *cell);
};

/* A figure that the paper has no numbers of: values that are simulated only. */
struct sp_unpublished {
    const char *id, *row, *column, *unit;
    double simulated;
};

enum { SP_MOST_UNPUBLISHED = 256 };

struct sp_paper {
    const char *name;
    const struct sp_experiment *experiments; /* ends with id NULL */
    /* Likewise of claims, by their "test"; a claim without one has its "reason". NULL: none has. */
    const struct sp_experiment *claims;
    /* Fills out[SP_MOST_UNPUBLISHED]; returns how many, or -errno after one line. NULL: none. */
    int (*unpublished)(struct sp_unpublished *out);
    /* The same, of what changes where one assumption is another. */
    int (*assumptions)(const struct sp_paper *paper, struct sp_unpublished *out);

    json_t *root;
    struct sp_cell *cells;
    int n;
    struct sp_unpublished *more;
    int n_more;
    struct sp_summary summary;
};

/* The papers' own files set: name, experiments, claims, unpublished, assumptions. */
extern const struct sp_paper sp_paper_helixpipe, sp_paper_weipipe, sp_paper_sppo, sp_paper_survey;

/* Reads what is published, and simulates all of it, with `vary` also under other assumptions. 0, or -errno after one
 * line on stderr. */
int sp_paper_run(struct sp_paper *paper, bool vary);
void sp_paper_destroy(struct sp_paper *paper);
void sp_paper_summarize(struct sp_paper *paper);

/* The part by which a simulated value misses what was published: of a speedup in per cent, of its ratio; of a
 * bound, what is beyond it. Negative: there is none, as of a claim or a choice. */
double sp_cell_error(const struct sp_cell *cell);

/* Of a cell's configuration. */
const char *sp_cell_text(const struct sp_cell *cell, const char *key, const char *otherwise);
int sp_cell_int(const struct sp_cell *cell, const char *key, int otherwise);

void sp_cell_set(struct sp_cell *cell, double simulated);
void sp_cell_holds(struct sp_cell *claim, bool holds);
void sp_cell_note(struct sp_cell *cell, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A value as it is printed: "8581.7", "OOM", "-". */
const char *sp_value_print(struct sp_value v, char text[32]);

/* The forms. 0, or -errno after one line on stderr. */
int sp_paper_text(const struct sp_paper *paper);
int sp_paper_json(const struct sp_paper *paper);
int sp_paper_markdown(const struct sp_paper *paper);
int sp_paper_html(const struct sp_paper *paper);

#endif
