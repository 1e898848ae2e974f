/*
 * Limits of memory: the runs of figure 10 that went out of memory, the longest sequence of each
 * system (section 7.1), and how that grows with the GPUs (figure 12).
 */
#include "cli/reproduce/sppo.h"
#include <string.h>

enum { STEP = 65536 }; /* tokens: the precision of the longest */

/*
 * DeepSpeed-Ulysses: GPUs that share a sequence exchange tokens for heads, so their number divides
 * the heads. ZeRO-3 spans all GPUs, and every layer is recomputed. FPDT also moves activations to
 * the hosts; it is left out, because with it all lengths of table 4 would fit.
 */
static int ulysses_of(const struct sp_cell *c, struct sp_run *run)
{
    int err = sp_sppo_megatron(c, run);

    run->context = sp_cell_int(c, "context", 1);
    run->stages = sp_cell_int(c, "devices", 128);
    run->micro_batches = run->stages / run->context;
    run->devices = 1;
    return err;
}

static bool is_system(const struct sp_cell *c, const char *system)
{
    return !strncmp(sp_cell_text(c, "schedule", "sppo"), system, strlen(system));
}

/* The run of a cell's system. */
static int system_of(const struct sp_cell *c, struct sp_run *run)
{
    return is_system(c, "sppo")       ? sp_sppo_run(c, "sppo", SP_OFFLOAD_FULL, run)
           : is_system(c, "Megatron") ? sp_sppo_megatron(c, run)
                                      : ulysses_of(c, run);
}

static int play_system(struct sp_run *run, struct sp_run_result *r)
{
    return run->context ? sp_zero3(run, r) : sp_sppo_play(run, r);
}

int sp_sppo_figure_10(struct sp_cell *c)
{
    struct sp_run_result r;
    struct sp_run run;
    int err = system_of(c, &run);

    err = err ? err : play_system(&run, &r);
    if (err)
        return err;
    sp_cell_set(c, sp_run_rate(&run, &r));
    if (!r.fits)
        c->simulated.kind = SP_VALUE_OOM;
    sp_cell_note(c, "%.1f GB%s", r.memory_bytes / 1e9,
                 run.context ? " with SP 16 as the other systems have it, which is not said" : "");
    return 0;
}

/* ---- the longest */

struct limit {
    int tokens;
    bool of_hosts; /* the hosts' memory is the limit, not the GPUs' */
};

static int find_longest(struct sp_run *run, struct limit *limit)
{
    int low = 0, high = 256; /* 16M tokens */
    struct sp_run_result r;

    run->memory_only = true;
    while (high - low > 1) {
        int middle = (low + high) / 2, err;

        run->seq = middle * STEP;
        err = play_system(run, &r);
        if (err)
            return err;
        *(r.fits ? &low : &high) = middle;
        if (!r.fits)
            limit->of_hosts = r.memory_bytes <= (double)sp_run_machine(run)->memory_bytes;
    }
    limit->tokens = low * STEP;
    return 0;
}

static void note_limit(struct sp_cell *c, const struct sp_run *run, const struct limit *limit,
                       const char *why)
{
    sp_cell_note(c, "%dK tokens with SP %d, PP %d; the memory of %s ends it%s",
                 limit->tokens / 1024, run->context ? run->context : run->devices,
                 run->context ? 1 : run->stages, limit->of_hosts ? "hosts" : "GPUs", why);
}

int sp_sppo_figure_10_longest(struct sp_cell *c)
{
    struct limit limit;
    struct sp_run run;
    int err = system_of(c, &run);

    err = err ? err : find_longest(&run, &limit);
    if (err)
        return err;
    sp_cell_set(c, limit.tokens / 1024.0);
    note_limit(c, &run, &limit, "");
    return 0;
}

/* Megatron-LM tuned for length: as many GPUs share a sequence as its heads allow; the others
 * form stages. */
static int longest_of_megatron(const struct sp_cell *c, int devices, struct sp_run *run,
                               struct limit *limit)
{
    int err = sp_sppo_megatron(c, run);

    if (err)
        return err;
    run->devices = devices < run->model.heads ? devices : run->model.heads;
    run->stages = devices / run->devices;
    return find_longest(run, limit);
}

static int longest_of_sppo(const struct sp_cell *c, int devices, struct sp_run *run,
                           struct limit *limit)
{
    int err = sp_sppo_run(c, "sppo", SP_OFFLOAD_FULL, run);

    run->stages = devices / run->devices;
    return err ? err : find_longest(run, limit);
}

int sp_sppo_longest(const struct sp_cell *c, int devices, int *tokens)
{
    struct limit limit;
    struct sp_run run;
    int err = longest_of_sppo(c, devices, &run, &limit);

    if (!err)
        *tokens = limit.tokens;
    return err;
}

/* Unless the unit says otherwise, lengths are relative to Megatron-LM's longest on 32 GPUs. */
int sp_sppo_figure_12(struct sp_cell *c)
{
    int devices = sp_cell_int(c, "devices", 32), err;
    struct limit limit, base, other = {0};
    struct sp_model model;
    struct sp_run run;

    err = sp_sppo_model(c, &model);
    if (is_system(c, "DeepSpeed")) {
        if (devices <= model.heads)
            sp_cell_note(c, "1K a GPU would be 32K tokens: less than all that table 4 runs");
        else {
            sp_cell_set(c, 0);
            sp_cell_note(c, "%d GPUs do not share %d heads", devices, model.heads);
        }
        return err;
    }
    err = err ? err : longest_of_megatron(c, 32, &run, &base);
    if (!err && is_system(c, "Megatron"))
        err = longest_of_megatron(c, devices, &run, &limit);
    else if (!err) {
        err = longest_of_megatron(c, devices, &run, &other);
        err = err ? err : longest_of_sppo(c, devices, &run, &limit);
    }
    if (err)
        return err;
    sp_cell_set(c, !strcmp(c->unit, "K tokens")          ? limit.tokens / 1024.0
                   : !strcmp(c->unit, "times the other") ? (double)limit.tokens / other.tokens
                                                         : (double)limit.tokens / base.tokens);
    note_limit(c, &run, &limit,
               !is_system(c, "Megatron")
                   ? "; of a layer 4bsh bytes stay, keys and values; recomputation keeps 2"
               : devices > model.heads
                   ? "; more do not share its heads, and the logits of the last stage do not shrink"
                   : "");
    return 0;
}
