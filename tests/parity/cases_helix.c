/*
 * HelixPipe on two, three and four stages, both model styles, both ways of the QKV product, which
 * recompute differently, in one process and with a process a stage; without SP_LONG models take turns.
 */
#include "parity/cases.h"

static const char *const models[] = {"gpt-tiny", "llama-tiny"};

static void both_ways(struct cases *c, int model)
{
    static const struct {
        int stages, fold, micro_batches;
        const char *qkv, *more;
    } runs[] = {{2, 2, 4, "weights", ""},
                {2, 2, 8, "activations", ""},
                {3, 2, 6, "activations", "--recompute none"},
                {3, 1, 6, "weights", "--recompute selective"},
                {4, 2, 8, "weights", ""},
                {4, 1, 4, "activations", "--scheduler ready"}};

    for (int i = 0; i < 6; i++)
        if (is_long() || i % 3 % 2 == model)
            add_case(c,
                     (struct parity_case){.processes = ALONE | PROCESSES(runs[i].stages),
                                          .wire = WIRE_HELIX},
                     "--model %s --stages %d --schedule helix:fold=%d,qkv=%s --micro-batches %d %s",
                     models[model], runs[i].stages, runs[i].fold, runs[i].qkv,
                     runs[i].micro_batches, runs[i].more);
}

void helix_cases(struct cases *c)
{
    for (int i = 0; i < 2; i++)
        both_ways(c, i);
    for (int i = 0; i < 2; i++)
        add_case(c, (struct parity_case){.processes = ALONE | PROCESSES(2), .wire = WIRE_HELIX},
                 "--model ./qwen --stages 2 --schedule helix:qkv=%s --micro-batches 4",
                 i ? "weights" : "activations");
    /* several stages a process */
    add_case(c, (struct parity_case){.processes = ALONE | PROCESSES(2) | PROCESSES(3)},
             "--model gpt-tiny --stages 4 --schedule helix");
    /* through the smallest window: a buffer of a message that is used again too early makes processes
     * wait for each other */
    add_case(c, (struct parity_case){.processes = ALONE | PROCESSES(4)},
             "--model gpt-tiny --stages 5 --schedule helix:fold=3,qkv=weights --micro-batches 15 "
             "--recompute none --window 1 --scheduler ready");
    add_case(c, (struct parity_case){.processes = PROCESSES(4), .flat_from = 5},
             "--model gpt-tiny --stages 4 --schedule helix:qkv=weights --steps 12");
    add_case(c, (struct parity_case){.processes = ALONE, .flat_from = 3},
             "--model gpt-tiny --stages 4 --schedule helix --mlp-chunk 7 --steps 30");
}
