/* The state of a run as `watch` reads it from its log (train/run/log.c), and the ways to show
 * it. */
#ifndef SP_WATCH_H
#define SP_WATCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct sp_watched_step {
    int number;
    double loss, grad_norm, tokens_per_s, step_ms;
};

/* A stage in the last step. */
struct sp_watched_stage {
    double bubble;
    double stashed_bytes, buffer_bytes;
};

struct sp_watched {
    const char *name; /* of the log, in messages */
    long lines;       /* that were read */
    json_t *plan;     /* the first line, or the plan line of a resumed run; NULL: none yet */
    int shift;        /* added to its steps: sp_log_shift */
    int n, cap;
    struct sp_watched_step *steps;
    int stages;
    struct sp_watched_stage *stage;
    int eval_step; /* -1: none yet */
    double eval_loss;
};

/* Start with {.name = .., .eval_step = -1}. Frees what the lines left. */
void sp_watched_destroy(struct sp_watched *w);

/* Adds a line. 0; 1: skipped, since no run has such numbers; -EINVAL after one line on stderr:
 * the line belongs to no log, or it is the first and no plan; -ENOMEM. */
int sp_watched_add(struct sp_watched *w, const char *line, size_t n);

/* Draws a picture of `columns` and at most `rows` lines: the loss, and the stages in the last
 * step. Returns the number of lines drawn. */
int sp_watch_picture(const struct sp_watched *w, int columns, int rows, const char *end_of_line,
                     FILE *out);
/* The last step in one line. */
void sp_watch_line(const struct sp_watched *w, FILE *out);

/* Follows the log until the run ends, or reads what there is (`once`), and shows it on standard
 * output: in place on a terminal, one line a step elsewhere. 0, or -errno after one line on
 * stderr. */
int sp_watch_follow(FILE *in, struct sp_watched *w, bool once);

#endif
