/* What `watch` knows of a run from the lines of its log (train/run/log.c), and how it shows it. */
#ifndef SP_WATCH_H
#define SP_WATCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct sp_watched_step {
    int number;
    double loss, grad_norm, tokens_per_s, step_ms;
};

/* Of the last step. */
struct sp_watched_stage {
    double bubble;
    double stashed_bytes, buffer_bytes;
};

struct sp_watched {
    const char *name; /* of the log, in messages */
    long lines;       /* that were read */
    json_t *plan;     /* the first line, or that of the run that went on; NULL: none yet */
    int shift;        /* of its steps: sp_log_shift */
    int n, cap;
    struct sp_watched_step *steps;
    int stages;
    struct sp_watched_stage *stage;
    int eval_step; /* -1: none yet */
    double eval_loss;
};

/* An empty one: {.name = .., .eval_step = -1}. Frees what the lines left. */
void sp_watched_destroy(struct sp_watched *w);

/* Adds a line. 0; 1: it is left out, as its numbers are none of a run; or -EINVAL after one line on stderr: it is none
 * of a log, or the first and no plan; -ENOMEM. */
int sp_watched_add(struct sp_watched *w, const char *line, size_t n);

/* A picture of `columns` and at most `rows` lines: the loss, and the stages in the last step. Returns its lines. */
int sp_watch_picture(const struct sp_watched *w, int columns, int rows, const char *end_of_line,
                     FILE *out);
/* The last step in one line. */
void sp_watch_line(const struct sp_watched *w, FILE *out);

/* Follows the log until the run ended, or reads what there is (`once`), and shows it on standard output: in place
 * on a terminal, a line a step elsewhere. 0 or -errno after one line on stderr. */
int sp_watch_follow(FILE *in, struct sp_watched *w, bool once);

/* A page with the log in it, on standard output. 0 or -errno after one line on stderr. */
int sp_watch_html(FILE *in, struct sp_watched *w);

#endif
