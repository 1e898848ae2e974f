/* Several commands print these alike: JSON, a machine, text of a model; and on what they print. */
#ifndef SP_CLI_PRINT_H
#define SP_CLI_PRINT_H

#include "plan/machine/machine.h"
#include "plan/offload/offload.h"
#include "policies/plan.h"
#include "policies/simulation/times.h"
#include <jansson.h>
#include <stdio.h>

/* ---- JSON */

/* Prints `root` in lines indented by 1 and frees it; `flags` as json_dumpf has them, besides. 0, or
 * -EIO: it is NULL, or it could not be written. */
int sp_json_print(json_t *root, size_t flags, FILE *out);

json_t *sp_json_reals(const double *v, int n);

/* {kept_bytes, recomputed_bytes, parked_bytes: on other stages, evicted_bytes}: where activations of
 * a step wait for their backwards. */
json_t *sp_tiers_json(struct sp_tier_bytes bytes);

/* Adds "ranks", the ops of each stage, and "times", the [start, end] of each of them. */
void sp_json_add_programs(const struct sp_plan *plan, const struct sp_times *times, json_t *root);

/* ---- a machine (hardware.c) */

/* Prints a machine in words on standard output, or as the file that describes it. 0 or -ENOMEM. */
int sp_hardware_print(const struct sp_machine *m, bool words);

/* ---- text that a model says, printed as it comes, a few bytes at a time (utf8_printer.c) */

struct sp_utf8_printer {
    FILE *to;
    bool plain; /* control characters are shown as '?': a terminal obeys nothing in the text */
    char waiting[4];
    int n_waiting; /* bytes of a character that is not whole yet */
};

/* Prints the characters that are whole, and for bytes that belong to none U+FFFD. */
void sp_utf8_print(struct sp_utf8_printer *p, const char *text, size_t n);
/* There is no more: what waits is no character. */
void sp_utf8_print_end(struct sp_utf8_printer *p);

/* ---- on what it is printed */

/* True if lines of a file descriptor can be written over: it is a terminal, and not a dumb one. */
bool sp_rewrites_lines(int fd);

/* Seconds of a clock that nobody sets. */
double sp_clock_s(void);

#endif
