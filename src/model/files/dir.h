/*
 * Directories that are open. Whatever is renamed, or put in their place, while they are: their files are
 * found through the descriptor.
 *
 * Functions that take a directory and a name also take NULL and a path.
 */
#ifndef SP_DIR_H
#define SP_DIR_H

#include <dirent.h>
#include <stdbool.h>
#include <sys/stat.h>

struct sp_dir {
    int fd;     /* -1: not open */
    char *path; /* for messages */
    struct sp_held_file *held;
    int n_held;
    bool holds; /* files were: there are no others */
};

#define SP_DIR_CLOSED ((struct sp_dir){.fd = -1})

/* Opens the directory at `path`, also through links. 0, or -errno without a word. */
int sp_dir_open(const char *path, struct sp_dir *d);
/* Opens `name` in `parent`; a link only if `follow`. 0, or -errno likewise (-ENOTDIR, -ELOOP: something else
 * is there). */
int sp_dir_open_in(const struct sp_dir *parent, const char *name, bool follow, struct sp_dir *d);
void sp_dir_close(struct sp_dir *d);

/* For calls such as openat. */
int sp_dir_fd(const struct sp_dir *d);
/* "DIR/name", to be freed; NULL without memory. */
char *sp_dir_join(const struct sp_dir *d, const char *name);
/* Its entries, from the first on, for readdir and closedir. NULL and errno. */
DIR *sp_dir_list(const struct sp_dir *d);
/* The names in it that `takes` is true for, in the order of `compare` (as qsort has it), to be freed. 0; an errno, without
 * a word: it cannot be listed; or -ENOMEM after one line. */
int sp_dir_names(const struct sp_dir *d, bool (*takes)(const char *name),
                 int (*compare)(const void *a, const void *b), char ***names, int *n);
void sp_dir_free_names(char **names, int n);
/* Is `name` there, a link to nothing too? What it is itself in *st. */
bool sp_dir_has(const struct sp_dir *d, const char *name, struct stat *st);
bool sp_dir_is(const struct sp_dir *d, const struct stat *st);
/* Makes its renames and removals durable, where the file system can. */
void sp_dir_sync(const struct sp_dir *d);

/*
 * Opens all files whose names are `wanted`, and keeps them open until sp_dir_close: what sp_dir_file gives
 * from then on are these files, whoever removes or replaces their names. 0, or -errno after one line.
 */
int sp_dir_hold(struct sp_dir *d, bool (*wanted)(const char *name, const void *arg),
                const void *arg);
/* Adds a file that is open, and is *d's from here on, to those that it holds; *d itself need not be open. 0 or
 * -ENOMEM after one line. */
int sp_dir_hold_file(struct sp_dir *d, const char *name, int fd);
/* The name of the i-th file that is held, NULL after the last. */
const char *sp_dir_held(const struct sp_dir *d, int i);
/* A file to read, of any kind; never waits for a FIFO. Of a file that is held all descriptors share one
 * offset: pread. A descriptor, or -errno without a word. */
int sp_dir_file(const struct sp_dir *d, const char *name);

/* Directories that were made on the way to one. {0}: none. */
struct sp_made_dirs {
    char **path;
    int n;
};

/* Makes the directory at `path`, and those on the way to it, where they are not there; adds them to *made,
 * if that is not NULL. 0, or -errno after one line. */
int sp_dir_make(const char *path, struct sp_made_dirs *made);
/* The same for the directory that a file at `path` is in. */
int sp_dir_make_parent(const char *path, struct sp_made_dirs *made);
/* Removes those of them that are empty, if `undo`, and forgets them. */
void sp_dir_made_end(struct sp_made_dirs *made, bool undo);

#endif
