/*
 * One object, times in milliseconds (in units of costs where there is no machine), A before B:
 *   a, b       {schedule, model, machine, source, step}
 *   step_ms    [A, B]
 *   parts      {name: [A, B]} in the mean over the stages
 *   stages     [{stage, part, ms: [A, B]}] the largest difference first
 *   ops        [{stage, op, ms: [A, B], start_ms: [A, B]}] of ops that both have, likewise
 *   alone      [A, B] how many ops the other has not
 */
#include "cli/compare/compare.h"
#include "cli/print.h"
#include "sp_error.h"
#include "sp_figure.h"
#include <errno.h>

static json_t *record_json(const struct sp_timeline *t)
{
    return json_pack("{s:s,s:s,s:s,s:s,s:i}", "schedule", t->schedule, "model", t->model, "machine",
                     t->machine, "source", sp_timeline_source_name(t->source), "step", t->step);
}

static json_t *means_json(const struct sp_comparison *c)
{
    json_t *o = json_object();

    for (int i = 0; i < SP_STEP_PARTS; i++)
        json_object_set_new(o, sp_part_of_step_name(c->mean[i].part),
                            json_pack("[f,f]", sp_figure(c->mean[i].time[0], SP_FIGURE_ALL),
                                      sp_figure(c->mean[i].time[1], SP_FIGURE_ALL)));
    return o;
}

static json_t *stages_json(const struct sp_comparison *c)
{
    json_t *list = json_array();

    for (int i = 0; i < c->n_parts; i++)
        json_array_append_new(list, json_pack("{s:i,s:s,s:[f,f]}", "stage", c->part[i].stage,
                                              "part", sp_part_of_step_name(c->part[i].part), "ms",
                                              sp_figure(c->part[i].time[0], SP_FIGURE_ALL),
                                              sp_figure(c->part[i].time[1], SP_FIGURE_ALL)));
    return list;
}

static json_t *ops_json(const struct sp_comparison *c)
{
    json_t *list = json_array();

    for (int i = 0; i < c->n_ops; i++) {
        const struct sp_compared_op *op = &c->op[i];
        char text[SP_OP_TEXT];

        json_array_append_new(
            list, json_pack("{s:i,s:s,s:[f,f],s:[f,f]}", "stage", c->t[0]->op[op->op[0]].stage,
                            "op", sp_timeline_name(c->t[0], op->op[0], text), "ms", op->length[0],
                            op->length[1], "start_ms", sp_figure(op->start[0], SP_FIGURE_ALL),
                            sp_figure(op->start[1], SP_FIGURE_ALL)));
    }
    return list;
}

int sp_compare_json(const struct sp_comparison *c, FILE *out)
{
    json_t *root = json_pack("{s:o,s:o,s:[f,f],s:o,s:o,s:o,s:[i,i]}", "a", record_json(c->t[0]),
                             "b", record_json(c->t[1]), "step_ms", c->t[0]->length, c->t[1]->length,
                             "parts", means_json(c), "stages", stages_json(c), "ops", ops_json(c),
                             "alone", c->alone[0], c->alone[1]);

    return sp_json_print(root, JSON_REAL_PRECISION(12), out)
               ? sp_error(ENOMEM, "compare: no memory for JSON, or it cannot be written")
               : 0;
}
