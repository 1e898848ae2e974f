/*
 * Every schedule on both model styles, two and four stages, in one process and in several; without
 * SP_LONG by turns, on four stages of one style and two of the other. Both presets have eight layers;
 * gpt-tiny ties its tables, and a step with a wrong replica would show in the losses after it. Then 1F1B
 * over many steps, and layers dealt out by hand.
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

void schedule_cases(struct cases *c)
{
    every_schedule(c);
    many_steps(c);
    add_case(c, (struct parity_case){.processes = ALONE},
             "--model ./heavy --schedule 1f1b --stages 4 --seq 32 --micro-batches 6 --steps 3 "
             "--partition 1,4,1,2");
}
