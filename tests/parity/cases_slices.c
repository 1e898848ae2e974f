/*
 * Slices of sequences: those that several stages compute together, in one process and in several, uneven parts
 * included; attention that they share; and activations on disk, which change no bit as long as keys and values stay.
 * gpt-tiny ties its tables: the gradient of one table is the sum of two replicas, to each of which every stage adds.
 */
#include "parity/cases.h"
#include <stdio.h>
#include <string.h>

static void shared_slices(struct cases *c)
{
    static const struct {
        int stages, slices;
        const char *options;
    } runs[] = {
        {2, 2, "--model gpt-tiny --seq 48 --micro-batches 1"},
        {3, 5, "--model llama-tiny --seq 60 --micro-batches 2"},
        {4, 8, "--model gpt-tiny --seq 101 --micro-batches 1"},
        /* shares of keys that end within parts, which micro-batches have one after the other */
        {4, 4, "--model gpt-tiny --seq 128 --micro-batches 3"},
        /* slices that one stage computes alone there are none; documents, attention that is not computed again */
        {4, 3,
         "--model gpt-tiny --seq 72 --micro-batches 2 --document-separator 32 --recompute full"},
        /* a slice of one token, that nobody shares; recomputed, keys and values stay */
        {3, 8,
         "--model llama-tiny --seq 31 --micro-batches 1 --recompute every=2 "
         "--partition-slices 3,3,3,3,1,3,3,12"},
    };

    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        for (int n = 1; n <= runs[i].stages; n++) {
            bool measured = n == 1 || n == runs[i].stages;

            if (!is_long() && !measured && n != 2)
                continue;

            /* pools keep three buffers of a size, and may be asked for one a step */
            add_case(c,
                     (struct parity_case){.processes = PROCESSES(n),
                                          .flat_from = measured ? 4 : 0,
                                          .own_bits = true},
                     "--schedule sppo:multiplex --stages %d --slices %d --steps 6 %s",
                     runs[i].stages, runs[i].slices, runs[i].options);
            /* in one process too; and two stages in one of them */
            if (is_long() || n == runs[i].stages || (runs[i].stages == 4 && n != 3))
                add_case(c, (struct parity_case){.processes = PROCESSES(n), .own_bits = true},
                         "--schedule sppo:multiplex --stages %d --slices %d --steps 6 %s "
                         "--offload full",
                         runs[i].stages, runs[i].slices, runs[i].options);
            /* keys and values of slices that one stage computes leave too, and shares of them */
            if (runs[i].slices > runs[i].stages && (is_long() || n == runs[i].stages || n == 2))
                add_case(c, (struct parity_case){.processes = PROCESSES(n), .own_bits = true},
                         "--schedule sppo:multiplex --stages %d --slices %d --steps 3 %s "
                         "--offload full --offload-keys leave",
                         runs[i].stages, runs[i].slices, runs[i].options);
        }
}

/* Attention that stages share: several assisting stages of a stage, several that one assists, none
 * in a slot; chunks, layers that not all stages have, whatever is computed again, what leaves
 * memory. The order of all sums is the same everywhere. */
static void shared_attention(struct cases *c)
{
    static const struct {
        unsigned processes;
        const char *options;
    } runs[] = {
        {ALONE | PROCESSES(2) | PROCESSES(4),
         "--model gpt-tiny --stages 4 --slices 8 --micro-batches 2 --seq 101"},
        {ALONE | PROCESSES(4),
         "--model gpt-tiny --stages 4 --chunks 2 --slices 8 --micro-batches 2 --seq 64"},
        /* gradients of many keys that return to their owner stay there */
        {ALONE | PROCESSES(2),
         "--model gpt-tiny --stages 2 --slices 16 --micro-batches 2 --seq 64"},
        /* an assisting stage that has some of the keys that it gets, and gradients of them */
        {ALONE, "--model gpt-tiny --stages 5 --slices 12 --micro-batches 2 --seq 60"},
        {ALONE | PROCESSES(3),
         "--model llama-tiny --stages 3 --slices 7 --micro-batches 3 --seq 77 --recompute full"},
        {ALONE | PROCESSES(2),
         "--model ./qwen --stages 2 --chunks 2 --slices 8 --micro-batches 2 --seq 64"},
        {ALONE, "--model llama-tiny --stages 4 --slices 4 --micro-batches 1 --seq 48 "
                "--partition 1,2,4,1 --recompute every=2"},
        {ALONE | PROCESSES(3), "--model gpt-tiny --stages 3 --slices 6 --micro-batches 2 --seq 96 "
                               "--recompute no-attention --offload full"},
        {ALONE | PROCESSES(2),
         "--model gpt-tiny --stages 2 --chunks 3 --slices 2 --micro-batches 3 "
         "--seq 64 --recompute selective"},
    };

    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        bool flat = i == 0; /* the same buffers step after step, for which it takes some */

        add_case(c, (struct parity_case){.processes = runs[i].processes, .flat_from = flat ? 4 : 0},
                 "--schedule slimpipe --steps %d %s", flat ? 6 : 2, runs[i].options);
    }
}

