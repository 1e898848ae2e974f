/* How `show` prints a plan and its list-simulated times. */
#ifndef SP_SHOW_H
#define SP_SHOW_H

#include "policies/plan.h"
#include <stdio.h>

struct sp_show {
    const char *schedule; /* as typed */
    const struct sp_plan *plan;
    const struct sp_costs *costs;
    const struct sp_times *times;
    int columns; /* of the text form */
    bool color;
};

/* Each returns 0, or -errno after one line on stderr; write errors are left in ferror(out). */
int sp_show_text(const struct sp_show *show, FILE *out);
int sp_show_json(const struct sp_show *show, FILE *out);
int sp_show_csv(const struct sp_show *show, FILE *out);
int sp_show_svg(const struct sp_show *show, FILE *out);

#endif
