/*
 * Every schedule on both model styles, two and four stages, in one process and in several; without
 * SP_LONG by turns, on four stages of one style and two of the other. Both presets have eight layers;
 * gpt-tiny ties its tables, and a step with a wrong replica would show in the losses after it. Then 1F1B
 * over many steps, and layers dealt out by hand, to some stages none.
 */
#include "parity/cases.h"
#include "parity/compare.h"
#include "policies/registry.h"
#include <string.h>

static int slices_of(const char *schedule)
{
    return sp_schedule_takes_slices(schedule) ? 3 : 1;
}

static void every_schedule(struct cases *c)
{
    const struct sp_schedule_def *def;
    int n = 0;

    for (; (def = sp_schedule_at(n)); n++) {
        static const struct {
            const char *model;
            int stages;
            unsigned processes;
        } runs[] = {{"gpt-tiny", 2, ALONE | PROCESSES(2)},
                    {"gpt-tiny", 4, ALONE | PROCESSES(4)},
                    {"llama-tiny", 2, ALONE},
                    {"llama-tiny", 4, ALONE | PROCESSES(2)}};

        for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
            if (!sp_schedule_is_synchronous(def->name))
                continue; /* its gradients are of weights in between */
            else if (is_long() || (n % 2 ? i == 0 || i == 3 : i == 1 || i == 2))
                add_case(
                    c,
                    (struct parity_case){.processes = is_long() || i ? runs[i].processes : ALONE},
                    "--model %s --schedule %s --stages %d --slices %d", runs[i].model, def->name,
                    runs[i].stages, slices_of(def->name));
    }
    if (n < 18)
        fail_case("there are only %d schedules", n);
}

static void many_steps(struct cases *c)
{
    static const struct {
        const char *model;
        int steps;
        unsigned processes;
    } runs[] = {{"gpt-tiny", 20, ALONE | PROCESSES(2)},
                {"llama-tiny", 20, ALONE | PROCESSES(2)},
                {"gpt-tiny", 6, ALONE | PROCESSES(3)},
                {"llama-tiny", 6, ALONE | PROCESSES(3)},
                {"gpt-tiny", 10, ALONE | PROCESSES(4)}};

    for (size_t i = 0; i < sizeof runs / sizeof *runs; i += is_long() ? 1 : 3)
        add_case(c,
                 (struct parity_case){.processes = runs[i].processes,
                                      .weights_bar = 1e-4,
                                      .twice = runs[i].steps == 20},
                 "--model %s --schedule 1f1b --stages 4 --seq 32 --steps %d", runs[i].model,
                 runs[i].steps);
}

/* The embedding by itself, the head by itself, and stages in between that hand on what they receive. */
static void empty_stages(struct cases *c)
{
    static const struct {
        unsigned processes;
        const char *options;
    } runs[] = {
        {ALONE | PROCESSES(3), "--model gpt-tiny --schedule 1f1b --stages 3 --partition 0,4,4"},
        {ALONE | PROCESSES(4), "--model ./heavy --schedule zb1p --stages 4 --partition 0,5,3,0"},
        {ALONE | PROCESSES(2), "--model ./qwen --schedule gpipe --stages 6 --partition 0,1,0,2,1,0 "
                               "--recompute full"},
        {ALONE | PROCESSES(2), "--model gpt-tiny --schedule interleaved --stages 2 --chunks 3 "
                               "--partition 2,0,0,3,3,0 --recompute every=2"},
        {ALONE | PROCESSES(2), "--model ./heavy --schedule zbv --stages 2 --partition 0,4,4,0"},
        {ALONE, "--model llama-tiny --schedule dualpipe --stages 4 --partition 0,0,8,0"},
        {ALONE | PROCESSES(3), "--model gpt-tiny --schedule dualpipev --stages 3 "
                               "--partition 0,3,0,1,4,0 --scheduler ready"},
        {ALONE | PROCESSES(3), "--model gpt-tiny --schedule seq1f1b --slices 3 --stages 3 "
                               "--partition 0,8,0"},
        {ALONE | PROCESSES(3), "--model ./heavy --schedule 1f1b --stages 3 --partition 0,8,0 "
                               "--vocabulary-parallel"},
        {ALONE | PROCESSES(2), "--model llama-tiny --schedule zb1p --stages 4 --partition 8,0,0,0 "
                               "--vocabulary-parallel"},
    };

    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        add_case(c, (struct parity_case){.processes = runs[i].processes, .flat_from = i ? 0 : 4},
                 "--seq 32 --steps %d %s", i ? 3 : 6, runs[i].options);
    add_case(c, (struct parity_case){.processes = ALONE | PROCESSES(3), .undone = {5, 5}},
             "--model gpt-tiny --schedule zb1p --stages 3 --seq 32 --partition 0,8,0 --steps 7 "
             "--post-validation --clip 0.1");
}

void schedule_cases(struct cases *c)
{
    every_schedule(c);
    many_steps(c);
    add_case(c, (struct parity_case){.processes = ALONE},
             "--model ./heavy --schedule 1f1b --stages 4 --seq 32 --micro-batches 6 --steps 3 "
             "--partition 1,4,1,2");
    empty_stages(c);
}
