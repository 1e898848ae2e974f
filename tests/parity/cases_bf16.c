/*
 * --dtype bf16: losses and gradients of every schedule within 2e-2 of one f32 stage; and within 1e-5 of
 * one bf16 stage, because the same kernels run on the same numbers, unless a tensor is rounded at other
 * places: gradients of keys once a slice, parts of attention that stages share, g = gelu(u) again from a rounded u under selective recompute, gradients
 * that travel around a ring of weights on every worker, at random, unless gradients=f32 keeps them wide.
 * After an update the bar is 1e-3: gradients that were summed in another order move a weight by the last
 * bit of its f32, and where that lay between two bf16, products read the other one.
 */
#include "parity/cases.h"
#include "policies/registry.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static void add_bf16(struct cases *c, struct parity_case like, const char *model,
                     const char *schedule, int stages, const char *more)
{
    bool ring =
        strstr(schedule, "weipipe") || strstr(schedule, "tawpipe") || !strncmp(schedule, "wzb", 3);
    bool rounds = ring && !strstr(schedule, "gradients=f32");
    int slices = sp_schedule_takes_slices(schedule) ? 3 : 1;

    like.bar = rounds || slices > 1 || strstr(more, "selective") ? 1e-2 : 1e-5;
    if (strstr(schedule, "multiplex"))
        like.bar = 1.5e-2;
    like.updated_bar = fmax(like.bar, 1e-3);
    add_case(c, like, "--dtype bf16 --model %s --schedule %s --stages %d --slices %d %s", model,
             schedule, stages, slices, more);
}

void bf16_cases(struct cases *c)
{
    static const char *const models[] = {"gpt-tiny", "llama-tiny"};
    static const char *const modes[] = {"selective", "no-attention", "full", "every=2"};
    static const char *const apart[] = {"1f1b",
                                        "dualpipev",
                                        "helix",
                                        "weipipe",
                                        "weipipe:flow=line",
                                        "weipipe:flow=line,gradients=f32",
                                        "wzb1",
                                        "wzb2",
                                        "tawpipe:node=2",
                                        "fsdp",
                                        "sppo",
                                        "sppo:multiplex",
                                        "slimpipe"};
    const struct parity_case alone = {.processes = ALONE};
    struct parity_case two = {.processes = PROCESSES(2)};
    const struct sp_schedule_def *def;
    char mode[64];

    for (int i = 0; i < 2; i++) {
        for (int k = 0; (def = sp_schedule_at(k)); k++)
            if (sp_schedule_is_synchronous(def->name) && (is_long() || k % 2 == i))
                add_bf16(c, alone, models[i], def->name, 2, "");
        add_bf16(c, alone, models[i], "sppo:multiplex", 2, "");
        add_bf16(c, alone, models[i], i ? "wzb1:gradients=f32" : "weipipe:gradients=f32", 2, "");
        add_bf16(c, alone, models[i], i ? "wzb2:gradients=f32" : "weipipe-naive:gradients=f32", 2,
                 "");
    }
    for (int i = 0; i < 4; i++) {
        snprintf(mode, sizeof mode, "--recompute %s", modes[i]);
        add_bf16(c, alone, "gpt-tiny", "1f1b", 2, mode);
        add_bf16(c, alone, "llama-tiny", "seq1f1b", 2, mode);
    }
    add_bf16(c, alone, "./qwen", "wzb2", 2, "");
    add_bf16(c, alone, "llama-tiny", "wzb1", 3, "--micro-batches 5");
    add_bf16(c, two, "gpt-tiny", "weipipe:flow=line", 4, "--chunks 2");
    add_bf16(c, alone, "./qwen", "helix:qkv=weights", 2, "--slices 2");
    /* keys and values leave too: attention in parts */
    add_bf16(c, (struct parity_case){.processes = ALONE, .own_bits = true}, "gpt-tiny", "sppo", 2,
             "--offload full");
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        add_bf16(c, two, "gpt-tiny", apart[i], 4, "");
    add_bf16(c, (struct parity_case){.processes = PROCESSES(4)}, "llama-tiny", "helix:qkv=weights",
             4, "");
    add_bf16(c, (struct parity_case){.processes = PROCESSES(2), .halves = true}, "llama-tiny",
             "1f1b", 2, "");
}
