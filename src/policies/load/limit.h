/* A bound on programs, against schedules that never end. */
#ifndef SP_LIMIT_H
#define SP_LIMIT_H

/* From now on a program takes at most `ops` ops; the next one calls full(ops), which does not
 * return. INT_MAX: no bound, as at first. */
void sp_program_limit(int ops, void (*full)(int ops));

#endif
