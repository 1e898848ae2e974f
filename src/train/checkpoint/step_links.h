/* The links of a run's directory to the newest step, which make it a model for others. */
#ifndef SP_STEP_LINKS_H
#define SP_STEP_LINKS_H

/* Points the links of DIR at the configuration and the weights of DIR/step, whatever files they are
 * in, and removes those of an earlier form. At no moment do they make a model of two steps. 0 or
 * -errno after one line. */
int sp_step_link(const char *dir, const char *step);

/* Removes them, before what they lead to goes. */
void sp_step_unlink(const char *dir);

#endif
