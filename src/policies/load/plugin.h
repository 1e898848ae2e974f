/*
 * Schedules from shared libraries, and those that programs register (starpipe/schedule.h). A plugin
 * is a C file built against the installed headers that ends in SP_PLUGIN(&def); see
 * docs/writing-a-schedule.md.
 */
#ifndef SP_PLUGIN_H
#define SP_PLUGIN_H

/*
 * Loads the plugins that `files` names (may be NULL), then those of STARPIPE_PLUGIN_PATH, and adds
 * their schedules to the registry. Both are lists of files and directories separated by ':',
 * `files` also by ','. From a directory every *.so is taken, sorted by name. A file named again is
 * skipped. 0; or -EINVAL after one line on stderr: nothing is guessed, loading stops at the first
 * that is wrong. Plugins stay loaded.
 */
int sp_plugins_load(const char *files);

#endif
