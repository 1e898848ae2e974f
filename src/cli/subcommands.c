#include "cli/commands.h"
#include "cli/help/help.h"
#include "cli/options.h"
#include "sp_error.h"
#include "sp_suggest.h"
#include <stdio.h>
#include <string.h>

static int run_sub(const struct sp_subcommands *c, int i, int argc, char **argv)
{
    static char name[64];

    snprintf(name, sizeof name, "%s %s", c->command, c->sub[i].name);
    argv[0] = name;
    return c->run(i, argc, argv);
}

static void print_usage(const struct sp_subcommands *c)
{
    printf("usage: starpipe %s %s %s\n%s\n\n", c->command, c->operand, c->options, c->summary);
    for (int i = 0; i < c->n; i++)
        printf("  %-10s %s\n", c->sub[i].name, c->sub[i].summary);
    printf("\n'starpipe %s %s --help' lists %s.\n", c->command, c->operand, c->help);
}

/* The page of the command names the subcommands; the completion knows the options of each of them
 * too. */
static void print_page(const struct sp_subcommands *c, enum sp_help_form form)
{
    char names[256] = "", summaries[1024] = "", *argv[] = {NULL, "--help=bash", NULL};
    const char *value = NULL;
    const struct sp_option options[] = {
        SP_OPTION(c->operand, OPERAND, value, .help = summaries, .arg = names), {0}};
    size_t n = 0, m = 0;

    for (int i = 0; i < c->n; i++) {
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? "|" : "", c->sub[i].name);
        m += (size_t)snprintf(summaries + m, sizeof summaries - m, "%s%s%s%s", i ? "; " : "",
                              c->sub[i].name, c->joint, c->sub[i].summary);
    }
    sp_help_print(form, options, c->command, c->summary);
    for (int i = 0; i < c->n && form == SP_HELP_BASH; i++)
        run_sub(c, i, 2, argv);
}

static int refuse_word(const struct sp_subcommands *c, const char *word)
{
    struct sp_suggestion suggestion = {.typed = word};
    char meant[128];

    for (int i = 0; i < c->n; i++)
        sp_suggest(&suggestion, c->sub[i].name, (int)strlen(c->sub[i].name));
    sp_suggest_text(&suggestion, "", meant, sizeof meant);
    if (*meant)
        sp_error(EINVAL, "%s: no %s '%s'%s", c->command, c->what, word, meant);
    else
        sp_error(EINVAL, "%s: no %s '%s'; 'starpipe %s --help' lists them", c->command, c->what,
                 word, c->command);
    return 2;
}

int sp_subcommands_run(const struct sp_subcommands *c, int argc, char **argv)
{
    enum sp_help_form form;

    if (argc < 2) {
        sp_error(EINVAL, "%s: which %s? 'starpipe %s --help' lists them", c->command, c->what,
                 c->command);
        return 2;
    }
    form = sp_help_form(argv[1]);
    if (form) {
        if (form == SP_HELP_TEXT)
            print_usage(c);
        else
            print_page(c, form);
        return 0;
    }
    for (int i = 0; i < c->n; i++)
        if (!strcmp(argv[1], c->sub[i].name))
            return run_sub(c, i, argc - 1, argv + 1);
    return refuse_word(c, argv[1]);
}
