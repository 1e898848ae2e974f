/* The links of a run's directory to its newest step. They make the directory a model for other
 * programs. */
#ifndef SP_STEP_LINKS_H
#define SP_STEP_LINKS_H

#include "model/files/dir.h"

/*
 * Points the links of `run` at the configuration, the weights and their companions in its directory
 * `step`, whatever files they are in, and removes links of an earlier form. A file that has a
 * companion's name and is no link of a run's stays. At no moment do the links make a model of two
 * steps. 0; 1 after a warning: no links can be made there, and none is left; or -errno after one
 * line.
 */
int sp_step_link(const struct sp_dir *run, const char *step);

/* Removes the links, before the step that they lead to goes. */
void sp_step_unlink(const struct sp_dir *run);

/*
 * Finds a model at the top of `run` that no run made: lists the names of its configuration and
 * weights in names[n], with commas; empty: none. *fixed: one of them is a directory, which nothing
 * replaces. False: the directory cannot be read.
 */
bool sp_step_foreign_model(const struct sp_dir *run, char *names, size_t n, bool *fixed);
/* Removes that model, if --overwrite replaces it: a link goes, the file it leads to stays. */
void sp_step_remove_foreign_model(const struct sp_dir *run);

#endif
