/* Claims of SPPO's text without a number, and the numbers of its sections 2 and 5. */
#include "cli/reproduce/sppo.h"
#include <errno.h>
#include <string.h>

/* The parts of a layer on the machine of a cell, for all tokens of a sequence (0) or for a first
 * slice of so many. */
static int times_of(const struct sp_cell *c, int tokens, struct sp_part_times *t)
{
    const struct sp_machine *machine = sp_sppo_machine(c);
    struct sp_shape sh, part;

    if (!machine || sp_sppo_shape(c, sp_cell_int(c, "seq", 131072), &sh))
        return -EINVAL;
    sp_shape_slice(&sh, 0, tokens ? tokens : sh.seq, &part);
    sp_part_times(machine, sp_cell_int(c, "devices_per_stage", 8), &part, t);
    return 0;
}

/* ---- sections 2.1 and 5.1 */

int sp_sppo_recomputation(struct sp_cell *c)
{
    struct sp_part_times t;
    double again, backward;
    int err = times_of(c, 0, &t);

    if (err)
        return err;
    again = sp_layer_again_s(&t, SP_RECOMPUTE_FULL);
    backward = sp_layer_backward_s(&t);
    if (!strcmp(c->column, "of the backward with it"))
        sp_cell_set(c, 100 * again / (again + backward));
    else
        sp_cell_set(c, 100 * again / (sp_layer_forward_s(&t) + backward));
    sp_cell_note(c, "attention's backward takes 2.5 forwards");
    return 0;
}

/* Bytes of a layer that stay and that may leave, in BSH. */
int sp_sppo_section_5(struct sp_cell *c)
{
    int64_t kept[SP_STASH_TENSORS];
    double keys;
    struct sp_shape sh;
    int err = sp_sppo_shape(c, 65536, &sh);

    if (err)
        return err;
    sp_stash_of_layer(&sh, SP_RECOMPUTE_NONE, true, false, kept);
    keys = (double)kept[SP_STASH_KV];
    sp_cell_set(c, (strcmp(c->column, "keys and values")
                        ? sp_layer_kept_bytes(&sh, SP_RECOMPUTE_NONE) - keys
                        : keys) /
                       ((double)sh.rows * sh.model.hidden));
    sp_cell_note(c, "table 2 has 32 BSH bytes of a layer in all");
    return 0;
}

/* ---- figure 5 */

/* The first of eight slices, as its cells of the figure have it; a stage is a node. */
static int first_takes_longer(struct sp_cell *c)
{
    enum { SLICES = 8 };
    const struct sp_machine *machine = sp_sppo_machine(c);
    const int devices = sp_cell_int(c, "devices", 64);
    struct sp_part_times t;
    struct sp_model model;
    double compute, transfer;
    int len[SLICES], err;

    if (!machine || sp_sppo_model(c, &model))
        return -EINVAL;
    sp_sppo_slices(&model, sp_cell_int(c, "seq", 131072), SLICES, len);
    err = times_of(c, len[0], &t);
    if (err)
        return err;
    compute = (double)model.layers * sp_cell_int(c, "devices_per_stage", 8) / devices *
              sp_layer_forward_s(&t);
    /* 28 of the layer's 32 bsh bytes */
    transfer = 28.0 * len[0] * model.hidden * model.layers / devices /
               (machine->copy.to_host / machine->copy.shared_by);
    sp_cell_holds(c, transfer > compute,
                  "the first of 8: %.0f ms of transfer, %.0f of its forward on stages of 8 GPUs",
                  1e3 * transfer, 1e3 * compute);
    return 0;
}

/* ---- figure 7 */

/* A layer's forward of the sequence in slices of so many tokens. */
static int layer_in_slices(const struct sp_cell *c, int tokens, double *seconds)
{
    const struct sp_machine *machine = sp_sppo_machine(c);
    struct sp_shape sh;

    if (!machine || sp_sppo_shape(c, sp_cell_int(c, "seq", 131072), &sh))
        return -EINVAL;
    *seconds = sp_sppo_layer_s(machine, sp_cell_int(c, "devices_per_stage", 8), &sh, tokens);
    return 0;
}

static int shorter_is_slower(struct sp_cell *c)
{
    double last = 0, first = 0;
    bool grows = true;

    for (int tokens = 16384; tokens >= 256; tokens /= 2) {
        double seconds;
        int err = layer_in_slices(c, tokens, &seconds);

        if (err)
            return err;
        grows &= seconds > last;
        first = first > 0 ? first : seconds;
        last = seconds;
    }
    sp_cell_holds(c, grows, "slices of 256 tokens take %.2f times as long as those of 16K",
                  last / first);
    return 0;
}

/* "Does not help": twice as long is less than 2 % faster. */
static int longer_stops_helping(struct sp_cell *c)
{
    double some, more = 0, few, half = 0;
    int err = layer_in_slices(c, 8192, &some);

    err = err ? err : layer_in_slices(c, 16384, &more);
    err = err ? err : layer_in_slices(c, 512, &few);
    err = err ? err : layer_in_slices(c, 256, &half);
    if (err)
        return err;
    sp_cell_holds(c, some / more < 1.02 && half / few > some / more,
                  "256 to 512 tokens save %.1f %%, 8K to 16K %.1f", 100 * (1 - few / half),
                  100 * (1 - more / some));
    return 0;
}

static int longer_has_more_bubble(struct sp_cell *c)
{
    double last = 0, least = 0;
    bool grows = true;

    for (int slices = 64; slices >= 8; slices /= 2) {
        struct sp_theory t = {
            .schedule = "sppo", .stages = 4, .micro_batches = 1, .slices = slices, .layers = 4};
        struct sp_theory_result r;
        int err = sp_theory_run(&t, &r);

        if (err)
            return err;
        grows &= r.bubble > last;
        least = least > 0 ? least : r.bubble;
        last = r.bubble;
    }
    sp_cell_holds(c, grows, "four stages: %.1f %% with 64 slices, %.1f with 8", 100 * least,
                  100 * last);
    return 0;
}

/* ---- figures 10 and 12 */

static int heads_do_not_divide(struct sp_cell *c)
{
    const int devices = sp_cell_int(c, "devices", 64);
    struct sp_model model;
    int err = sp_sppo_model(c, &model);

    if (err)
        return err;
    sp_cell_holds(c, model.heads % devices != 0,
                  "%d heads, %d GPUs; 8 of them could share a sequence", model.heads, devices);
    return 0;
}

/* "Marginal": the least over all rows that the text states is 13 %. */
static int gain_is_marginal(struct sp_cell *c)
{
    double ratio;
    int err = sp_sppo_ratio(c, &ratio);

    if (err)
        return err;
    sp_cell_holds(c, ratio < 1.13, "%.2f times", ratio);
    return 0;
}

/* "Near-linear": nine tenths of four times the GPUs. */
static int scales(struct sp_cell *c)
{
    int few, many = 0, err = sp_sppo_longest(c, 32, &few);

    err = err ? err : sp_sppo_longest(c, 128, &many);
    if (err)
        return err;
    sp_cell_holds(c, many >= 0.9 * 4 * few, "%.2f times the tokens on four times the GPUs",
                  (double)many / few);
    return 0;
}

const struct sp_experiment sp_sppo_claims[] = {
    {"first-takes-longer", first_takes_longer},
    {"shorter-is-slower", shorter_is_slower},
    {"longer-stops-helping", longer_stops_helping},
    {"longer-has-more-bubble", longer_has_more_bubble},
    {"heads-do-not-divide", heads_do_not_divide},
    {"gain-is-marginal", gain_is_marginal},
    {"scales", scales},
    {0},
};
