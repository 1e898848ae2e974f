/*
 * For tests of what ends a process: the test program starts itself again with the name of a scene,
 * and looks at how that ended and what it said.
 */
#ifndef SP_FAKE_SCENE_H
#define SP_FAKE_SCENE_H

#include "../kernels/cuda/said.h"
#include "fake_cudart.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* A scene with settings, "A=1 B=2", in the environment. */
struct scene {
    const char *name, *settings;
};

static inline int scene_begin(void *arg)
{
    const struct scene *scene = arg;
    char words[512], *word, *rest;

    snprintf(words, sizeof words, "%s", scene->settings);
    for (word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        putenv(word);
    alarm(120);
    execl("/proc/self/exe", "scene", scene->name, (char *)NULL);
    return 98;
}

/* Plays it; returns as said_by does. */
static inline int scene_play(const char *name, const char *settings, char *said, size_t n)
{
    struct scene scene = {name, settings};

    return said_by(scene_begin, &scene, said, n);
}

#endif
