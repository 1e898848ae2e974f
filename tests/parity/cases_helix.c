/*
 * HelixPipe on two, three and four stages, both model styles, all that it may ship, which recompute differently, whole
 * sequences and slices, in one process and with a process a stage; without SP_LONG models take turns.
 */
#include "parity/cases.h"

static const char *const models[] = {"gpt-tiny", "llama-tiny"};

static void both_ways(struct cases *c, int model)
{
    static const struct {
        int stages, fold, micro_batches;
        const char *what, *more;
    } runs[] = {{2, 2, 4, "qkv=weights", ""},
                {2, 2, 8, "qkv=activations", ""},
                {2, 2, 8, "ship=attention", ""},
                {3, 2, 6, "qkv=activations", "--recompute none"},
                {3, 2, 6, "ship=attention", "--recompute none"},
                {3, 1, 6, "qkv=weights", "--recompute selective"},
                {2, 2, 8, "qkv=published", ""},
                {3, 1, 6, "ship=attention", "--recompute selective --mlp-chunk 9"},
                {4, 2, 8, "qkv=weights", ""},
                {4, 2, 8, "ship=attention", "--mlp-chunk 7"},
                {4, 1, 4, "qkv=activations", "--scheduler ready"}};

    for (int i = 0; i < 11; i++)
        if (is_long() || i % 3 % 2 == model)
            add_case(c,
                     (struct parity_case){.processes = ALONE | PROCESSES(runs[i].stages),
                                          .wire = WIRE_HELIX},
                     "--model %s --stages %d --schedule helix:fold=%d,%s --micro-batches %d %s",
                     models[model], runs[i].stages, runs[i].fold, runs[i].what,
                     runs[i].micro_batches, runs[i].more);
}

void helix_cases(struct cases *c)
{
    static const char *const qwen[] = {"qkv=activations", "qkv=weights", "ship=attention"};

    for (int i = 0; i < 2; i++)
        both_ways(c, i);
    for (int i = 0; i < 3; i++)
        add_case(c, (struct parity_case){.processes = ALONE | PROCESSES(2), .wire = WIRE_HELIX},
                 "--model ./qwen --stages 2 --schedule helix:%s --micro-batches 4", qwen[i]);
    /* two loops and some left over, where a stage adds gradients up until the end of the step */
    add_case(c, (struct parity_case){.processes = ALONE | PROCESSES(3)},
             "--model llama-tiny --stages 3 --schedule helix:ship=attention --micro-batches 14");
    add_case(c, (struct parity_case){.processes = ALONE | PROCESSES(2)},
             "--model gpt-tiny --stages 2 --schedule helix:bounded,qkv=weights --micro-batches 14");
    /* slices, which are as many bytes together; what is dropped after the last one's forward is made again once */
    add_case(c, (struct parity_case){.processes = ALONE | PROCESSES(3), .wire = WIRE_HELIX},
             "--model llama-tiny --stages 3 --schedule helix:fold=1,qkv=weights --slices 3 "
             "--micro-batches 6");
    add_case(
        c, (struct parity_case){.processes = ALONE | PROCESSES(2)},
        "--model gpt-tiny --stages 2 --schedule helix:ship=attention --slices 4 --micro-batches 5 "
        "--partition-slices flops");
    add_case(c, (struct parity_case){.processes = ALONE | PROCESSES(2)},
             "--model gpt-tiny --stages 2 --schedule helix:qkv=published,bounded --slices 2 "
             "--micro-batches 6 --scheduler ready");
    add_case(c, (struct parity_case){.processes = ALONE, .flat_from = 3},
             "--model llama-tiny --stages 2 --schedule helix:qkv=activations --slices 3 "
             "--recompute none "
             "--steps 10");
    /* attention runs again */
    add_case(
        c, (struct parity_case){.processes = ALONE | PROCESSES(2), .flat_from = 5},
        "--model llama-tiny --stages 2 --schedule helix:qkv=weights --slices 2 --micro-batches 6 "
        "--recompute full --steps 8");
    add_case(c, (struct parity_case){.processes = ALONE | PROCESSES(3)},
             "--model gpt-tiny --stages 3 --schedule helix:qkv=activations --micro-batches 6 "
             "--recompute full");
    add_case(
        c, (struct parity_case){.processes = PROCESSES(2)},
        "--model gpt-tiny --stages 2 --schedule helix:ship=attention --slices 3 --micro-batches 4 "
        "--recompute full --offload full");
    /* on disk: what one stage keeps and another reads is a copy; one stage keeps what attention wrote once */
    add_case(c, (struct parity_case){.processes = ALONE | PROCESSES(2)},
             "--model gpt-tiny --stages 2 --schedule helix:qkv=weights --micro-batches 8 --seq 64 "
             "--offload full");
    add_case(c, (struct parity_case){.processes = ALONE | PROCESSES(3)},
             "--model llama-tiny --stages 3 --schedule helix:qkv=activations --slices 3 "
             "--micro-batches 6 --recompute none --offload full");
    add_case(c, (struct parity_case){.processes = ALONE},
             "--model gpt-tiny --stages 1 --schedule helix --micro-batches 4 --recompute selective "
             "--offload adaptive --memory-limit 12MiB");
    add_case(
        c, (struct parity_case){.processes = PROCESSES(2)},
        "--model llama-tiny --stages 2 --schedule helix:ship=attention,bounded --micro-batches 8 "
        "--recompute none --offload full");
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
