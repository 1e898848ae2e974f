/* The file of --log: whether it may be overwritten or continued, and from where. */
#ifndef SP_LOG_FILE_H
#define SP_LOG_FILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

enum { SP_LOG_NEW = -1 };

/*
 * Steps count from 1, and a plan says so: "first_step":1. Logs of versions that counted from 0 do
 * not have that. Returns the number to add to the steps in the lines after `line` so that they
 * count from 1: a plan determines it, any other line leaves it as `before`. Lines before the first
 * plan have SP_LOG_SHIFT_OLD.
 */
enum { SP_LOG_SHIFT_OLD = 1 };
int sp_log_shift(const json_t *line, int before);

/* True if the log goes to standard output: "-". NULL is nowhere. */
bool sp_log_is_stdout(const char *path);
/* For a program that prints other things too: from now on those go to standard error, and only
 * the log goes to the original standard output. 0 or -errno after one line on stderr. */
int sp_log_take_stdout(void);

/*
 * Call it before work starts. A file that exists must be a log of starpipe, which begins with a
 * line that has "plan". `done`: the steps that a resumed run continues from, whose lines its log
 * follows; SP_LOG_NEW: the file will be overwritten. 0; or -EINVAL or -errno after one line on
 * stderr: the file is no log, or its steps are out of order, so that cutting it would lose steps.
 */
int sp_log_check(const char *path, int done);

/* True if an open file begins like a log. */
bool sp_log_is_log(int fd);

/* The file of a log, taken for a run; fd -1: none. */
struct sp_log_file {
    int fd;
    bool made; /* the file was not there before */
};

/*
 * Makes the file if need be, and locks it (flock, exclusive). The lock tells other runs and readers
 * that this run is still going; it ends with the process, however that ends. Never waits: 0; -EBUSY
 * after a line that says who has the lock, or -errno after one line. On a file system without locks
 * it only warns. "-" and anything but a regular file is not locked.
 */
int sp_log_take(const char *path, struct sp_log_file *log);

/*
 * Checks again, and opens the file that was taken, which *out owns from here on. For a resumed run
 * it first cuts the log back to the steps done: at the first line that is torn, is no JSON, or is
 * about a later step, so that each step is in it once. Only regular files are cut. 0 or -errno
 * after one line.
 */
int sp_log_open(const char *path, int done, struct sp_log_file *log, FILE **out);

/* Gives up a file that was taken and not opened; removes it if sp_log_take made it. */
void sp_log_release(const char *path, struct sp_log_file *log);

/* Writes a line, in which the terminating NUL becomes a newline. Either all of it is written, or
 * a file stays as it was. 0 or -errno after one line. */
int sp_log_write(FILE *log, const char *path, char *line);

#endif
