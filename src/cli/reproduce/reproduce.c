/*
 * starpipe reproduce: the experiments of a paper once more, published beside simulated.
 */
#include "cli/commands.h"
#include "cli/help/help.h"
#include "cli/options.h"
#include "cli/reproduce/paper.h"
#include "sp_error.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const struct sp_paper *paper;
    const char *summary;
} papers[] = {
    {&sp_paper_helixpipe, "HelixPipe (Zhang et al. 2025): attention of all stages in parallel"},
    {&sp_paper_weipipe, "WeiPipe (Lin et al. 2025): weights travel, activations stay"},
    {&sp_paper_sppo, "SPPO (2025): slices of one sequence, offloaded adaptively"},
    {&sp_paper_survey, "a survey of pipeline schedules: bubbles, memory, communication"},
};
#define SUMMARY "Re-runs the experiments of a paper in simulation, published beside simulated."
#define FORMATS "text|json|markdown|html"
enum { PAPERS = sizeof papers / sizeof *papers };

static int (*const forms[])(const struct sp_paper *) = {sp_paper_text, sp_paper_json,
                                                        sp_paper_markdown, sp_paper_html};

/* The paper's own command, under its whole name. */
static int run(int i, int argc, char **argv)
{
    static char name[64];
    struct sp_paper paper = *papers[i].paper;
    int format = 0, ret;
    const struct sp_option options[] = {
        {"format", SP_OPT_CHOICE, &format, FORMATS,
         "tables for people, one object, a document, a page with plots", 0, 0, FORMATS, 0},
        {0}};

    snprintf(name, sizeof name, "reproduce %s", paper.name);
    argv[0] = name;
    ret = sp_options_parse(options, papers[i].summary, argc, argv);
    if (ret)
        return SP_OPTIONS_EXIT(ret);
    ret = sp_paper_run(&paper);
    ret = ret ? ret : forms[format](&paper);
    sp_paper_destroy(&paper);
    return ret ? 1 : 0;
}

static void print_papers(void)
{
    printf("usage: starpipe reproduce PAPER [--format " FORMATS "]\n%s\n\n", SUMMARY);
    for (int i = 0; i < PAPERS; i++)
        printf("  %-10s %s\n", papers[i].paper->name, papers[i].summary);
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
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? "|" : "",
                              papers[i].paper->name);
        m += (size_t)snprintf(summaries + m, sizeof summaries - m, "%s%s, for %s", i ? "; " : "",
                              papers[i].paper->name, papers[i].summary);
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
        if (!strcmp(argv[1], papers[i].paper->name))
            return run(i, argc - 1, argv + 1);
    sp_error(EINVAL, "reproduce: no paper '%s'; 'starpipe reproduce --help' lists them", argv[1]);
    return 2;
}
