/* The starpipe command: picks the subcommand. */
#include "cli/commands.h"
#include "config.h"
#include "sp_error.h"
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"train", sp_cmd_train, "trains a model, pipelined over stages"},
    {"list", sp_cmd_list, "the schedules, one line each"},
    {"show", sp_cmd_show, "the programs of a schedule, its bubble and memory"},
    {"plan", sp_cmd_plan, "stages, slices and memory for a model and a cluster"},
    {"reproduce", sp_cmd_reproduce, "the experiments of a paper, published beside simulated"},
    {"info", sp_cmd_info, "the hardware, build features and versions"},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void usage(void)
{
    printf("usage: starpipe COMMAND [options]\n\n");
    for (int i = 0; i < COMMANDS; i++)
        printf("  %-9s %s\n", commands[i].name, commands[i].summary);
    printf("\n'starpipe COMMAND --help' lists the options of a command.\n");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        sp_error(EINVAL, "no command; 'starpipe --help' lists them");
        return 2;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        usage();
        return 0;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("%s\n", PACKAGE_STRING);
        return 0;
    }
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(argv[1], commands[i].name))
            return commands[i].run(argc - 1, argv + 1);
    sp_error(EINVAL, "unknown command '%s'; 'starpipe --help' lists them", argv[1]);
    return 2;
}
