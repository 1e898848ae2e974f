/* The columns of a table of layouts: their contents, and the choice of those worth their space. */
#include "cli/plan/ranking.h"
#include "sp_figure.h"
#include "sp_text.h"
#include <math.h>
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

#define PRINT(column)                                                                              \
    static void print_##column(const struct sp_ranking *r, const struct sp_found *f,               \
                               char cell[SP_CELL])

PRINT(schedule)
{
    (void)r;
    sp_text_show(f->schedule, cell, SP_CELL);
}

PRINT(stages)
{
    (void)r;
    snprintf(cell, SP_CELL, "%d", f->stages);
}

PRINT(tensor)
{
    (void)r;
    snprintf(cell, SP_CELL, "%d", f->devices);
}

PRINT(context)
{
    (void)r;
    snprintf(cell, SP_CELL, "%d", f->context);
}

PRINT(data)
{
    (void)r;
    snprintf(cell, SP_CELL, "%d", f->data);
}

PRINT(micro_batches)
{
    (void)r;
    snprintf(cell, SP_CELL, "%d x %d", f->micro_batches, f->batch);
}

PRINT(chunks)
{
    (void)r;
    snprintf(cell, SP_CELL, "%d", f->chunks);
}

PRINT(slices)
{
    (void)r;
    snprintf(cell, SP_CELL, "%d", f->slices);
}

PRINT(recompute)
{
    char text[SP_RECOMPUTE_TEXT];

    (void)r;
    snprintf(cell, SP_CELL, "%s", sp_found_recompute(f, text));
}

PRINT(offload)
{
    (void)r;
    snprintf(cell, SP_CELL, "%s", sp_offload_name(f->offload));
}

PRINT(step)
{
    (void)r;
    sp_cell_duration(f->step_ms, cell);
}

PRINT(tokens)
{
    (void)r;
    sp_cell_figure(f->tokens_per_s, cell);
}

PRINT(bubble)
{
    (void)r;
    snprintf(cell, SP_CELL, "%.1f %%", sp_figure(100 * f->bubble, 1));
}

PRINT(memory)
{
    (void)r;
    sp_cell_bytes(f->memory, cell);
}

PRINT(vocabulary)
{
    (void)r;
    snprintf(cell, SP_CELL, "%s", f->vocabulary ? "split" : "-");
}

PRINT(layers)
{
    (void)r;
    snprintf(cell, SP_CELL, "%s", f->balanced ? "by time" : "even");
}

PRINT(dtype)
{
    snprintf(cell, SP_CELL, "%s", r->want->any_dtype ? sp_dtype_name(f->dtype) : "-");
}

PRINT(remark)
{
    const char *text = f->fits ? "" : "does not fit";

    if (!r->all[0].fits) /* the heading says it of all */
        text = "";
    snprintf(cell, SP_CELL, "%s", *text || f->trains ? text : "simulated only");
}

static const struct sp_column columns[] = {
    {.name = "schedule", .print = print_schedule, .left = true, .kept = true},
    {.name = "stages", .print = print_stages},
    {.name = "tensor",
     .print = print_tensor,
     .neutral = "1",
     .legend = "tensor: devices of a stage that share parameters"},
    {.name = "context",
     .print = print_context,
     .neutral = "1",
     .legend = "context: devices of a stage that share tokens"},
    {.name = "data", .print = print_data, .neutral = "1", .legend = "data: pipelines side by side"},
    {.name = "micro-batches",
     .print = print_micro_batches,
     .legend = "micro-batches: of a pipeline x sequences of each"},
    {.name = "chunks", .print = print_chunks, .neutral = "1", .legend = "chunks: of a stage"},
    {.name = "slices", .print = print_slices, .neutral = "1", .legend = "slices: of a sequence"},
    {.name = "recompute", .print = print_recompute, .left = true},
    {.name = "offload", .print = print_offload, .left = true},
    {.name = "vocabulary",
     .print = print_vocabulary,
     .neutral = "-",
     .left = true,
     .legend = "vocabulary: split over all stages"},
    {.name = "layers",
     .print = print_layers,
     .neutral = "even",
     .left = true,
     .legend = "layers: dealt out evenly, or so that stages take equal times"},
    {.name = "dtype", .print = print_dtype, .neutral = "-", .left = true},
    {.name = "step", .print = print_step, .kept = true},
    {.name = "tokens/s", .print = print_tokens, .kept = true, .legend = "tokens/s: of a device"},
    {.name = "bubble", .print = print_bubble, .kept = true},
    {.name = "memory",
     .print = print_memory,
     .kept = true,
     .legend = "memory: of the fullest device"},
    {.name = "", .print = print_remark, .neutral = "", .left = true},
};

/* True if all rows have the same text in this column, which is then in `cell`. */
static bool is_common(const struct sp_ranking *r, const struct sp_column *column,
                      char cell[SP_CELL])
{
    char other[SP_CELL];

    column->print(r, &r->all[r->row[0]], cell);
    for (int i = 1; i < r->rows; i++) {
        column->print(r, &r->all[r->row[i]], other);
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
