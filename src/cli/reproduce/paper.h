/*
 * A paper's experiments: the published values, as in published/NAME.json, and the simulated ones.
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
    json_t *config; /* the experiment's common settings, what they imply, and the cell's own */
    const char *id, *row, *column, *unit, *relation, *what; /* relation NULL: equal */
    const char *test;                                       /* of a claim; NULL: it has none */
    struct sp_value published, simulated;
    char note[256]; /* why nothing is simulated, or a remark about it */
};

/* A claim of the text without a number is a cell too: its row is the claim, published is 1,
 * simulated is 1 if the claim holds in the simulation and 0 if not. */
bool sp_cell_is_claim(const struct sp_cell *cell);

struct sp_summary {
    int cells, simulated;
    int claims, claims_right;     /* claims that are simulated, and that hold */
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

/* A figure for which the paper gives no numbers: its values are only simulated. */
struct sp_unpublished {
    const char *id, *row, *column, *unit;
    double simulated;
};

enum { SP_MOST_UNPUBLISHED = 256 };

struct sp_paper {
    const char *name;
    const struct sp_experiment *experiments; /* ends with id NULL */
    /* The same for claims, by their "test"; a claim without one has its "reason". NULL: none
     * has. */
    const struct sp_experiment *claims;
    /* Fills out[SP_MOST_UNPUBLISHED]; returns how many, or -errno after one line. NULL: none. */
    int (*unpublished)(struct sp_unpublished *out);
    /* The same for the effect of changing one assumption at a time. */
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

/* Reads the published values and simulates all of them, with `vary` also under other
 * assumptions. 0, or -errno after one line on stderr. */
int sp_paper_run(struct sp_paper *paper, bool vary);
void sp_paper_destroy(struct sp_paper *paper);
void sp_paper_summarize(struct sp_paper *paper);

/* Cells from the first one on that are in its row; they stand beside each other. */
int sp_paper_row(const struct sp_paper *paper, int first);

/* The value of a run among others, of which the most is the best: a number, or -INFINITY. */
double sp_value_worth(struct sp_value v);

/* The relative error of a simulated value: for a speedup in per cent, of its ratio; for a bound,
 * of the part beyond it. Negative: there is none, as for a claim or a choice. */
double sp_cell_error(const struct sp_cell *cell);

/* Values of a cell's configuration; `otherwise` if the key is missing. */
const char *sp_cell_text(const struct sp_cell *cell, const char *key, const char *otherwise);
int sp_cell_int(const struct sp_cell *cell, const char *key, int otherwise);

void sp_cell_set(struct sp_cell *cell, double simulated);
/* Sets whether a claim holds, and notes by which figures. */
void sp_cell_holds(struct sp_cell *claim, bool holds, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void sp_cell_note(struct sp_cell *cell, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A cell's values as they are printed, "8581.7", "OOM" or "-", and how far they are apart, "1.5 %" or
 * "". */
struct sp_cell_words {
    char published[32], simulated[32], off[32];
};
struct sp_cell_words sp_cell_words(const struct sp_cell *cell);
void sp_value_print(struct sp_value v, char text[32]);

/* The title of the paper, or that of a cell's experiment. */
const char *sp_title(const json_t *of);

/* Prints the summary as sentences, whose parts stand `between` each other: ", ". */
void sp_summary_print(const struct sp_summary *summary, const char *between);

/* Prints a page with bars and tables. 0. */
int sp_paper_html(const struct sp_paper *paper);

#endif
