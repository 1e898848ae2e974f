/* What the JSON forms of several commands have in common. */
#ifndef SP_CLI_JSON_H
#define SP_CLI_JSON_H

#include "policies/plan.h"
#include "policies/simulation/times.h"
#include <jansson.h>
#include <stdio.h>

/* Prints `root` in lines indented by 1 and frees it; `flags` as json_dumpf has them, besides. 0, or
 * -EIO: it is NULL, or it could not be written. */
int sp_json_print(json_t *root, size_t flags, FILE *out);

json_t *sp_json_reals(const double *v, int n);

/* Adds "ranks", the ops of each stage, and "times", the [start, end] of each of them. */
void sp_json_add_programs(const struct sp_plan *plan, const struct sp_times *times, json_t *root);

#endif
