/* The links of a run's directory to the newest step, which make it a model for others. */
#ifndef SP_STEP_LINKS_H
#define SP_STEP_LINKS_H

#include "model/files/dir.h"

/*
 * Points the links of `run` at the configuration, the weights and their companions of its directory `step`,
 * whatever files they are in, and removes those of an earlier form. A file that has a companion's name and is no
 * link of a run's stays. At no moment do they make a model of two steps. 0; 1 after a warning: no links can be
 * made there, and none is left; or -errno after one line.
 */
int sp_step_link(const struct sp_dir *run, const char *step);

/* Removes them, before what they lead to goes. */
void sp_step_unlink(const struct sp_dir *run);

/*
 * A model at the top of `run` that is not the run's: the names of its configuration and weights in
 * names[n], with commas; empty: none. *fixed: one of them is a directory, which nothing replaces. False:
 * the directory cannot be read.
 */
bool sp_step_foreign_model(const struct sp_dir *run, char *names, size_t n, bool *fixed);
/* Removes that, where --overwrite replaces it: a link and not what it leads to. */
void sp_step_remove_foreign_model(const struct sp_dir *run);

#endif
