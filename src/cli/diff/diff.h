/* The parts of `starpipe diff`: tensors and logs. */
#ifndef SP_DIFF_H
#define SP_DIFF_H

#include "model/files/safetensors.h"
#include <jansson.h>

/* The result of a comparison, which is also the command's exit status. */
enum sp_diff { SP_DIFF_SAME, SP_DIFF_DIFFERENT, SP_DIFF_UNREADABLE };

struct sp_diff_options {
    double tolerance; /* relative; 0: the same bits */
    bool part;        /* A may lack tensors and steps of B */
    int worst;        /* tensors to print */
    json_t *parts;    /* takes an object for each comparison, and nothing is printed; NULL: text */
};

/*
 * Compares tensors of the same name, in the order of A's files. Two elements differ if their bits
 * as floats differ; a tensor is beyond the tolerance if max|a - b| > tolerance max|b|. Prints the
 * first and the last tensor beyond it, the worst ones, and in the last line how many there are.
 */
enum sp_diff sp_diff_tensors(const struct sp_st_file *a, const struct sp_st_file *b,
                             const struct sp_diff_options *options);

/*
 * Compares the loss and the gradient norm of every step of two logs of `train --log`. Prints the
 * first step at which one is beyond the tolerance, |a - b| > tolerance |b|, and a summary.
 */
enum sp_diff sp_diff_logs(const char *a, const char *b, const struct sp_diff_options *options);

/* The number, or null if it is infinite, which JSON cannot say: some element is NaN, or all of
 * B's are 0. */
json_t *sp_diff_json(double v);

#endif
