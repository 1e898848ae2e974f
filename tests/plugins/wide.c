/*
 * Three schedules in one plugin that use every function of the public headers, so that each is found
 * in the program: a V with overlapped pairs and split backwards from emit_all, a bidirectional
 * one, and chunks scattered over the stages in an order by list scheduling. The first two are bad.
 */
#include <starpipe/schedule.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One micro-batch after another, down the V and up again. With `overlap` the next one follows the
 * backward on its way: both go down the stages together, and both up. */
static int emit_v(const struct sp_layout *lay, struct sp_program *programs, char *why, size_t n)
{
    int m = lay->micro_batches, ok = 1, least = sp_layout_option_int(lay, "least", 0, &ok);
    char text[SP_OP_TEXT], back[SP_OP_TEXT], letter[8] = "W";
    struct sp_op op;

    sp_layout_option(lay, "weight", letter, sizeof letter);
    for (int s = 0; s < lay->stages; s++) {
        struct sp_program *prog = &programs[s];

        sp_program_add(prog, SP_F, 7, 7);
        sp_program_clear(prog);
        for (int i = 0; i < m; i++) {
            for (int c = 0; c < 2 && (i == 0 || !sp_layout_flag(lay, "overlap")); c++)
                sp_program_add(prog, SP_F, i, c);
            for (int c = 1; c >= 0; c--) {
                if (i + 1 < m && sp_layout_flag(lay, "overlap"))
                    sp_program_add_pair(prog, i + 1, 1 - c, i, c);
                else
                    sp_program_add(prog, SP_B, i, c);
            }
            for (int c = 1; c >= least; c--) {
                snprintf(text, sizeof text, "%s%d.%d", letter, i, c);
                if (!ok || sp_op_parse(text, &op) || strcmp(sp_op_print(&op, 0, back), text)) {
                    snprintf(why, n, "has no op %s", text);
                    return -EINVAL;
                }
                sp_program_add_op(prog, op);
            }
        }
    }
    return 0;
}

static const struct sp_schedule_def v = {
    .abi = SP_SCHEDULE_ABI,
    .name = "wide-v",
    .summary = "a V, one micro-batch after another",
    .source = "tests/plugins/wide.c",
    .family = "layerwise",
    .options = "weight,least",
    .flags = "overlap",
    .default_chunks = 2,
    .layerwise.global_stage = sp_place_wave,
    .emit_all = emit_v,
};

static int evens_go_down(const struct sp_layout *lay, int mb)
{
    (void)lay;
    return mb % 2;
}

static void emit_both(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    (void)stage;
    for (int i = 0; i < lay->micro_batches; i++) {
        sp_program_add(prog, SP_F, i, i % 2);
        sp_program_add(prog, SP_B, i, i % 2);
    }
}

static const struct sp_schedule_def both = {
    .abi = SP_SCHEDULE_ABI,
    .name = "wide-both",
    .summary = "naive, from both ends in turns",
    .source = "tests/plugins/wide.c",
    .family = "bidirectional",
    .default_chunks = 2,
    .layerwise = {.global_stage = sp_place_both_ways, .pipe = evens_go_down},
    .emit = emit_both,
};

/* Any permutation of the global stages, unless 7 divides their number. */
static int scatter(const struct sp_layout *lay, int stage, int chunk)
{
    return 7 * (stage + chunk * lay->stages + 1) % (lay->stages * lay->chunks);
}

/* Whole backwards, then with `split` W apart; at most held=N activations of a chunk. With `again` the order found is
 * given once more, with whatever breaks it. */
static int emit_scattered(const struct sp_layout *lay, struct sp_program *programs, char *why,
                          size_t n)
{
    int ok = 1, held = sp_layout_option_int(lay, "held", 0, &ok), ret;
    int *limit = malloc((size_t)lay->stages * sizeof *limit);
    char how[16] = "";

    for (int s = 0; s < lay->stages; s++)
        limit[s] = held;
    ret = sp_list_order(lay, held ? limit : NULL, sp_layout_flag(lay, "split"), programs, why, n);
    if (!ret && sp_layout_option(lay, "again", how, sizeof how)) {
        struct sp_program *last = &programs[lay->stages - 1];

        if (!strcmp(how, "less"))
            last->n--;
        else if (!strcmp(how, "far"))
            last->ops[0].chunk = 1 << 30;
        else if (!strcmp(how, "late"))
            last->ops[0].pass = SP_W;
        else if (!strcmp(how, "twice"))
            last->ops[1] = last->ops[0];
        else if (!strcmp(how, "held"))
            limit[0] = 1;
        ret = sp_list_order(lay, !strcmp(how, "held") ? limit : NULL, 0, programs, why, n);
    }
    free(limit);
    return ret;
}

static const struct sp_schedule_def scattered = {
    .abi = SP_SCHEDULE_ABI,
    .name = "wide-scattered",
    .summary = "chunks on any stage",
    .source = "tests/plugins/wide.c",
    .family = "layerwise",
    .options = "held,again",
    .flags = "split",
    .default_chunks = 3,
    .layerwise.global_stage = scatter,
    .emit_all = emit_scattered,
};

SP_PLUGIN(&v, &both, &scattered);
