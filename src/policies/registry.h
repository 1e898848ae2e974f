/* The schedules: the built-in ones, each in a file of orders/, plus what plugins add. */
#ifndef SP_REGISTRY_H
#define SP_REGISTRY_H

#include "starpipe/schedule.h"
#include <stdbool.h>

/* NULL if there is none; a suffix ":..." of the name is ignored. */
const struct sp_schedule_def *sp_schedule_find(const char *name);
/* Returns true if a name carries a flag, like zb1p:auto. */
bool sp_schedule_flag(const char *name, const char *flag);
/* Returns true if the order depends on costs: an option searches for it, or for one of its
 * numbers. */
bool sp_schedule_is_searched(const char *name);
/* Returns true if embedding and head may be cut over all stages (families/vocabulary). */
bool sp_schedule_shares_vocabulary(const char *name);
/* Returns true if stages compute different layers, in numbers that may be chosen freely. */
bool sp_schedule_deals_layers(const char *name);
/* Returns true if the schedule can cut sequences; and if it is made for that. */
bool sp_schedule_takes_slices(const char *name);
bool sp_schedule_wants_slices(const char *name);
/* Returns true if a step is one update, from gradients of the weights that the step began with. */
bool sp_schedule_is_synchronous(const char *name);
/* Tensors of bsh numbers that one message usually carries. */
int sp_schedule_tensors(const char *name);
/* `given`, the user's --recompute; if that is NULL, the schedule's default, "none" if it has
 * none. */
const char *sp_schedule_recompute(const char *name, const char *given);
/* The i-th schedule, NULL past the end. */
const struct sp_schedule_def *sp_schedule_at(int i);

/* The owner of a schedule that is not built in. */
struct sp_schedule_owner {
    const char *label; /* "plugin FILE", "program NAME": the beginning of lines about it */
    const char *file;  /* of the plugin; NULL: the program owns it */
};

/* Adds a schedule, whose name must be new. The caller owns both and keeps them alive. 0 or
 * -ENOMEM. */
int sp_schedule_add(const struct sp_schedule_def *def, const struct sp_schedule_owner *owner);
/* NULL: built in. */
const struct sp_schedule_owner *sp_schedule_owner(const struct sp_schedule_def *def);
/* The file of the plugin that a schedule comes from, NULL: from none. */
const char *sp_schedule_plugin(const struct sp_schedule_def *def);

/* Returns true if a comma-separated list (NULL: empty) has a word of this length. */
bool sp_list_has(const char *list, const char *word, size_t length);

/* The family of a schedule that names this one, with the options of a layout. */
const struct sp_family *sp_family_variant(const struct sp_family *family,
                                          const struct sp_layout *lay);

#endif
