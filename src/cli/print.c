#include "cli/print.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int sp_json_print(json_t *root, size_t flags, FILE *out)
{
    bool bad = json_dumpf(root, out, JSON_INDENT(1) | flags) || putc('\n', out) == EOF;

    json_decref(root);
    return bad ? -EIO : 0;
}

json_t *sp_json_reals(const double *v, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_real(v[i]));
    return list;
}

json_t *sp_tiers_json(struct sp_tier_bytes b)
{
    return json_pack("{s:I,s:I,s:I,s:I}", "kept_bytes", (json_int_t)b.kept, "recomputed_bytes",
                     (json_int_t)b.recomputed, "parked_bytes", (json_int_t)b.parked,
                     "evicted_bytes", (json_int_t)b.evicted);
}

void sp_json_add_programs(const struct sp_plan *plan, const struct sp_times *times, json_t *root)
{
    json_t *ranks = json_array(), *all = json_array();

    for (int s = 0; s < plan->layout.stages; s++) {
        json_t *ops = json_array(), *when = json_array();

        for (int k = 0; k < plan->programs[s].n; k++) {
            char text[SP_OP_TEXT];

            sp_op_print(&plan->programs[s].ops[k], plan->layout.slices > 1, text);
            json_array_append_new(ops, json_string(text));
            json_array_append_new(when, json_pack("[f,f]", times->start[s][k], times->end[s][k]));
        }
        json_array_append_new(ranks, ops);
        json_array_append_new(all, when);
    }
    json_object_set_new(root, "ranks", ranks);
    json_object_set_new(root, "times", all);
}

bool sp_rewrites_lines(int fd)
{
    const char *term = getenv("TERM");

    return isatty(fd) && (!term || strcmp(term, "dumb"));
}

double sp_clock_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
