/*
 * Checks a command's outputs before work starts: that they can be written, and that they destroy
 * nothing that the command reads or writes otherwise.
 */
#ifndef SP_OUTPUTS_H
#define SP_OUTPUTS_H

#include "starpipe/trainer.h"
#include <stdbool.h>
#include <sys/stat.h>

/* Checks that a file can be made at `path`; with `makes`, once sp_dir_make_parent has made its
 * directory. Touches nothing that exists, and makes nothing. 0; or -errno after one line on
 * stderr, also for FIFOs, sockets and block devices. Never blocks. */
int sp_output_try_file(const char *path, bool makes);
/* Checks that files can be made in the directory, once sp_dir_make has made it. 0, or -errno
 * after one line. */
int sp_output_try_dir(const char *path);

/* True if the path, or a directory on the way to it, is a name in directory `dir` that `takes`
 * accepts. None of them needs to exist. */
bool sp_output_is_in(const char *path, const char *dir, bool (*takes)(const char *name));

enum sp_file_use {
    SP_FILE_READ,
    SP_FILE_WRITTEN, /* the file that its name or link leads to */
    SP_FILE_REPLACED /* another file gets its name: the target of a link of that name stays */
};

/* The files of a command, in any order; {0} has none. */
struct sp_files {
    struct sp_file *file;
    int n, cap;
};

/* Adds a file. `option` names it in messages ("--log") and must outlive the list. 0 or -ENOMEM
 * after one line. */
int sp_files_add(struct sp_files *files, enum sp_file_use use, const char *option,
                 const char *path);
/* Adds the files of a model's or a checkpoint's directory: configuration, weights, moments,
 * state. Other files in it, such as a log, are not read. Adds nothing for a preset, or if there
 * is no directory. */
int sp_files_add_model(struct sp_files *files, const char *option, const char *dir);
/* Adds the files that layout options name: the model's directory, the file of csv:FILE, the
 * plugins that are loaded. */
int sp_files_add_layout(struct sp_files *files, const struct sp_layout_args *layout);
/*
 * Checks that no written file is also read, or written twice. Files that exist are told apart by
 * device and inode, whatever links lead to them; others by their directory and their name in it. 0;
 * or -EINVAL after one line on stderr that begins with the command.
 */
int sp_files_check(const struct sp_files *files, const char *command);
/* True if the file of `st` is in the list. */
bool sp_files_have(const struct sp_files *files, const struct stat *st);
void sp_files_free(struct sp_files *files);

#endif
