/* Refusals of a layout, which name the nearest one that would do. */
#ifndef SP_REFUSE_H
#define SP_REFUSE_H

#include "starpipe/schedule.h"

/* Writes the reason into why[n], then "; use" and the sizes of `fit` that are not those of `lay`,
 * as options of the command line: -EINVAL. */
int sp_refuse(const struct sp_layout *lay, const struct sp_layout *fit, char *why, size_t n,
              const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Refuses a layout whose chunks are not those of `fit`, or with more slices; 0 if it is neither. */
int sp_refuse_chunks(const struct sp_layout *lay, const struct sp_layout *fit, char *why, size_t n);

/* Refuses a layout that cuts sequences; 0 if it does not. */
int sp_refuse_slices(const struct sp_layout *lay, char *why, size_t n);

/* Returns true if an option was given with this word. */
int sp_option_is(const struct sp_layout *lay, const char *key, const char *word);
/* Refuses an option whose word is neither `one` nor `other`; 0 if it is, or was not given. */
int sp_refuse_word(const struct sp_layout *lay, const char *key, const char *one, const char *other,
                   char *why, size_t n);

#endif
