/*
 * For tests of what ends a process: the test program starts itself again with the name of a scene,
 * and looks at how that ended and what it said.
 */
#ifndef SP_FAKE_SCENE_H
#define SP_FAKE_SCENE_H

#include "fake_cudart.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* In a scene: what must hold, or it ends with status 99. */
#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #x);                        \
            _exit(99);                                                                             \
        }                                                                                          \
    } while (0)

/*
 * In main, first: plays the scene that the command line names, if it names one. Without the fake
 * libraries first in LD_LIBRARY_PATH the test is skipped.
 */
static inline void scene_main(int argc, char **argv, void (*play)(const char *name))
{
    if (!sp_fake_counts) {
        fprintf(stderr, "this is not the fake CUDA runtime\n");
        exit(77);
    }
    if (argc > 1) {
        play(argv[1]);
        _exit(0);
    }
}

/*
 * Plays a scene with settings, "A=1 B=2", in the environment; returns its wait status, and the
 * beginning of its stderr in said[n].
 */
static inline int scene_play(const char *name, const char *settings, char *said, size_t n)
{
    char buffer[4096], words[512], *word, *rest;
    size_t length = 0;
    int status = 0, tube[2];
    ssize_t got;
    pid_t pid;

    if (pipe(tube) || (pid = fork()) < 0)
        return -1;
    if (pid == 0) {
        snprintf(words, sizeof words, "%s", settings);
        for (word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
            putenv(word);
        dup2(tube[1], STDERR_FILENO);
        close(tube[0]);
        close(tube[1]);
        alarm(120);
        execl("/proc/self/exe", "scene", name, (char *)NULL);
        _exit(98);
    }
    close(tube[1]);
    while ((got = read(tube[0], buffer, sizeof buffer)) > 0 || (got < 0 && errno == EINTR))
        for (ssize_t i = 0; i < got; i++)
            if (length + 1 < n)
                said[length++] = buffer[i];
    said[length] = '\0';
    close(tube[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

#endif
