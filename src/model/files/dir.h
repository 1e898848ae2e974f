/*
 * Open directories. Their files are found through the descriptor, even if the directory is renamed
 * or replaced while it is open.
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
    bool holds; /* sp_dir_hold ran: other files are not seen */
};

#define SP_DIR_CLOSED ((struct sp_dir){.fd = -1})

/* Opens the directory at `path`, following links. Returns 0, or -errno without a message. */
int sp_dir_open(const char *path, struct sp_dir *d);
/* Opens the directory that the file at `path` is in, or would be. Likewise. */
int sp_dir_open_parent(const char *path, struct sp_dir *d);
/* Opens `name` in `parent`; follows a link only if `follow`. Returns 0, or -errno without a message
 * (-ENOTDIR, -ELOOP: something else has the name). */
int sp_dir_open_in(const struct sp_dir *parent, const char *name, bool follow, struct sp_dir *d);
void sp_dir_close(struct sp_dir *d);

/* For calls such as openat. */
int sp_dir_fd(const struct sp_dir *d);
/* "DIR/name", to be freed; NULL without memory. */
char *sp_dir_join(const struct sp_dir *d, const char *name);
/* Lists its entries from the first on; the caller uses readdir and closedir. NULL and errno on
 * failure. */
DIR *sp_dir_list(const struct sp_dir *d);
/* Lists the names that `takes` accepts, sorted by `compare` (as for qsort); the caller frees them.
 * Returns 0; a positive errno, without a message, if the directory cannot be listed; or -ENOMEM
 * after one line. */
int sp_dir_names(const struct sp_dir *d, bool (*takes)(const char *name),
                 int (*compare)(const void *a, const void *b), char ***names, int *n);
void sp_dir_free_names(char **names, int n);
/* True if `name` exists, even as a dangling link; *st describes the name itself, not a link's
 * target. */
bool sp_dir_has(const struct sp_dir *d, const char *name, struct stat *st);
bool sp_dir_is(const struct sp_dir *d, const struct stat *st);
/* Makes its renames and removals durable if the file system can. */
void sp_dir_sync(const struct sp_dir *d);

/*
 * Opens all files whose names are `wanted` and keeps them open until sp_dir_close. From then on
 * sp_dir_file opens these very files, even if their names are removed or replaced. Returns 0, or
 * -errno after one line.
 */
int sp_dir_hold(struct sp_dir *d, bool (*wanted)(const char *name, const void *arg),
                const void *arg);
/* Adds an open file to those that *d holds; *d owns fd from here on, and need not be open itself.
 * Returns 0, or -ENOMEM after one line. */
int sp_dir_hold_file(struct sp_dir *d, const char *name, int fd);
/* The name of the i-th file that is held, NULL after the last. */
const char *sp_dir_held(const struct sp_dir *d, int i);
/* Opens a file of any kind for reading; never waits for a FIFO. All descriptors of a held file
 * share one offset, so use pread. Returns a descriptor, or -errno without a message. */
int sp_dir_file(const struct sp_dir *d, const char *name);

/* Directories that sp_dir_make made. {0}: none. */
struct sp_made_dirs {
    char **path;
    int n;
};

/* Makes the directory at `path` and its missing parents; adds each one made to *made, unless that
 * is NULL. Returns 0, or -errno after one line. */
int sp_dir_make(const char *path, struct sp_made_dirs *made);
/* The same for the directory of a file at `path`. */
int sp_dir_make_parent(const char *path, struct sp_made_dirs *made);
/* If `undo`, removes the directories that are still empty. Frees the list. */
void sp_dir_made_end(struct sp_made_dirs *made, bool undo);

#endif
