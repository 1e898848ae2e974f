/*
 * SPPO over Megatron-LM, and SPPO's offloading over SPPO without any (sections 7.1 and 7.2).
 *
 * The paper states neither the sequences of a step nor, of 7B and 13B, with which layout a speedup
 * was measured. Cells have the reading that their numbers allow, and the note of each has the other
 * one:
 *
 *   7B    the layout of SPPO ("under the same parallelism strategy"), many sequences: with one,
 *         three stages of four would be idle
 *   13B   the same; 40 heads cannot be shared by more than 8 GPUs of a stage, and its tuned layout
 *         is this one
 *   65B   table 4's tuned layout, SP 64 and PP 2, and one sequence (section 3.1: the count of
 *         micro-batches collapses to one); that of SPPO does not fit with several
 *
 * Nothing is compared with a run that does not fit.
 */
#include "cli/reproduce/sppo.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MANY = 32 }; /* sequences a step, where the other reading of a cell has them */

struct comparison {
    struct sp_run ours, theirs;
    struct sp_run_result our, their; /* what came of them */
    double ratio;                    /* of tokens a second */
};

static bool is_over_sppo(const struct sp_cell *c)
{
    return !strcmp(sp_cell_text(c, "over", ""), "sppo");
}

/* Plays a cell's run and what it is over, with so many sequences a step, 0: those of the cell. */
static int compare_systems(const struct sp_cell *c, int sequences, struct comparison *r)
{
    enum sp_offload_mode mode = strcmp(sp_cell_text(c, "offload", "adaptive"), "full")
                                    ? SP_OFFLOAD_ADAPTIVE
                                    : SP_OFFLOAD_FULL;
    const char *schedule = sp_cell_text(c, "schedule", "sppo");
    int err = sp_sppo_run(c, schedule, mode, &r->ours);

    err = err ? err : sp_sppo_play(&r->ours, &r->our);
    err = err               ? err
          : is_over_sppo(c) ? sp_sppo_run(c, schedule, SP_OFFLOAD_NONE, &r->theirs)
                            : sp_sppo_megatron(c, &r->theirs);
    if (sequences)
        r->theirs.micro_batches = sequences;
    err = err ? err : sp_sppo_play(&r->theirs, &r->their);
    if (!err)
        r->ratio = sp_run_rate(&r->ours, &r->our) / sp_run_rate(&r->theirs, &r->their);
    return err;
}

int sp_sppo_ratio(const struct sp_cell *c, double *ratio)
{
    struct comparison r;
    int err = compare_systems(c, 0, &r);

    if (!err)
        *ratio = r.ratio;
    return err;
}

/* Notes what does not fit; tells whether all does. */
static bool both_fit(struct sp_cell *c, const struct comparison *r)
{
    const double GB = 1e9, holds = (double)sp_run_machine(&r->ours)->memory_bytes;

    if (!r->our.fits)
        sp_cell_note(c, "SPPO does not fit: %.1f GB of %.0f a GPU, %.0f of the host's",
                     r->our.memory_bytes / GB, holds / GB, r->our.host_bytes / GB);
    else if (!r->their.fits)
        sp_cell_note(c, "what it is over does not fit: %.1f GB of %.0f a GPU",
                     r->their.memory_bytes / GB, holds / GB);
    return r->our.fits && r->their.fits;
}

static int speedup_of_cell(struct sp_cell *c)
{
    struct comparison r, other;
    int err = compare_systems(c, 0, &r), sequences = sp_cell_int(c, "sequences", 1);

    if (err || !both_fit(c, &r))
        return err;
    sp_cell_set(c, r.ratio);
    if (is_over_sppo(c)) {
        sp_cell_note(c, "full offloading adds %.2f s to %.1f", r.our.step_s - r.their.step_s,
                     r.their.step_s);
        return 0;
    }
    err = compare_systems(c, sequences == 1 ? MANY : 1, &other);
    sp_cell_note(c, "over SP %d, PP %d; sequences a step: %d; with %d, %.2f", r.theirs.devices,
                 r.theirs.stages, sequences, other.theirs.micro_batches, other.ratio);
    return err;
}

/* ---- ranges */

/* The rows of table 4 in which Megatron-LM runs, each with the reading above. */
static const struct row {
    const char *model;
    int seq, slices, stages, devices, over_stages, over_devices, sequences;
} rows[] = {
    {"gpt3-7b", 524288, 32, 4, 8, 4, 8, MANY}, {"gpt3-7b", 655360, 64, 4, 8, 4, 8, MANY},
    {"gpt3-7b", 786432, 80, 4, 8, 4, 8, MANY}, {"gpt3-7b", 917504, 128, 4, 8, 4, 8, MANY},
    {"gpt-13b", 524288, 32, 8, 8, 8, 8, MANY}, {"gpt-13b", 655360, 48, 8, 8, 8, 8, MANY},
    {"gpt-13b", 786432, 64, 8, 8, 8, 8, MANY}, {"gpt-65b", 524288, 32, 8, 16, 2, 64, 1},
    {"gpt-65b", 614400, 64, 8, 16, 2, 64, 1},  {"gpt-65b", 655360, 80, 8, 16, 2, 64, 1},
    {"gpt-65b", 786432, 96, 8, 16, 2, 64, 1},
};

static void configure(struct sp_cell *c, const struct row *row)
{
    const struct {
        const char *key;
        int value;
    } of[] = {{"seq", row->seq},
              {"slices", row->slices},
              {"stages", row->stages},
              {"devices_per_stage", row->devices},
              {"over_stages", row->over_stages},
              {"over_devices_per_stage", row->over_devices},
              {"sequences", row->sequences}};

    json_object_set_new(c->config, "model", json_string(row->model));
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        json_object_set_new(c->config, of[i].key, json_integer(of[i].value));
}

/* The least or most over the rows of the cell's model, or of all, that fit. */
static int speedup_range(struct sp_cell *c)
{
    char model[32]; /* the cell's is replaced by that of each row */
    bool least = !strcmp(c->column, "least");
    double end = least ? INFINITY : 0;
    const struct row *at = NULL;
    char left_out[128] = "";
    int n = 0;

    snprintf(model, sizeof model, "%s", sp_cell_text(c, "model", ""));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct comparison r;
        int err;

        if (model[0] && strcmp(model, rows[i].model))
            continue;
        configure(c, &rows[i]);
        err = compare_systems(c, 0, &r);
        if (err)
            return err;
        if (!r.our.fits || !r.their.fits) {
            if (n < (int)sizeof left_out)
                n += snprintf(left_out + n, sizeof left_out - (size_t)n, "%s %s with %dK",
                              n ? "," : "; left out, does not fit:", rows[i].model,
                              rows[i].seq / 1024);
            continue;
        }
        if (least ? r.ratio < end : r.ratio > end) {
            end = r.ratio;
            at = &rows[i];
        }
    }
    if (at)
        sp_cell_set(c, end);
    sp_cell_note(c, "%s with %dK%s", at ? at->model : "none", at ? at->seq / 1024 : 0, left_out);
    return 0;
}

int sp_sppo_speedup(struct sp_cell *c)
{
    return !strcmp(c->column, "least") || !strcmp(c->column, "most") ? speedup_range(c)
                                                                     : speedup_of_cell(c);
}
