/*
 * Families in which weights travel: rings of two, three and four workers, and sharded weights.
 * Several steps are compared with one stage; one process and MPI give the same bits; the bytes sent
 * do not depend on the length of sequences; all workers keep as many activations; buffers do not
 * grow.
 *
 * The learning rate is so small that no gradient explodes: in such a step the least rounding would
 * show.
 */
#include "parity/cases.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALM "--lr 5e-4 "

/* The cases of every schedule of these families. Without SP_LONG only every third also runs more
 * steps and longer sequences. */
static void whole_check(struct cases *c, enum wire wire, int workers, const char *options)
{
    static int n;
    bool third = is_long() || n++ % 3 == 0;

    if (third)
        add_case(c, (struct parity_case){.processes = ALONE}, CALM "--steps %d %s",
                 is_long() ? 20 : 8, options);
    add_case(c, (struct parity_case){.processes = ALONE | PROCESSES(workers), .wire = wire},
             CALM "--steps 3 %s", options);
    if (third)
        add_case(c, (struct parity_case){.processes = PROCESSES(workers), .wire = wire},
                 CALM "--steps 1 --seq 96 %s", options);
}

static void rings(struct cases *c, int model)
{
    static const char *const models[] = {"gpt-tiny", "llama-tiny"};
    static const struct {
        int workers;
        const char *options;
    } runs[] = {
        {2, "--schedule weipipe --stages 2 --micro-batches 4"},
        {4, "--schedule weipipe --stages 4 --recompute no-attention"},
        {3, "--schedule weipipe:flow=line --stages 3 --micro-batches 6"},
        {3, "--schedule weipipe:flow=line --stages 3 --micro-batches 7"},
        {4, "--schedule tawpipe:node=2 --stages 4"},
        {4, "--schedule tawpipe:node=2 --stages 4 --micro-batches 10 --recompute full"},
        {4, "--schedule tawpipe --stages 4 --micro-batches 3"},
        {4, "--schedule weipipe:flow=line,node=2 --stages 4 --recompute selective"},
        {2, "--schedule wzb2 --stages 2 --micro-batches 5"},
        {3, "--schedule weipipe --stages 3 --micro-batches 9 --recompute full"},
        {2, "--schedule weipipe-naive --stages 2 --micro-batches 4 --recompute selective"},
        {4, "--schedule weipipe-naive --stages 4"},
        {4, "--schedule weipipe --stages 4 --micro-batches 7"},
        {4, "--schedule wzb1 --stages 4 --micro-batches 5 --recompute no-attention"},
        {2, "--schedule wzb1 --stages 2 --micro-batches 4"},
        {4, "--schedule wzb1 --stages 4 --recompute no-attention"},
        {4, "--schedule wzb2 --stages 4"},
        {4, "--schedule wzb1 --stages 4 --recompute full"},
        {4, "--schedule wzb2:owner=each --stages 4"},
        {4, "--schedule weipipe --stages 4 --partition 3,1,2,2"},
        {4, "--schedule weipipe:flow=line --stages 4 --partition 1,2,4,1 --recompute full"},
        {4, "--schedule wzb1 --stages 4 --partition 2,1,3,2"},
        {3, "--schedule tawpipe:node=3 --stages 3 --partition 2,5,1"},
        {4, "--schedule weipipe:flow=line --stages 4 --chunks 2 --micro-batches 7"},
        {3, "--schedule wzb1 --stages 3 --micro-batches 7 --recompute full"},
        {2, "--schedule wzb1 --stages 2 --chunks 3 --micro-batches 5"},
        {4, "--schedule tawpipe:node=2 --stages 4 --chunks 2 --recompute selective"},
        {2, "--schedule wzb2 --stages 2 --chunks 4 --micro-batches 4"},
        {3, "--schedule wzb2:owner=each --stages 3 --chunks 2 --micro-batches 4"},
        {3, "--schedule weipipe:flow=line,node=3 --stages 3 --chunks 2 --partition 1,2,1,1,2,1"},
    };

    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char options[160];

        if (!is_long() && (int)i % 2 != model)
            continue;
        snprintf(options, sizeof options, "--model %s %s", models[model], runs[i].options);
        /* the formula is of chunks of one size */
        whole_check(c, strstr(options, "--partition") ? WIRE_ANY : WIRE_RING, runs[i].workers,
                    options);
    }
}

