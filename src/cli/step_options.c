#include "cli/step_options.h"
#include "plan/machine/machine.h"
#include "policies/simulation/costs.h"
#include "sp_error.h"
#include "train/layout_auto.h"
#include "train/slices_auto.h"
#include <stdio.h>

int sp_step_costs(const char *command, const struct sp_layout_args *l, const char *cost,
                  const struct sp_plan *plan, struct sp_costs *costs)
{
    struct sp_recompute_option recompute;
    int ret = sp_costs_parse(cost ? cost : "", plan, costs);

    if (ret || !l->recompute)
        return ret;
    ret = sp_parse_recompute(command, l->recompute, &recompute);
    if (ret || recompute.mode == SP_RECOMPUTE_NONE || recompute.mode == SP_RECOMPUTE_SELECTIVE)
        return ret;
    if (recompute.mode == SP_RECOMPUTE_FULL && plan->family->facts.parts)
        return sp_error(EINVAL,
                        "%s: --recompute %s: costs given by hand do not say what attention of %s "
                        "takes again; use no-attention, or --model without --cost",
                        command, l->recompute, plan->def->name);
    if (recompute.mode == SP_RECOMPUTE_NO_ATTENTION && !sp_costs_know_parts(costs))
        return sp_error(EINVAL,
                        "%s: --recompute no-attention needs the costs of the parts of a layer: "
                        "--cost pre=..,attn=..,post=.. and --layers",
                        command);
    sp_costs_add_recompute(plan, recompute.mode == SP_RECOMPUTE_FULL, costs);
    return 0;
}

int sp_step_machine(const struct sp_hardware_args *hardware, enum sp_dtype dtype,
                    struct sp_machine *machine)
{
    char why[SP_THREADS_WHY];
    int err = sp_machine_load(hardware->name ? hardware->name : SP_MACHINE_DEFAULT, machine);

    if (err)
        return err;
    sp_machine_take_threads(machine, hardware->threads, why);
    if (*why)
        sp_warn("%s", why);
    sp_machine_check_dtype(machine, dtype);
    return 0;
}

int sp_step_choose(const struct sp_step_auto *how, struct sp_layout_args *l,
                   struct sp_group_args *groups)
{
    static struct sp_auto_texts texts; /* the options point into it */
    struct sp_auto_request request = {.command = how->command,
                                      .layout = l,
                                      .groups = groups,
                                      .model = how->model,
                                      .dtype = how->dtype,
                                      .machine = how->machine};
    struct sp_auto_choice choice;
    char text[SP_AUTO_TEXT];
    int err;

    if (!sp_layout_is_auto(l))
        return 0;
    if (!how->model || !how->machine)
        return sp_error(EINVAL,
                        "%s: --schedule auto: which layout is fastest depends on the model and its "
                        "machine; give --model and leave out --cost",
                        how->command);
    request.devices = sp_auto_devices_of(how->machine, l, groups);
    err = sp_layout_auto(&request, &choice, NULL);
    if (err)
        return err;
    sp_layout_auto_take(&choice, l, groups, &texts);
    if (!how->says)
        return 0;
    sp_auto_choice_name(&choice, text);
    printf("auto: %s: %.4g ms a step predicted\n", text, choice.found.step_ms);
    sp_auto_choice_reason(&choice, choice.found.step_ms, text);
    printf("auto: %s\n", text);
    return 0;
}

int sp_step_slices(const char *command, struct sp_layout_args *l, const struct sp_machine *machine,
                   const struct sp_model *model, enum sp_dtype dtype)
{
    static struct sp_machine standard;

    if (!sp_slices_are_auto(l))
        return 0;
    if (!l->model)
        return sp_error(EINVAL,
                        "%s: --schedule %s: which is faster depends on the model; give --model",
                        command, l->schedule);
    if (!machine && sp_machine_load(SP_MACHINE_DEFAULT, &standard))
        return -EINVAL;
    return sp_slices_auto(command, l, model, dtype, machine ? machine : &standard, 0);
}

int sp_step_check_hardware(const char *command, const struct sp_layout_args *l,
                           const struct sp_hardware_args *hardware, const char *cost)
{
    const char *why = cost ? "--cost says what ops take; give one of the two"
                           : "what ops take there depends on the model; give --model too";

    if (l->model && !cost)
        return 0;
    if (hardware->name)
        return sp_error(EINVAL, "%s: --hardware %s: %s", command, hardware->name, why);
    if (hardware->threads)
        return sp_error(EINVAL, "%s: --threads %d: %s", command, hardware->threads, why);
    return 0;
}
