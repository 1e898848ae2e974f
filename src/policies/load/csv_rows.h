/* The rows of a CSV as they are read; src/policies/load/csv.c makes a plan of them. */
#ifndef SP_CSV_ROWS_H
#define SP_CSV_ROWS_H

#include "policies/plan.h"
#include <stdio.h>

struct sp_csv_action {
    unsigned short global, mb;
    char letter;
    bool paired;       /* with the next action */
    unsigned int cell; /* from 1 */
};

struct sp_csv_row {
    int n, cap;
    struct sp_csv_action *actions;
    int globals; /* how many different ones */
};

struct sp_csv_reader {
    FILE *in;
    const char *name;
    int rows, cap; /* row r is line r + 1 */
    struct sp_csv_row *row;
    unsigned int cell;
    int owner[SP_MAX_SIZE]; /* row of a global stage, -1: none yet */
    int globals, micro_batches;
    long long ops;
};

/* Reads the next line as a row, and enters its stages in `owner`. 0, or -EINVAL or -ENOMEM after
 * one line on stderr. */
int sp_csv_read_row(struct sp_csv_reader *r);

/* Prints one line on stderr about a cell of a row (0: about the row). Returns -EINVAL. */
int sp_csv_refuse(const struct sp_csv_reader *r, int row, unsigned int cell, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
