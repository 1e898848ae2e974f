/* The schedules: the built-in ones, each in a file of orders/, plus what plugins add. */
#ifndef SP_REGISTRY_H
#define SP_REGISTRY_H

#include "starpipe/schedule.h"
#include <stdbool.h>

/* NULL if there is none; a suffix ":..." of the name is ignored. */
const struct sp_schedule_def *sp_schedule_find(const char *name);
/* Whether a name carries a flag, as zb1p:auto does. */
bool sp_schedule_flag(const char *name, const char *flag);
/* Whether its order is searched at costs: one that says so, or chooses a number. */
bool sp_schedule_is_searched(const char *name);
/* Whether embedding and head may be cut over all stages with it (families/vocabulary). */
bool sp_schedule_shares_vocabulary(const char *name);
/* Tells whether stages compute different layers, which may be dealt out to them in any numbers. */
bool sp_schedule_deals_layers(const char *name);
/* Whether it cuts sequences, and whether it is made for that. */
bool sp_schedule_takes_slices(const char *name);
bool sp_schedule_wants_slices(const char *name);
/* Whether a step is one update, of the gradients of the weights that it began with. */
bool sp_schedule_is_synchronous(const char *name);
/* Tensors of bsh numbers that go together as one of its messages, as a rule. */
int sp_schedule_tensors(const char *name);
/* --recompute as it was given, or, where that is NULL, what the schedule wants: "none" unless it says. */
const char *sp_schedule_recompute(const char *name, const char *given);
/* The i-th schedule, NULL past the end. */
const struct sp_schedule_def *sp_schedule_at(int i);

/* Who has a schedule that is not built in. */
struct sp_schedule_owner {
    const char *label; /* "plugin FILE", "program NAME": lines about it begin so */
    const char *file;  /* of the plugin; NULL: the program has it */
};

/* Adds a schedule, whose name must be new; both stay the caller's and alive. 0 or -ENOMEM. */
int sp_schedule_add(const struct sp_schedule_def *def, const struct sp_schedule_owner *owner);
/* NULL: built in. */
const struct sp_schedule_owner *sp_schedule_owner(const struct sp_schedule_def *def);
/* The file of the plugin that a schedule comes from, NULL: from none. */
const char *sp_schedule_plugin(const struct sp_schedule_def *def);

#endif
