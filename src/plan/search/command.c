#include "plan/search/search.h"
#include "policies/registry.h"
#include <stdio.h>
#include <string.h>

/* value NULL: the option has none. */
static void add(char *text, size_t n, const char *option, const char *value)
{
    size_t used = strlen(text);

    if (used < n)
        snprintf(text + used, n - used, value ? " --%s %s" : " --%s", option, value);
}

static void add_number(char *text, size_t n, const char *option, int value)
{
    char number[16];

    snprintf(number, sizeof number, "%d", value);
    add(text, n, option, number);
}

static void add_limit(const struct sp_search *want, char *text, size_t n)
{
    char bytes[32];

    snprintf(bytes, sizeof bytes, "%lld", (long long)sp_search_limit(want));
    add(text, n, "memory-limit", bytes);
}

/* Adds the hardware as the user gave it, or its kinds of nodes in the layout's order. */
static void add_hardware(const struct sp_search *want, const struct sp_found *f,
                         const struct sp_found_names *names, char *text, size_t n)
{
    char list[SP_MACHINE_TEXT];

    if (want->orders > 1)
        sp_machine_list(sp_search_machine(want, f), list, sizeof list);
    add(text, n, "hardware", want->orders > 1 ? list : names->hardware);
}

const char *sp_found_recompute(const struct sp_found *f, char text[SP_RECOMPUTE_TEXT])
{
    if (f->by_layer)
        return "auto";
    if (f->every <= 1)
        return sp_recompute_name(f->recompute);
    snprintf(text, SP_RECOMPUTE_TEXT, "every=%d", f->every);
    return text;
}

void sp_found_command(const struct sp_search *want, const struct sp_found *f,
                      const struct sp_found_names *names, char *text, size_t n)
{
    const struct sp_schedule_def *def = sp_schedule_find(f->schedule);
    int processes = sp_found_processes(f);
    bool limited =
        f->offload != SP_OFFLOAD_NONE || f->by_layer || (def && !strcmp(def->name, "adapipe"));
    char recompute[SP_RECOMPUTE_TEXT], launcher[32] = "";

    if (processes > 1)
        snprintf(launcher, sizeof launcher, "mpirun -np %d ", processes);
    snprintf(text, n, "%sstarpipe train --model %s", launcher, names->model);
    add_number(text, n, "seq", want->seq);
    add(text, n, "schedule", f->schedule);
    add_number(text, n, "stages", f->stages);
    add_number(text, n, "micro-batches", f->micro_batches);
    add_number(text, n, "micro-batch-size", f->batch);
    if (def && def->default_chunks > 0 && f->chunks != def->default_chunks)
        add_number(text, n, "chunks", f->chunks);
    if (f->slices > 1)
        add_number(text, n, "slices", f->slices);
    if (f->balanced)
        add(text, n, "partition", f->layers);
    if (!def || strcmp(def->name, "adapipe"))
        add(text, n, "recompute", sp_found_recompute(f, recompute));
    if (limited || want->memory)
        add_limit(want, text, n); /* the limit of its plan */
    if (f->offload != SP_OFFLOAD_NONE)
        add(text, n, "offload", sp_offload_name(f->offload));
    if (f->vocabulary)
        add(text, n, "vocabulary-parallel", NULL);
    if (!sp_schedule_is_synchronous(f->schedule))
        add(text, n, "clip", "0"); /* there is no gradient of the whole model to clip */
    add(text, n, "dtype", sp_dtype_name(f->dtype));
    if (want->machine->rates.threads > 0)
        add_number(text, n, "threads", want->machine->rates.threads);
    if (f->devices > 1)
        add_number(text, n, "tensor-parallel", f->devices);
    if (f->context > 1)
        add_number(text, n, "context-parallel", f->context);
    if (f->context > 1 && sp_search_rings(want, f))
        add(text, n, "context-method", "ring");
    if (f->data > 1)
        add_number(text, n, "data-parallel", f->data);
    if (f->zero)
        add_number(text, n, "zero", 1);
    if (names->plugin)
        add(text, n, "plugin", names->plugin);
    if (names->hardware)
        add_hardware(want, f, names, text, n);
}
