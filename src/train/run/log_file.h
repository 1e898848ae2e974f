/* The file of --log: whether it may be overwritten or gone on with, and where. */
#ifndef SP_LOG_FILE_H
#define SP_LOG_FILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

enum { SP_LOG_NEW = -1 };

/*
 * Steps count from 1, and a plan says so: "first_step":1. Logs of versions that counted from 0 have none of
 * that. What is to be added to the numbers of steps in the lines that follow `line` to count from 1: where it
 * is a plan, as that says, else what it was before. Lines before the first plan have SP_LOG_SHIFT_OLD.
 */
enum { SP_LOG_SHIFT_OLD = 1 };
int sp_log_shift(const json_t *line, int before);

/* Whether the log is to go to standard output: "-". NULL is nowhere. */
bool sp_log_is_stdout(const char *path);
/* For a program that prints other things too: these go to standard error from now on, the log alone to what
 * standard output was. 0 or -errno after one line on stderr. */
int sp_log_take_stdout(void);

/*
 * Before work starts. What is there already must be a log of starpipe: it begins with a line that has
 * "plan". `done`: steps that a resumed run goes on from, behind whose lines its log goes on; SP_LOG_NEW: it will be overwritten. 0; or -EINVAL, -errno after one line on stderr: no log, or one
 * whose steps stand in another order, so that cutting would lose steps.
 */
int sp_log_check(const char *path, int done);

/* Does an open file begin so? */
bool sp_log_is_log(int fd);

/* The file of a log, taken for a run; fd -1: none. */
struct sp_log_file {
    int fd;
    bool made; /* it was not there */
};

/*
 * Makes the file if need be, and locks it (flock, exclusive), which tells other runs and readers that
 * this run goes on; the lock goes with the process, however that ends. Never waits: 0; -EBUSY after a line
 * that says who has it, or -errno likewise. Where the file system has no locks, a warning. "-" and what is
 * no regular file is not locked.
 */
int sp_log_take(const char *path, struct sp_log_file *log);

/*
 * Checks again, and opens what was taken, which *out has from here on. Of a resumed run the log is cut back
 * first to the steps done: at the first line that is torn or no JSON, or the line of a later step, so that each step stands there once. What is no regular file is not cut. 0 or
 * -errno likewise.
 */
int sp_log_open(const char *path, int done, struct sp_log_file *log, FILE **out);

/* Lets go of what was taken and not opened: a file that was made for it is removed. */
void sp_log_release(const char *path, struct sp_log_file *log);

/* Writes a line, to which the end of the line is added in its place: as a whole, or a file is as it was.
 * 0 or -errno after one line. */
int sp_log_write(FILE *log, const char *path, char *line);

#endif