/* Slices of all lengths: what ops take and give back themselves is of the longest one, once; the rest of each. */
static void unequal_slices(struct cases *c)
{
    static const char *const schedules[] = {"sppo", "seq1f1b", "terapipe"};
    static const char *const modes[] = {"none", "full", "no-attention", "selective", "every=2"};

    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 5; k++)
            if (is_long() || k % 3 == i || (k == 1 && i == 0))
                add_case(
                    c, (struct parity_case){.processes = ALONE | PROCESSES(2 + k % 2)},
                    "--schedule %s --stages %d --slices 8 --micro-batches 2 --seq 128 --steps 3 "
                    "--partition-slices 40,28,20,15,11,8,5,1 --model %s --recompute %s",
                    schedules[i], 2 + k % 2, k % 2 ? "llama-tiny" : "gpt-tiny", modes[k]);
}

/* Norms of heads: the product is computed again from slices. */
static void norms_of_heads(struct cases *c)
{
    static const char *const modes[] = {"none", "selective", "full"};

    for (int i = 0; i < 3; i++)
        add_case(c, (struct parity_case){.processes = ALONE | PROCESSES(2)},
                 "--schedule sppo --stages 2 --slices 3 --micro-batches 2 --model ./qwen "
                 "--recompute %s",
                 modes[i]);
}

static void on_disk(struct cases *c)
{
    static const struct {
        int stages, limit_kib;
        const char *options;
    } runs[] = {
        {2, 5400, "--schedule sppo --model gpt-tiny --slices 4 --micro-batches 2 --seq 128"},
        {2, 4300,
         "--schedule sppo --model llama-tiny --slices 3 --micro-batches 1 --seq 96 "
         "--partition-slices length"},
        {4, 3300, "--schedule sppo --model gpt-tiny --slices 8 --micro-batches 1 --seq 200"},
        {4, 3200, "--schedule 1f1b --model llama-tiny --micro-batches 5 --seq 64"},
    };

    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        unsigned both = ALONE | PROCESSES(runs[i].stages);
        const char *options = runs[i].options;

        add_case(c, (struct parity_case){.processes = ALONE}, "--stages %d %s", runs[i].stages,
                 options);
        add_case(c, (struct parity_case){.processes = i % 2 || is_long() ? both : ALONE},
                 "--stages %d %s --offload full --offload-keys stay", runs[i].stages, options);
        if (strstr(
                options,
                "--slices")) /* keys and values leave too: attention in parts has bits of its own */
            add_case(c, (struct parity_case){.processes = both, .own_bits = true},
                     "--stages %d %s --offload full --offload-keys leave", runs[i].stages, options);
        if (is_long())
            add_case(c, (struct parity_case){.processes = both},
                     "--stages %d %s --offload adaptive", runs[i].stages, options);
        add_case(c, (struct parity_case){.processes = both},
                 "--stages %d %s --offload adaptive --memory-limit %dKiB", runs[i].stages, options,
                 runs[i].limit_kib);
    }
}

void slice_cases(struct cases *c)
{
    shared_slices(c);
    shared_attention(c);
    unequal_slices(c);
    norms_of_heads(c);
    on_disk(c);
}
