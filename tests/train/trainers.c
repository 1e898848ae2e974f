/*
 * trainers FILE: makes the run of each line of FILE, options as `starpipe train` takes them, one after the other in
 * the processes that mpirun started: a trainer for each, as a program opens it that initialised MPI itself.
 *
 * Exit: 0 all ended, 1 some did not, each after its line; 2 wrong usage.
 */
#define _GNU_SOURCE 1 /* getline */
#include "cli/train/train.h"
#include "config.h"
#include "sp_error.h"
#ifdef HAVE_MPI
#include <mpi.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORDS = 128 };

/* Cuts the line at its blanks. The number of words. */
static int cut(char *line, char *words[MOST_WORDS])
{
    char *save = NULL;
    int n = 0;

    for (char *w = strtok_r(line, " \n", &save); w && n < MOST_WORDS;
         w = strtok_r(NULL, " \n", &save))
        words[n++] = w;
    return n;
}

/* 0 or -errno, on all processes alike. */
static int run(int argc, char **argv)
{
    struct sp_train_config cfg;
    struct sp_trainer *t;
    int err = sp_train_parse(argc, argv, &cfg);

    err = err ? err : sp_trainer_open(&cfg, &t);
    if (err)
        return err;
    while (!err && sp_trainer_done(t) < cfg.steps)
        err = sp_trainer_step(t, sp_trainer_done(t) + 1 < cfg.steps, NULL);
    return sp_trainer_close(t) ? -EIO : err;
}

static int run_lines(FILE *lines, int rank)
{
    char *line = NULL, *words[MOST_WORDS];
    size_t room = 0;
    int failed = 0;

    while (getline(&line, &room, lines) > 0) {
        char *whole = strdup(line);

        SP_NEED(whole, "no memory for a line");
        if (run(cut(line, words), words)) {
            failed = 1;
            if (rank == 0)
                printf("FAIL: %s", whole);
        }
        free(whole);
    }
    free(line);
    return failed;
}

int main(int argc, char **argv)
{
    FILE *lines = argc == 2 ? fopen(argv[1], "r") : NULL;
    int failed, rank = 0;

    if (!lines) {
        fprintf(stderr, "usage: trainers FILE\n");
        return 2;
    }
#ifdef HAVE_MPI
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &failed);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#endif
    failed = run_lines(lines, rank);
    fclose(lines);
#ifdef HAVE_MPI
    MPI_Finalize();
#endif
    return failed;
}
