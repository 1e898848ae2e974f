/*
 * --dtype fp8 against one stage in fp8: losses and first gradients of every schedule within 1e-5, as in
 * bf16, because every product has the same operands with the same scales. With slices a product has
 * fewer rows, whose scale may be another power of two, selective recompute begins at a rounded u, and
 * stages that share the vocabulary round its logits otherwise; then operands are rounded to other numbers,
 * and a gradient is almost as far from one stage's as fp8 is from bf16.
 * After an update a weight may differ by the last bit of its f32, and some operand is then rounded to
 * the next number.
 */
#include "parity/cases.h"
#include "policies/registry.h"
#include <stdio.h>
#include <string.h>

static void add_fp8(struct cases *c, struct parity_case like, const char *model,
                    const char *schedule, int stages, const char *more)
{
    bool ring =
        strstr(schedule, "weipipe") || strstr(schedule, "tawpipe") || !strncmp(schedule, "wzb", 3);
    int slices = sp_schedule_takes_slices(schedule) ? 3 : 1;

    bool rounds = slices > 1 || strstr(more, "selective") || strstr(more, "vocabulary");

    like.bar = rounds ? 0.15 : ring ? 1e-2 : 1e-5;
    like.updated_bar = 0.15;
    add_case(c, like, "--dtype fp8 --model %s --schedule %s --stages %d --slices %d %s", model,
             schedule, stages, slices, more);
}

void fp8_cases(struct cases *c)
{
    static const char *const models[] = {"gpt-tiny", "llama-tiny"};
    static const char *const modes[] = {"selective", "no-attention", "full", "every=2"};
    static const char *const apart[] = {"1f1b", "helix", "wzb2", "fsdp", "sppo:multiplex"};
    const struct parity_case alone = {.processes = ALONE};
    const struct sp_schedule_def *def;
    char mode[64];

    for (int k = 0; (def = sp_schedule_at(k)); k++)
        for (int i = 0; i < 2; i++)
            if (sp_schedule_is_synchronous(def->name) && (is_long() || k % 2 == i))
                add_fp8(c, alone, models[i], def->name, 2, "");
    for (int i = 0; i < 4; i++) {
        snprintf(mode, sizeof mode, "--recompute %s", modes[i]);
        add_fp8(c, alone, models[i % 2], "1f1b", 2, mode);
    }
    add_fp8(c, alone, "./qwen", "helix:qkv=weights", 2, "--slices 1");
    add_fp8(c, alone, "gpt-tiny", "1f1b", 2, "--offload full");
    add_fp8(c, alone, "llama-tiny", "1f1b", 2, "--scheduler ready --vocabulary-parallel");
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        add_fp8(c, (struct parity_case){.processes = PROCESSES(2)}, "gpt-tiny", apart[i], 4, "");
}
