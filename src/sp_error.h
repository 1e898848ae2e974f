/* One line on stderr for the user, and the code for the caller. */
#ifndef SP_ERROR_H
#define SP_ERROR_H

#include <errno.h>
#include <stdbool.h>

/* Prints "starpipe: <message>\n" on stderr in one write and returns -err. */
int sp_error(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Ends the process with status 1 after such a line, where no error can be returned: memory that is not there. */
void sp_error_end(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* The same, where the line was said before. */
void sp_error_said_end(void) __attribute__((noreturn));

/* How such a process ends, which others may wait for: `end` does not return. NULL: it leaves at once. */
void sp_error_end_by(void (*end)(int status));

/* The use that memory was needed for, where `got` is NULL or 0. */
#define SP_NEED(got, ...)                                                                          \
    do {                                                                                           \
        if (!(got))                                                                                \
            sp_error_end(__VA_ARGS__);                                                             \
    } while (0)

/* Like sp_error, for what does not stop the run: "starpipe: warning: ..." */
void sp_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Sets the function that tells, once for each, that a line of the terminal is begun: a line on
 * stderr then ends it first, if that is the same terminal. Any thread may call it. */
void sp_error_follows(bool (*line)(void));

/* Lines of this thread do not follow what standard output has yet to write: its reader may hold that up for ever. */
void sp_error_alone(void);

/* Silences this thread while something is only tried, or not; returns what was set before. */
bool sp_error_quiet(bool quiet);

/*
 * While several ranks prepare, each would print the same refusal. Held, ranks other than 0 keep
 * their first line; sp_error_release prints it, with the rank, where this one `speaks`: the first of
 * those that failed.
 */
void sp_error_hold(int rank);
void sp_error_release(bool speaks);

#endif
