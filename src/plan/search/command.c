#include "plan/search/search.h"
#include "policies/registry.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Appends to the command in text[n]. */
static void __attribute__((format(printf, 3, 4))) add(char *text, size_t n, const char *format, ...)
{
    size_t used = strlen(text);
    va_list ap;

    va_start(ap, format);
    vsnprintf(text + used, n - used, format, ap);
    va_end(ap);
}

/* Adds the hardware as the user gave it, or its kinds of nodes in the layout's order. */
static void add_hardware(const struct sp_search *want, const struct sp_found *f,
                         const struct sp_found_names *names, char *text, size_t n)
{
    char list[SP_MACHINE_TEXT];

    if (want->orders > 1)
        sp_machine_list(sp_search_machine(want, f), list, sizeof list);
    add(text, n, " --hardware %s", want->orders > 1 ? list : names->hardware);
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
    char method[SP_METHOD_TEXT], recompute[SP_RECOMPUTE_TEXT], launcher[32] = "";

    if (processes > 1)
        snprintf(launcher, sizeof launcher, "mpirun -np %d ", processes);
    snprintf(text, n, "%sstarpipe train --model %s --seq %d --schedule %s --stages %d", launcher,
             names->model, want->seq, f->schedule, f->stages);
    add(text, n, " --micro-batches %d --micro-batch-size %d", f->micro_batches, f->batch);
    if (def && def->default_chunks > 0 && f->chunks != def->default_chunks)
        add(text, n, " --chunks %d", f->chunks);
    if (f->slices > 1)
        add(text, n, " --slices %d", f->slices);
    if (f->balanced)
        add(text, n, " --partition %s", f->layers);
    if (!def || strcmp(def->name, "adapipe"))
        add(text, n, " --recompute %s", sp_found_recompute(f, recompute));
    if (limited || want->memory) /* the limit of its plan */
        add(text, n, " --memory-limit %lld", (long long)sp_search_limit(want));
    if (f->offload != SP_OFFLOAD_NONE)
        add(text, n, " --offload %s", sp_offload_name(f->offload));
    if (want->states_evicted)
        add(text, n, " --offload-optimizer");
    if (want->optimizer != SP_UPDATE_AUTO)
        add(text, n, " --optimizer-device %s", want->optimizer == SP_UPDATE_GPU ? "gpu" : "cpu");
    if (f->vocabulary)
        add(text, n, " --vocabulary-parallel");
    if (!sp_schedule_is_synchronous(f->schedule))
        add(text, n, " --clip 0"); /* there is no gradient of the whole model to clip */
    add(text, n, " --dtype %s", sp_dtype_name(f->dtype));
    if (want->machine->rates.threads > 0)
        add(text, n, " --threads %d", want->machine->rates.threads);
    if (f->devices > 1)
        add(text, n, " --tensor-parallel %d", f->devices);
    if (f->context > 1)
        add(text, n, " --context-parallel %d", f->context);
    if (f->context > 1 && sp_search_ulysses(want, f) < f->context)
        add(text, n, " --context-method %s",
            sp_method_text(f->context, sp_search_ulysses(want, f), method));
    if (f->data > 1)
        add(text, n, " --data-parallel %d", f->data);
    if (f->zero)
        add(text, n, " --zero %d", f->zero);
    if (names->plugin)
        add(text, n, " --plugin %s", names->plugin);
    if (names->hardware)
        add_hardware(want, f, names, text, n);
}
