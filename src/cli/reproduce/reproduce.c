/*
 * starpipe reproduce: the experiments of a paper once more, published beside simulated.
 */
#include "cli/commands.h"
#include "cli/help/help.h"
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
#define SUMMARY "Re-runs the experiments of a paper, published beside simulated."
enum { PAPERS = sizeof papers / sizeof *papers };

/* The paper's own command, under its whole name. */
static int run(int paper, int argc, char **argv)
{
    static char name[64];

    snprintf(name, sizeof name, "reproduce %s", papers[paper].name);
    argv[0] = name;
    return papers[paper].run(argc, argv);
}

static void print_papers(void)
{
    printf("usage: starpipe reproduce PAPER [options]\n%s\n\n", SUMMARY);
    for (int i = 0; i < PAPERS; i++)
        printf("  %-10s %s\n", papers[i].name, papers[i].summary);
    printf("\n'starpipe reproduce PAPER --help' lists the options of a paper.\n");
}

/* The page of the command names the papers; the completion knows the options of each of them too. */
static void help(enum sp_help_form form)
{
    char names[256] = "", summaries[1024] = "", *argv[] = {NULL, "--help=bash", NULL};
    const char *paper = NULL;
    const struct sp_option options[] = {
        {"PAPER", SP_OPT_OPERAND, &paper, names, summaries, 0, 0, 0, 0}, {0}};
    size_t n = 0, m = 0;

    for (int i = 0; i < PAPERS; i++) {
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? "|" : "", papers[i].name);
        m += (size_t)snprintf(summaries + m, sizeof summaries - m, "%s%s, for %s", i ? "; " : "",
                              papers[i].name, papers[i].summary);
    }
    sp_help_print(form, options, "reproduce", SUMMARY);
    for (int i = 0; i < PAPERS && form == SP_HELP_BASH; i++)
        run(i, 2, argv);
}

int sp_cmd_reproduce(int argc, char **argv)
{
    enum sp_help_form form;

    if (argc < 2) {
        sp_error(EINVAL, "reproduce: which paper? 'starpipe reproduce --help' lists them");
        return 2;
    }
    form = sp_help_form(argv[1]);
    if (form) {
        if (form == SP_HELP_TEXT)
            print_papers();
        else
            help(form);
        return 0;
    }
    for (int i = 0; i < PAPERS; i++)
        if (!strcmp(argv[1], papers[i].name))
            return run(i, argc - 1, argv + 1);
    sp_error(EINVAL, "reproduce: no paper '%s'; 'starpipe reproduce --help' lists them", argv[1]);
    return 2;
}
