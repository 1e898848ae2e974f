/* What the commands that simulate a step make of --cost, --recompute, --slices auto and --hardware. */
#ifndef SP_CLI_STEP_OPTIONS_H
#define SP_CLI_STEP_OPTIONS_H

#include "model/shape.h"
#include "policies/plan.h"
#include "train/options.h"

/* --cost (NULL: none), with what --recompute adds to backwards: selective recomputation costs next to nothing.
 * 0; or -EINVAL after one line that begins with the command. */
int sp_step_costs(const char *command, const struct sp_layout_args *l, const char *cost,
                  const struct sp_plan *plan, struct sp_costs *costs);

/* --slices auto, on --hardware (NULL: the default machine). 0; or -EINVAL after one line. */
int sp_step_slices(const char *command, struct sp_layout_args *l, const char *hardware,
                   const struct sp_model *model, enum sp_dtype dtype);

/* --hardware beside --cost, or without --model: -EINVAL after one line. */
int sp_step_check_hardware(const char *command, const struct sp_layout_args *l,
                           const char *hardware, const char *cost);

#endif
