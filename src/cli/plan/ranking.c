/* Sentences about a ranking that are the same in every form; and its forms as text and JSON. */
#include "cli/plan/ranking.h"
#include "cli/print.h"
#include "plan/search/distinct.h"
#include "sp_error.h"
#include "sp_figure.h"
#include "sp_text.h"
#include "sp_utf8.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void sp_ranking_take(struct sp_ranking *r, const struct sp_found *all, int n)
{
    r->all = all;
    r->n = n;
    r->rows = sp_found_distinct(all, n, r->row, r->top);
    r->recommended = sp_search_recommended(all, n);
}

void sp_ranking_title(const struct sp_ranking *r, FILE *out)
{
    const struct sp_search *want = r->want;
    char model[SP_TEXT_SHOWN], machine[SP_TEXT_SHOWN];

    fprintf(out, "%s on %s of %s (%s%s): a step of %s of %s, in %s",
            sp_text_show(r->names.model, model, sizeof model), SP_COUNT(want->nodes, "node"),
            SP_COUNT(want->machine->devices_per_node, "device"),
            sp_text_show(want->machine->name, machine, sizeof machine),
            want->orders > 1 ? ", in the order that --hardware has" : "",
            SP_COUNT(want->sequences, "sequence"), SP_COUNT(want->seq, "token"),
            want->any_dtype ? "bf16 or f32" : sp_dtype_name(want->dtype));
}

void sp_ranking_order(const struct sp_ranking *r, FILE *out)
{
    bool fits = r->all[r->row[0]].fits, some = r->all[r->row[r->rows - 1]].fits != fits;

    if (r->rows < r->n)
        fprintf(out, "%d of %s, a choice of schedules and grids", r->rows,
                SP_COUNT(r->n, "layout"));
    else
        fprintf(out, "%s", SP_COUNT(r->n, "layout"));
    if (r->rows > 1)
        fprintf(out, ", sorted by %s%s",
                fits ? "tokens/s (0.1 % apart is equal)" : "memory: none fits",
                some ? "; those that do not fit by memory" : "");
}

const char *sp_ranking_advice(const struct sp_ranking *r)
{
    if (!r->all[0].fits)
        return "nothing fits: the first layout needs the least memory; try more --nodes, a shorter "
               "--seq, or --recompute full";
    if (r->want->group == SP_SEARCH_TENSOR)
        return "train runs none of these: it cannot share heads, MLP or tokens among so many "
               "devices, or not with this schedule; --group both shares tokens, too";
    return "train runs none of these: it cannot share heads, MLP or tokens among so many devices, "
           "or not with this schedule";
}

/* ---- the layouts as a table, and the recommended command */

enum { GAP = 2, WIDTH = 100 }; /* columns between two of the table; of a line of the legend */

