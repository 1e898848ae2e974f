/* The starpipe command: picks the subcommand, and sees that what it printed got there. */
#include "cli/commands.h"
#include "cli/help/help.h"
#include "cli/result.h"
#include "config.h"
#include "sp_error.h"
#include "sp_suggest.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct sp_command commands[] = {
    {"train", sp_cmd_train, "trains a model, pipelined over stages"},
    {"watch", sp_cmd_watch, "follows the log of a run, in the terminal or in a page"},
    {"list", sp_cmd_list, "the schedules, one line each"},
    {"show", sp_cmd_show, "the programs of a schedule, its bubble and memory"},
    {"simulate", sp_cmd_simulate, "a step in virtual time, under StarPU-SimGrid"},
    {"plan", sp_cmd_plan, "stages, slices and memory for a model and a cluster"},
    {"report", sp_cmd_report, "where the time of a recorded step went, and why"},
    {"compare", sp_cmd_compare, "where two recorded steps differ, by op, stage and cause"},
    {"diff", sp_cmd_diff, "the first tensor or loss in which two runs differ"},
    {"reproduce", sp_cmd_reproduce, "the experiments of a paper, published beside simulated"},
    {"sample", sp_cmd_sample, "text from a saved model"},
    {"tokenize", sp_cmd_tokenize, "text to tokens, by the tokenizer of a model"},
    {"trace", sp_cmd_trace, "StarPU's traces of a run, for StarVZ"},
    {"calibrate", sp_cmd_calibrate, "measures this machine and writes a description of it"},
    {"info", sp_cmd_info, "the hardware, build features and versions"},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

/* Started with a standard stream closed, the first file that is opened would take its place, and
 * what is printed would go into it. Reads and writes of what is put there instead fail as those of
 * a closed one. */
static int hold_standard_streams(void)
{
    static const int modes[] = {O_WRONLY, O_RDONLY, O_RDONLY};

    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd]) != fd)
            return -1;
    return 0;
}

/* The exit status, when what was printed has got where it should. */
static int check_output(int status)
{
    int err = fflush(stdout) ? errno : 0;

    if (status || (!err && !ferror(stdout)))
        return status;
    if (!err) /* an earlier write failed: one more tells why */
        err = putchar('\n') == EOF || fflush(stdout) ? errno : EIO;
    sp_error(err, "cannot write standard output: %s", strerror(err));
    return 1;
}

static int unknown_command(const char *word)
{
    struct sp_suggestion suggestion = {.typed = word};
    char meant[128];

    if (!strncmp(word, "--", 2) && word[2])
        return sp_error(EINVAL, "%s stands after a command: 'starpipe train %s ...'", word, word);
    for (int i = 0; i < COMMANDS; i++)
        sp_suggest(&suggestion, commands[i].name, (int)strlen(commands[i].name));
    sp_suggest_text(&suggestion, "", meant, sizeof meant);
    return sp_error(EINVAL, "unknown command '%s'%s", word,
                    *meant ? meant : "; 'starpipe --help' lists them");
}

/* argv[0] is the command. */
static int run_command(int argc, char **argv)
{
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(argv[0], commands[i].name))
            return commands[i].run(argc, argv);
    unknown_command(argv[0]);
    return 2;
}

/* "help train", "help reproduce sppo": as "train --help". */
static int help_of(int argc, char **argv)
{
    char *words[] = {argv[0], argc > 1 ? argv[1] : "--help", "--help", NULL};

    if (argc > 2) {
        sp_error(EINVAL, "help: '%s' is one word too many", argv[2]);
        return 2;
    }
    return run_command(argc + 1, words);
}

static int run_words(int argc, char **argv)
{
    enum sp_help_form form;

    if (argc < 2) {
        sp_error(EINVAL, "no command; 'starpipe --help' lists them");
        return 2;
    }
    if (!strcmp(argv[1], "help") && argc > 2)
        return help_of(argc - 2, argv + 2);
    form = sp_help_form(strcmp(argv[1], "help") ? argv[1] : "--help");
    if (form) {
        sp_help_print_program(form, commands, COMMANDS);
        return 0;
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version") || !strcmp(argv[1], "-V")) {
        printf("%s\n", PACKAGE_STRING);
        return 0;
    }
    return run_command(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    if (hold_standard_streams())
        return 1;
    signal(SIGXFSZ, SIG_IGN); /* the write fails then, which is said */
    return check_output(sp_result_end(run_words(argc, argv)));
}
