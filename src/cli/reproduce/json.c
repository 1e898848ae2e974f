#include "cli/print.h"
#include "cli/reproduce/paper.h"
#include "sp_error.h"
#include <errno.h>

static json_t *value_json(struct sp_value v)
{
    return v.kind == SP_VALUE_NUMBER ? json_real(v.number)
           : v.kind == SP_VALUE_OOM  ? json_string("OOM")
                                     : json_null();
}

static json_t *cell_json(const struct sp_cell *c)
{
    json_t *o = json_pack("{s:s,s:s,s:s,s:o,s:o,s:s,s:s}", "experiment", c->id, "row", c->row,
                          "column", c->column, "published", value_json(c->published), "simulated",
                          value_json(c->simulated), "unit", c->unit, "note", c->note);

    if (sp_cell_is_claim(c))
        json_object_set_new(o, "claim", json_true());
    if (c->relation) /* of the published value */
        json_object_set_new(o, "relation", json_string(c->relation));
    return o;
}

int sp_paper_json(const struct sp_paper *paper)
{
    const struct sp_summary *s = &paper->summary;
    json_t *cells = json_array(), *more = json_array();
    json_t *root = json_pack(
        "{s:s,s:o,s:o,s:{s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:f,s:f}}", "paper", paper->name, "cells",
        cells, "unpublished", more, "summary", "cells", s->cells, "simulated", s->simulated,
        "winners", s->winners, "winners_right", s->winners_right, "verdicts", s->verdicts,
        "verdicts_right", s->verdicts_right, "claims", s->claims, "claims_right", s->claims_right,
        "mean_error", s->mean_error, "worst_error", s->worst_error);
    int err = root ? 0 : -ENOMEM;

    for (int i = 0; !err && i < paper->n; i++)
        err = json_array_append_new(cells, cell_json(&paper->cells[i])) ? -ENOMEM : 0;
    for (int i = 0; !err && i < paper->n_more; i++) {
        const struct sp_unpublished *u = &paper->more[i];

        err = json_array_append_new(more, json_pack("{s:s,s:s,s:s,s:f,s:s}", "experiment", u->id,
                                                    "row", u->row, "column", u->column, "simulated",
                                                    u->simulated, "unit", u->unit))
                  ? -ENOMEM
                  : 0;
    }
    if (err) {
        json_decref(root);
        return sp_error(ENOMEM, "reproduce: no memory for %d cells", paper->n);
    }
    sp_json_print(root, JSON_REAL_PRECISION(6), stdout);
    return 0;
}
