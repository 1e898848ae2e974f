/* The word a mistyped one was probably meant to be. */
#ifndef SP_NEAREST_H
#define SP_NEAREST_H

/* Edits (insert, delete, replace, swap of neighbours) between two words, of 63 letters at most. */
int sp_edit_distance(const char *a, const char *b);

/* Whether `distance` edits are few enough, for a word as long as `typed`, to suggest the other. */
int sp_is_near(const char *typed, int distance);

#endif
