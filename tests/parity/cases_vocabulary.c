/*
 * Embedding and head cut over the vocabulary, a share on every stage: tied tables and tables of their own, shares that
 * are not full, logits that stay and that are computed again, orders in which forwards and backwards come in the same
 * order and in the other one, in one process and in several.
 */
#include "parity/cases.h"

void vocabulary_cases(struct cases *c)
{
    static const struct {
        unsigned processes;
        const char *options;
    } runs[] = {
        {ALONE | PROCESSES(2) | PROCESSES(4), "--schedule 1f1b --stages 4 --model gpt-tiny"},
        /* 86 rows on two stages, 84 on the last one */
        {ALONE | PROCESSES(3), "--schedule 1f1b --stages 3 --model llama-tiny"},
        {ALONE | PROCESSES(2), "--schedule gpipe --stages 2 --model gpt-tiny --logit-rows 5"},
        {ALONE | PROCESSES(4), "--schedule zb1p --stages 4 --model llama-tiny"},
        /* the last layer is on the first stage */
        {ALONE | PROCESSES(2), "--schedule zbv --stages 2 --model gpt-tiny --recompute full"},
        {ALONE | PROCESSES(2), "--schedule dualpipev --stages 2 --model llama-tiny"},
        {ALONE | PROCESSES(3),
         "--schedule interleaved --stages 3 --chunks 2 --model ./heavy --seq 32 "
         "--partition 1,2,1,1,2,1"},
        {ALONE | PROCESSES(3), "--schedule seq1f1b --stages 3 --slices 4 --model gpt-tiny"},
        {ALONE | PROCESSES(2), "--schedule terapipe --stages 2 --slices 3 --model ./qwen --seq 50"},
        {ALONE,
         "--schedule bfs --stages 2 --model llama-tiny --logit-rows 7 --recompute selective"},
        {ALONE, "--schedule hanayo --stages 2 --model gpt-tiny --recompute no-attention"},
        {ALONE | PROCESSES(2),
         "--schedule 1f1b --stages 2 --model ./heavy --seq 32 --offload full"},
        /* parts of layers, the last block's output made in the forward, and again in the backward */
        {ALONE | PROCESSES(4), "--schedule helix --stages 4 --model llama-tiny"},
        {ALONE | PROCESSES(3),
         "--schedule helix:fold=1,qkv=activations --stages 3 --model gpt-tiny --recompute none"},
        {ALONE | PROCESSES(2), "--schedule helix:ship=attention --stages 2 --model gpt-tiny"},
        {ALONE, "--schedule helix:bounded --stages 2 --model ./qwen --micro-batches 8 --slices 2"},
    };

    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        bool flat = i == 0;

        add_case(c, (struct parity_case){.processes = runs[i].processes, .flat_from = flat ? 4 : 0},
                 "--vocabulary-parallel --steps %d %s", flat ? 6 : 3, runs[i].options);
    }
    add_case(c,
             (struct parity_case){.processes = ALONE | PROCESSES(2), .bar = 2e-2, .halves = false},
             "--vocabulary-parallel --dtype bf16 --schedule 1f1b --stages 2 --model llama-tiny");
}
