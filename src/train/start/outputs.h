/*
 * What a command writes, looked at before work starts: can it be written, and does it destroy what the
 * command reads, or something else that it writes?
 */
#ifndef SP_OUTPUTS_H
#define SP_OUTPUTS_H

#include "starpipe/trainer.h"
#include <stdbool.h>
#include <sys/stat.h>

/* Can a file be made at `path`; if `makes`, once sp_dir_make_parent has made its directory? Nothing that exists is
 * touched, nothing is made. 0; or -errno after one line on stderr, also for FIFOs, sockets and block devices.
 * Never blocks. */
int sp_output_try_file(const char *path, bool makes);
/* Can files be made in the directory, once sp_dir_make has made it? 0 or -errno, likewise. */
int sp_output_try_dir(const char *path);

/* Is it, or a directory on the way to it, a name in directory `dir` that `takes` takes? None of them needs to be
 * there. */
bool sp_output_is_in(const char *path, const char *dir, bool (*takes)(const char *name));

enum sp_file_use {
    SP_FILE_READ,
    SP_FILE_WRITTEN, /* what its name or link leads to */
    SP_FILE_REPLACED /* another file gets its name: what a link of that name leads to stays */
};

/* The files of a command, in any order; {0} has none. */
struct sp_files {
    struct sp_file *file;
    int n, cap;
};

/* `option` names it in messages ("--log") and must live as long as the list. 0 or -ENOMEM after one line. */
int sp_files_add(struct sp_files *files, enum sp_file_use use, const char *option,
                 const char *path);
/* The same for the files of a model's or a checkpoint's directory: configuration, weights, moments, state.
 * Other files in it, a log for example, are not read. None if it is a preset, or no directory. */
int sp_files_add_model(struct sp_files *files, const char *option, const char *dir);
/* What layout options name: the model's directory, the file of csv:FILE, the plugins that are loaded. */
int sp_files_add_layout(struct sp_files *files, const struct sp_layout_args *layout);
/*
 * Is no file that is written also read, or written twice? Files that exist are told apart by device and
 * inode, whatever links lead to them; others by the directory and the name in it. 0; or -EINVAL after one
 * line on stderr that begins with the command.
 */
int sp_files_check(const struct sp_files *files, const char *command);
/* Is the file of `st` one of them? */
bool sp_files_have(const struct sp_files *files, const struct stat *st);
void sp_files_free(struct sp_files *files);

#endif
