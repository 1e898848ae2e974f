/*
 * Finds the fastest layout of a model on a machine by predicting candidates: schedules with their
 * variants, pipelines side by side, devices that share parameters or tokens, sequences of a
 * micro-batch, slices, layers of each stage, recompute modes, evictions. Pure.
 *
 * The search first compares grids of devices with one simple schedule. Every schedule then starts
 * from the best of them and moves to layouts that differ in one size, as long as one is faster. No
 * layout is tried whose compute alone, or whose parameters alone, rule it out (bounds.h). A
 * sequence is cut into slices of 6.4 to 16 Ki tokens (SPPO section 6.1), or into as many as there
 * are stages if that is more, because fewer would leave stages idle; into smaller ones if nothing
 * else fits into memory.
 */
#ifndef SP_SEARCH_H
#define SP_SEARCH_H

#include "plan/search/found.h"

/*
 * Fills best[most] with the best layouts: those that fit before those that do not, then by tokens a
 * second and device; of equal ones those that train can run, with the fewest slices. Returns how
 * many; -ENOMEM, -EINVAL after one line. Layouts of very many micro-batches are compared by
 * extrapolating from two shorter steps. The `shown` ones that sp_found_distinct chooses, and the
 * first that train can run, are then predicted whole, until no others replace them.
 */
int sp_search(const struct sp_search *want, struct sp_found *best, int most, int shown);

/* The recompute mode, as --recompute has it. */
enum { SP_RECOMPUTE_TEXT = 24 };
const char *sp_found_recompute(const struct sp_found *f, char text[SP_RECOMPUTE_TEXT]);

/* Names as the user gave them; NULL: not given. */
struct sp_found_names {
    const char *model, *hardware, *plugin;
};

/* Writes the whole command that trains the layout, except for the data, into text[n]; `train
 * --dry-run` of it predicts the same step. */
void sp_found_command(const struct sp_search *want, const struct sp_found *f,
                      const struct sp_found_names *names, char *text, size_t n);

#endif
