/*
 * Which layout of a model on a machine is fastest, by predicting those that could be: schedules with their variants,
 * pipelines side by side, devices that share parameters or tokens, sequences of a micro-batch, slices, layers of each
 * stage, what is computed again, what leaves memory. Pure.
 *
 * Grids of devices are compared with one simple schedule first. Every schedule then starts from the best of them and goes
 * from layout to layout that differs in one size, as long as one is faster; no layout is tried whose compute alone, or
 * whose parameters alone, rule it out (bounds.h). A sequence is cut into slices of 6.4 to 16 Ki tokens (SPPO section
 * 6.1), or into as many as there are stages if that is more: fewer would leave stages idle; into smaller ones where
 * nothing else fits into memory.
 */
#ifndef SP_SEARCH_H
#define SP_SEARCH_H

#include "plan/search/found.h"

/*
 * The best, at most `most`: those that fit before those that do not, the most tokens a second and device
 * first, of equal ones those that train runs, with the fewest slices. Returns how many; -ENOMEM, -EINVAL
 * after one line. Layouts of very many micro-batches are chosen by what two steps of fewer come to; the `shown`
 * that sp_found_distinct chooses, and the first that train runs, are then predicted whole, until they are.
 */
int sp_search(const struct sp_search *want, struct sp_found *best, int most, int shown);

/* The mode of recomputation, as --recompute has it. */
enum { SP_RECOMPUTE_TEXT = 24 };
const char *sp_found_recompute(const struct sp_found *f, char text[SP_RECOMPUTE_TEXT]);

/* Names as the user gives them; NULL: he did not. */
struct sp_found_names {
    const char *model, *hardware, *plugin;
};

/* The whole command that trains with it, but for the data, into text[n]: `train --dry-run` of it predicts the same step. */
void sp_found_command(const struct sp_search *want, const struct sp_found *f,
                      const struct sp_found_names *names, char *text, size_t n);

#endif
