/* starpipe trace KIND: one command for each kind of trace. */
#include "cli/trace/trace.h"
#include "cli/commands.h"
#include "cli/help/help.h"
#include "sp_error.h"
#include <stdio.h>
#include <string.h>

#define SUMMARY "Brings what was recorded of a run into the form that other tools read."

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} kinds[] = {
    {"fxt", sp_cmd_trace_fxt, "StarPU's traces (STARPU_FXT_TRACE=1), for StarVZ, ViTE and R"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static int run(int i, int argc, char **argv)
{
    static char name[64];

    snprintf(name, sizeof name, "trace %s", kinds[i].name);
    argv[0] = name;
    return kinds[i].run(argc, argv);
}

static void print_kinds(void)
{
    printf("usage: starpipe trace KIND ...\n%s\n\n", SUMMARY);
    for (int i = 0; i < KINDS; i++)
        printf("  %-10s %s\n", kinds[i].name, kinds[i].summary);
    printf("\n'starpipe trace KIND --help' lists what it takes.\n");
}

/* The page of the command names the kinds; the completion knows the options of each of them too. */
static void help(enum sp_help_form form)
{
    char names[256] = "", summaries[1024] = "", *argv[] = {NULL, "--help=bash", NULL};
    const char *kind = NULL;
    const struct sp_option options[] = {
        {"KIND", SP_OPT_OPERAND, &kind, names, summaries, 0, 0, 0, 0}, {0}};
    size_t n = 0, m = 0;

    for (int i = 0; i < KINDS; i++) {
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? "|" : "", kinds[i].name);
        m += (size_t)snprintf(summaries + m, sizeof summaries - m, "%s%s: %s", i ? "; " : "",
                              kinds[i].name, kinds[i].summary);
    }
    sp_help_print(form, options, "trace", SUMMARY);
    for (int i = 0; i < KINDS && form == SP_HELP_BASH; i++)
        run(i, 2, argv);
}

int sp_cmd_trace(int argc, char **argv)
{
    enum sp_help_form form;

    if (argc < 2) {
        sp_error(EINVAL, "trace: which kind? 'starpipe trace --help' lists them");
        return 2;
    }
    form = sp_help_form(argv[1]);
    if (form) {
        if (form == SP_HELP_TEXT)
            print_kinds();
        else
            help(form);
        return 0;
    }
    for (int i = 0; i < KINDS; i++)
        if (!strcmp(argv[1], kinds[i].name))
            return run(i, argc - 1, argv + 1);
    sp_error(EINVAL, "trace: no kind '%s'; 'starpipe trace --help' lists them", argv[1]);
    return 2;
}