/* Letters of UTF-8. */
static int width_of(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* A cell of a row; f NULL: the name of the column. */
static void print_cell(const struct sp_ranking *r, const struct sp_column *c,
                       const struct sp_found *f, char cell[SP_CELL])
{
    if (f)
        sp_cell_print(r, c, f, cell);
    else
        snprintf(cell, SP_CELL, "%s", c->name);
}

static void measure_columns(const struct sp_ranking *r, const struct sp_table *table, int *width)
{
    char cell[SP_CELL];

    for (int k = 0; k < table->n; k++) {
        width[k] = 0;
        for (int i = -1; i < r->rows; i++) {
            print_cell(r, table->column[k], i < 0 ? NULL : &r->all[r->row[i]], cell);
            width[k] = width_of(cell) > width[k] ? width_of(cell) : width[k];
        }
    }
}

/* No blanks end the line. */
static void put_row(const struct sp_ranking *r, const struct sp_table *table, const int *width,
                    const struct sp_found *f, FILE *out)
{
    char cell[SP_CELL];
    int blanks = 0;

    for (int k = 0; k < table->n; k++) {
        const struct sp_column *c = table->column[k];
        int room;

        print_cell(r, c, f, cell);
        room = width[k] - width_of(cell);
        blanks += c->left ? 0 : room;
        if (*cell) {
            fprintf(out, "%*s%s", blanks, "", cell);
            blanks = 0;
        }
        blanks += (c->left ? room : 0) + GAP;
    }
    putc('\n', out);
}

static void put_legend(const struct sp_table *table, FILE *out)
{
    int used = 0;

    for (int k = 0; k < table->n; k++) {
        const char *text = table->column[k]->legend;

        if (!text)
            continue;
        if (used && used + 2 + (int)strlen(text) > WIDTH) {
            fputs(";\n", out);
            used = 0;
        }
        used += fprintf(out, "%s%s", used ? "; " : "", text);
    }
    putc('\n', out);
}

int sp_ranking_text(const struct sp_ranking *r, FILE *out)
{
    char *command = r->recommended ? sp_ranking_command(r, r->recommended) : NULL;
    struct sp_table table;
    int width[SP_COLUMNS];

    if (r->recommended && !command)
        return sp_error(ENOMEM, "plan: no memory for a command");
    sp_ranking_title(r, out);
    putc('\n', out);
    sp_table_choose(r, &table);
    sp_ranking_order(r, out);
    if (*table.common)
        fprintf(out, "\nall with %s", table.common);
    fputs("\n\n", out);
    measure_columns(r, &table, width);
    put_row(r, &table, width, NULL, out);
    for (int i = 0; i < r->rows; i++)
        put_row(r, &table, width, &r->all[r->row[i]], out);
    putc('\n', out);
    put_legend(&table, out);
    putc('\n', out);
    if (command) {
        fputs("recommended, with your tokens in place of FILE.bin:\n\n", out);
        sp_command_wrap(command, 2, out);
    } else {
        fprintf(out, "%s\n", sp_ranking_advice(r));
    }
    free(command);
    return 0;
}

/* ---- JSON */

/*
 * One object: model, hardware, nodes, dtype (or both), seq, sequences (of a step),
 * complete (false: the search was ended early), and layouts[], in the order of the table:
 *   command              that trains with it
 *   trains               whether train runs it; otherwise it is simulated only
 *   fits                 into the memory of devices and nodes
 *   schedule, stages, devices (of a stage), tensor_parallel, context_parallel (whose product they
 *   are), data_parallel (pipelines), zero, processes (of all)
 *   micro_batches, micro_batch_size, chunks, slices, recompute, offload, vocabulary_parallel,
 *   dtype, partition
 *   step_ms, tokens_per_s (of a device), bubble_ratio, stall_ms, memory_bytes (of the fullest
 *   device), host_bytes (of the fullest node, of what left)
 */
json_t *sp_ranking_layout_json(const struct sp_ranking *r, const struct sp_found *f)
{
    char *command = sp_ranking_command(r, f), recompute[SP_RECOMPUTE_TEXT];
    json_t *one;

    if (!command)
        return NULL;
    one = json_pack("{s:o,s:b,s:b,s:o,s:i,s:i,s:i,s:i,s:i,s:i,s:s,s:s}", "command",
                    sp_utf8_json(command), "trains", f->trains, "fits", f->fits, "schedule",
                    sp_utf8_json(f->schedule), "stages", f->stages, "devices",
                    f->devices * f->context, "micro_batches", f->micro_batches, "micro_batch_size",
                    f->batch, "chunks", f->chunks, "slices", f->slices, "recompute",
                    sp_found_recompute(f, recompute), "offload", sp_offload_name(f->offload));
    free(command);
    json_object_update_new(one, json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:b,s:s}", "dtype",
                                          sp_dtype_name(f->dtype), "tensor_parallel", f->devices,
                                          "context_parallel", f->context, "data_parallel", f->data,
                                          "zero", f->zero, "processes", sp_found_processes(f),
                                          "vocabulary_parallel", f->vocabulary, "partition",
                                          f->balanced ? f->layers : "even"));
    json_object_update_new(
        one, json_pack("{s:f,s:f,s:f,s:f,s:I,s:I}", "step_ms", f->step_ms, "tokens_per_s",
                       f->tokens_per_s, "bubble_ratio", sp_figure(f->bubble, SP_FIGURE_ALL),
                       "stall_ms", sp_figure(f->stall_ms, SP_FIGURE_ALL), "memory_bytes",
                       (json_int_t)f->memory, "host_bytes", (json_int_t)f->host));
    return one;
}

int sp_ranking_json(const struct sp_ranking *r, FILE *out)
{
    const struct sp_search *want = r->want;
    json_t *list = json_array(), *root;
    bool lost = !list;

    for (int i = 0; i < r->rows && !lost; i++)
        lost = json_array_append_new(list, sp_ranking_layout_json(r, &r->all[r->row[i]])) != 0;
    root = json_pack("{s:o,s:o,s:i,s:s,s:i,s:i,s:b,s:o}", "model", sp_utf8_json(r->names.model),
                     "hardware", sp_utf8_json(want->machine->name), "nodes", want->nodes, "dtype",
                     want->any_dtype ? "both" : sp_dtype_name(want->dtype), "seq", want->seq,
                     "sequences", want->sequences, "complete", !r->stopped, "layouts", list);
    if (lost || !root) {
        json_decref(root);
        return sp_error(ENOMEM, "plan: no memory for the layouts of %s", r->names.model);
    }
    sp_json_print(root, 0, out);
    return 0;
}
