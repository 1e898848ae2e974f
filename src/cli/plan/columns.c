/* The columns of a table of layouts: their contents, and the choice of those worth their space. */
#include "cli/plan/ranking.h"
#include "sp_figure.h"
#include "sp_text.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

void sp_cell_figure(double v, char cell[SP_CELL])
{
    int digits = fabs(v) < 1e-3 ? 0 : (int)floor(log10(fabs(v))) + 1; /* before the point */

    snprintf(cell, SP_CELL, "%.*f", digits >= 3 ? 0 : digits > 0 ? 3 - digits : 3, v);
}

void sp_cell_duration(double ms, char cell[SP_CELL])
{
    bool long_one = ms >= 999.5;

    sp_cell_figure(long_one ? ms / 1e3 : ms, cell);
    strcat(cell, long_one ? " s" : " ms");
}

void sp_cell_bytes(int64_t bytes, char cell[SP_CELL])
{
    double gib = (double)bytes / (1 << 30);

    sp_cell_figure(gib >= 0.1 || !bytes ? gib : 1024 * gib, cell);
    strcat(cell, gib >= 0.1 || !bytes ? " GiB" : " MiB");
}

void sp_cell_print(const struct sp_ranking *r, const struct sp_column *c, const struct sp_found *f,
                   char cell[SP_CELL])
{
    char text[SP_RECOMPUTE_TEXT];

    switch (c->what) {
    case SP_COLUMN_INT:
        snprintf(cell, SP_CELL, "%d", *(const int *)((const char *)f + c->at));
        break;
    case SP_COLUMN_SCHEDULE:
        sp_text_show(f->schedule, cell, SP_CELL);
        break;
    case SP_COLUMN_MICRO_BATCHES:
        snprintf(cell, SP_CELL, "%d x %d", f->micro_batches, f->batch);
        break;
    case SP_COLUMN_RECOMPUTE:
        snprintf(cell, SP_CELL, "%s", sp_found_recompute(f, text));
        break;
    case SP_COLUMN_OFFLOAD:
        snprintf(cell, SP_CELL, "%s", sp_offload_name(f->offload));
        break;
    case SP_COLUMN_VOCABULARY:
        snprintf(cell, SP_CELL, "%s", f->vocabulary ? "split" : "-");
        break;
    case SP_COLUMN_LAYERS:
        snprintf(cell, SP_CELL, "%s", f->balanced ? "by time" : "even");
        break;
    case SP_COLUMN_DTYPE:
        snprintf(cell, SP_CELL, "%s", r->want->any_dtype ? sp_dtype_name(f->dtype) : "-");
        break;
    case SP_COLUMN_STEP:
        sp_cell_duration(f->step_ms, cell);
        break;
    case SP_COLUMN_TOKENS:
        sp_cell_figure(f->tokens_per_s, cell);
        break;
    case SP_COLUMN_BUBBLE:
        snprintf(cell, SP_CELL, "%.1f %%", sp_figure(100 * f->bubble, 1));
        break;
    case SP_COLUMN_MEMORY:
        sp_cell_bytes(f->memory, cell);
        break;
    case SP_COLUMN_REMARK: /* if none fits, the heading says it of all */
        snprintf(cell, SP_CELL, "%s",
                 !f->fits && r->all[0].fits ? "does not fit"
                 : f->trains                ? ""
                                            : "simulated only");
        break;
    }
}

static const struct sp_column columns[] = {
    {.name = "schedule", .what = SP_COLUMN_SCHEDULE, .left = true, .kept = true},
    {.name = "stages", .at = offsetof(struct sp_found, stages)},
    {.name = "tensor",
     .at = offsetof(struct sp_found, devices),
     .neutral = "1",
     .legend = "tensor: devices of a stage that share parameters"},
    {.name = "context",
     .at = offsetof(struct sp_found, context),
     .neutral = "1",
     .legend = "context: devices of a stage that share tokens"},
    {.name = "data",
     .at = offsetof(struct sp_found, data),
     .neutral = "1",
     .legend = "data: pipelines side by side"},
    {.name = "micro-batches",
     .what = SP_COLUMN_MICRO_BATCHES,
     .legend = "micro-batches: of a pipeline x sequences of each"},
    {.name = "chunks",
     .at = offsetof(struct sp_found, chunks),
     .neutral = "1",
     .legend = "chunks: of a stage"},
    {.name = "slices",
     .at = offsetof(struct sp_found, slices),
     .neutral = "1",
     .legend = "slices: of a sequence"},
    {.name = "recompute", .what = SP_COLUMN_RECOMPUTE, .left = true},
    {.name = "offload", .what = SP_COLUMN_OFFLOAD, .left = true},
    {.name = "vocabulary",
     .what = SP_COLUMN_VOCABULARY,
     .neutral = "-",
     .left = true,
     .legend = "vocabulary: split over all stages"},
    {.name = "layers",
     .what = SP_COLUMN_LAYERS,
     .neutral = "even",
     .left = true,
     .legend = "layers: dealt out evenly, or so that stages take equal times"},
    {.name = "dtype", .what = SP_COLUMN_DTYPE, .neutral = "-", .left = true},
    {.name = "step", .what = SP_COLUMN_STEP, .kept = true},
    {.name = "tokens/s", .what = SP_COLUMN_TOKENS, .kept = true, .legend = "tokens/s: of a device"},
    {.name = "bubble", .what = SP_COLUMN_BUBBLE, .kept = true},
    {.name = "memory",
     .what = SP_COLUMN_MEMORY,
     .kept = true,
     .legend = "memory: of the fullest device"},
    {.name = "", .what = SP_COLUMN_REMARK, .neutral = "", .left = true},
};

/* True if all rows have the same text in this column, which is then in `cell`. */
static bool is_common(const struct sp_ranking *r, const struct sp_column *column,
                      char cell[SP_CELL])
{
    char other[SP_CELL];

    sp_cell_print(r, column, &r->all[r->row[0]], cell);
    for (int i = 1; i < r->rows; i++) {
        sp_cell_print(r, column, &r->all[r->row[i]], other);
        if (strcmp(cell, other))
            return false;
    }
    return true;
}

void sp_table_choose(const struct sp_ranking *r, struct sp_table *table)
{
    char cell[SP_CELL];

    *table = (struct sp_table){0};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        const struct sp_column *c = &columns[i];
        bool common = !c->kept && is_common(r, c, cell);
        size_t used = strlen(table->common);

        if (common && c->neutral && !strcmp(cell, c->neutral))
            continue;
        if (!common || r->rows == 1)
            table->column[table->n++] = c;
        else
            snprintf(table->common + used, sizeof table->common - used, "%s%s%s%s",
                     used ? ", " : "", c->name, *c->name ? " " : "", cell);
    }
}
