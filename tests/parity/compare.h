/* Checks of a result, described in cases.h. A check that fails prints a line and is counted. */
#ifndef SP_TESTS_PARITY_COMPARE_H
#define SP_TESTS_PARITY_COMPARE_H

#include "parity/cases.h"
#include "parity/run.h"

/* Checks that did not hold. */
extern int failures;

void fail_case(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The relative differences that were found. */
struct distance {
    double losses, gradients, weights;
};

/* The largest differences allowed: of losses, norms and first gradients; of losses and norms after
 * an update; of the weights after the last step, which are not compared if 0. */
struct bars {
    double first, updated, weights;
};

/* Compares losses, norms and fields of a run with those of a reference. */
struct distance compare_results(const char *what, const struct setup *s, const struct result *r,
                                const struct result *one, struct bars bars);

/* Check the activations and buffers of one run, and the bytes sent if every stage is one of
 * `processes`. */
void check_memory(const struct parity_case *c, const struct setup *s, const struct result *r);
void check_wire(const struct parity_case *c, const struct setup *s, const struct result *r,
                int processes);
void check_halves(const char *what, const struct result *low, const struct result *full);

/* To and from a file, for programs of other numbers of processes. */
void result_save(const struct result *r, const char *path);
void result_load(struct result *r, const char *path);

/* Remembers the bits of `key`, or compares them with those remembered. */
void check_bits(const char *what, const char *key, uint64_t bits);

#endif
