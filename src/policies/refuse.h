/* Saying no to a layout, with the nearest one that would do. */
#ifndef SP_REFUSE_H
#define SP_REFUSE_H

#include "starpipe/schedule.h"

/* Writes the reason into why[n], then "; use" and the sizes of `fit` that are not those of `lay`,
 * as options of the command line: -EINVAL. */
int sp_refuse(const struct sp_layout *lay, const struct sp_layout *fit, char *why, size_t n,
              const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Refuses, towards `fit`, a layout of other chunks or of more slices; 0 if it has neither. */
int sp_refuse_chunks(const struct sp_layout *lay, const struct sp_layout *fit, char *why, size_t n);

/* Whether an option was given with this word. */
int sp_option_is(const struct sp_layout *lay, const char *key, const char *word);
/* Refuses a word of an option that is neither of two; 0 if it is one, or was not given. */
int sp_refuse_word(const struct sp_layout *lay, const char *key, const char *one, const char *other,
                   char *why, size_t n);

/* Refuses micro-batches of which stages cannot have as many each; 0 if they can. */
int sp_refuse_rounds(const struct sp_layout *lay, char *why, size_t n);

#endif
