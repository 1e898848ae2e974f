/* Runs a function in a process of its own: how that ends, and the words on stderr. */
#ifndef SP_TESTS_SAID_H
#define SP_TESTS_SAID_H

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs f(arg), whose result, 0 to 255, is the exit status if it returns; -n: ended by signal n. */
static inline int said_by(int (*f)(void *arg), void *arg, char *text, size_t size)
{
    int ends[2], status;
    size_t got = 0;
    ssize_t n;
    pid_t child;

    fflush(stdout);
    if (pipe(ends) || (child = fork()) < 0)
        return -1;
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        _exit(f(arg));
    }
    close(ends[1]);
    while (got < size - 1 && (n = read(ends[0], text + got, size - 1 - got)) > 0)
        got += (size_t)n;
    text[got] = '\0';
    close(ends[0]);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* One line of ours, and no more. */
static inline int is_one_line(const char *text)
{
    const char *end = strchr(text, '\n');

    return strncmp(text, "starpipe: ", 10) == 0 && end && end[1] == '\0';
}

#endif
