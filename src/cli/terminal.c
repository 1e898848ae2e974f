#include "cli/print.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

bool sp_rewrites_lines(int fd)
{
    const char *term = getenv("TERM");

    return isatty(fd) && (!term || strcmp(term, "dumb"));
}

double sp_clock_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
