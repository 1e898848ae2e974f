/*
 * starpipe reproduce: the experiments of a paper once more, published beside simulated.
 */
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/reproduce/reproduce.h"
#include "sp_error.h"
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} papers[] = {
    {"helixpipe", sp_reproduce_helixpipe,
     "HelixPipe: table 2 (bubble and activation memory) and figure 6 (communication)"},
};
enum { PAPERS = sizeof papers / sizeof *papers };

/* The paper's own command, under its whole name. */
static int run(int paper, int argc, char **argv)
{
    static char name[64];

    snprintf(name, sizeof name, "reproduce %s", papers[paper].name);
    argv[0] = name;
    return papers[paper].run(argc, argv);
}

int sp_cmd_reproduce(int argc, char **argv)
{
    if (argc < 2) {
        sp_error(EINVAL, "reproduce: which paper? 'starpipe reproduce --help' lists them");
        return 2;
    }
    if (!strcmp(argv[1], "--help")) {
        printf("usage: starpipe reproduce PAPER [options]\n"
               "Re-runs the experiments of a paper, published beside simulated.\n\n");
        for (int i = 0; i < PAPERS; i++)
            printf("  %-10s %s\n", papers[i].name, papers[i].summary);
        printf("\n'starpipe reproduce PAPER --help' lists the options of a paper.\n");
        return 0;
    }
    for (int i = 0; i < PAPERS; i++)
        if (!strcmp(argv[1], papers[i].name))
            return run(i, argc - 1, argv + 1);
    sp_error(EINVAL, "reproduce: no paper '%s'; 'starpipe reproduce --help' lists them", argv[1]);
    return 2;
}