/* Two workers a process, and a process of two beside one; the activations of workers; the buffers. */
static void ring_processes(struct cases *c)
{
    static const struct {
        const char *schedule, *model;
        double kept;
    } rings[] = {{"weipipe", "gpt-tiny", 1},  {"weipipe-naive", "gpt-tiny", 1},
                 {"wzb1", "llama-tiny", 1.5}, {"wzb1 --chunks 2", "llama-tiny", 1.5},
                 {"wzb2", "llama-tiny", 1},   {"wzb2:owner=each", "llama-tiny", 1}};

    for (size_t i = 0; i < sizeof rings / sizeof *rings; i++) {
        const char *name = rings[i].schedule;

        add_case(c,
                 (struct parity_case){.processes = is_long() ? ALONE | PROCESSES(2) | PROCESSES(3)
                                                             : PROCESSES(2 + i % 2)},
                 CALM "--steps 3 --model %s --schedule %s --stages 4", rings[i].model, name);
        add_case(c, (struct parity_case){.processes = ALONE, .kept = rings[i].kept},
                 CALM "--steps 3 --model gpt-tiny --schedule %s --stages 4 --seq 128", name);
        add_case(c, (struct parity_case){.processes = PROCESSES(4), .flat_from = 3},
                 CALM "--steps %d --model gpt-tiny --schedule %s --stages 4 --seq 32",
                 is_long() ? 12 : 6, name);
    }
}

/* One more round sends the same bytes at any length of sequences: two chunks of weights and one of
 * gradients in each turn, the paper's 36h^2 a layer, with biases and norms. */
static void ring_rounds(struct cases *c)
{
    static const char *const schedules[] = {"weipipe", "wzb2"};
    const int seqs[] = {128, is_long() ? 1024 : 512};

    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            for (int m = 4; m <= 6; m += 2)
                if (is_long() || (i + j + m / 2) % 2)
                    add_case(c,
                             (struct parity_case){.processes = PROCESSES(2),
                                                  .wire = WIRE_RING,
                                                  .unreferenced = true},
                             CALM "--steps 1 --model ./long --schedule %s --stages 2 "
                                  "--micro-batches %d --seq %d",
                             schedules[i], m, seqs[j]);
}

static void shards(struct cases *c)
{
    static const struct {
        int workers;
        const char *options;
    } runs[] = {
        {2, "--model gpt-tiny --schedule fsdp --stages 2 --micro-batches 4"},
        {4, "--model gpt-tiny --schedule fsdp --stages 4 --recompute no-attention"},
        {3, "--model gpt-tiny --schedule fsdp --stages 3 --micro-batches 9 --chunks 3 "
            "--recompute full"},
        {4, "--model gpt-tiny --schedule fsdp:order=breadth --stages 4"},
        {2, "--model llama-tiny --schedule fsdp --stages 2 --chunks 2 --recompute selective"},
        {3, "--model llama-tiny --schedule fsdp --stages 3 --micro-batches 9 --chunks 5"},
        {4, "--model llama-tiny --schedule fsdp --stages 4 --micro-batches 4 --chunks 1 "
            "--recompute every=3"},
        {4, "--model llama-tiny --schedule fsdp --stages 4"},
        {3, "--model llama-tiny --schedule fsdp:order=breadth --stages 3 --micro-batches 9 "
            "--chunks 5 --recompute full"},
    };

    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        whole_check(c, WIRE_SHARDS, runs[i].workers, runs[i].options);
    add_case(c, (struct parity_case){.processes = ALONE | PROCESSES(2) | PROCESSES(3)},
             CALM "--steps 1 --model gpt-tiny --schedule fsdp --stages 4");
    add_case(c, (struct parity_case){.processes = ALONE, .kept = 1},
             CALM "--steps 12 --model gpt-tiny --schedule fsdp --stages 4 --seq 128");
    add_case(c, (struct parity_case){.processes = ALONE | PROCESSES(4), .flat_from = 3},
             CALM "--steps 12 --model gpt-tiny --schedule fsdp --stages 4 --seq 32");
}

/* Norms of heads: B stores their gains' gradients separately if weights and gradients travel
 * separately. */
static void norms_of_heads(struct cases *c)
{
    add_case(c, (struct parity_case){.processes = ALONE | PROCESSES(2), .wire = WIRE_RING},
             CALM "--steps 3 --model ./qwen --schedule wzb2 --stages 2 --micro-batches 4");
    add_case(c, (struct parity_case){.processes = ALONE | PROCESSES(2), .wire = WIRE_SHARDS},
             CALM "--steps 3 --model ./qwen --schedule fsdp --stages 2 --micro-batches 4 "
                  "--recompute selective");
}

void weight_cases(struct cases *c)
{
    norms_of_heads(c);
    rings(c, 0);
    rings(c, 1);
    ring_processes(c);
    ring_rounds(c);
    shards(c);
}
