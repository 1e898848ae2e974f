#include "sinks/starpu/fxt_tool.h"
#include "sp_error.h"
#include <limits.h>
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int sp_fxt_tool_most_files(void)
{
#ifdef STARPU_USE_FXT
    return STARPU_FXT_MAX_FILES;
#else
    return 0;
#endif
}

#ifdef STARPU_USE_FXT

/* Runs in a child process, because StarPU's reader ends the process at the first event it cannot
 * read. */
static void convert(char *const files[], int n, char *dir, const char *log)
{
    struct starpu_fxt_options options;

    if (!freopen(log, "w", stderr) || !freopen("/dev/null", "w", stdout))
        _exit(1);
    starpu_fxt_options_init(&options);
    options.dir = dir;
    for (int i = 0; i < n; i++)
        options.filenames[options.ninputfiles++] = files[i];
    starpu_fxt_generate_trace(&options);
    fflush(NULL);
    _exit(0);
}

/* Copies the last line of the reader's output. */
static void last_line(const char *log, char *text, int size)
{
    FILE *f = fopen(log, "r");

    snprintf(text, (size_t)size, "it says nothing");
    while (f && fgets(text, size, f))
        text[strcspn(text, "\n")] = '\0';
    if (f)
        fclose(f);
}

int sp_fxt_tool(char *const files[], int n, const char *dir)
{
    char log[PATH_MAX], said[256], *copy = strdup(dir);
    int status = 0;
    pid_t child;

    snprintf(log, sizeof log, "%s/log", dir);
    fflush(NULL);
    child = fork();
    if (child == 0)
        convert(files, n, copy, log);
    free(copy);
    if (child < 0)
        return sp_error(errno, "trace fxt: cannot start a process: %s", strerror(errno));
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (status == 0)
        return 0;
    last_line(log, said, sizeof said);
    return sp_error(EIO, "trace fxt: StarPU cannot read %s%s: %s", files[0],
                    n > 1 ? " or another of these" : "", said);
}

#else

int sp_fxt_tool(char *const files[], int n, const char *dir)
{
    (void)files, (void)n, (void)dir;
    return sp_error(ENOSYS, "trace fxt: this StarPU was built without FxT");
}

#endif
