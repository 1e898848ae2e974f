/*
 * Completion for bash: a table of options and their values, and completion.bash, which looks them
 * up and which the build turns into the string `functions`.
 */
#include "cli/help/help.h"
#include "model/model.h"
#include "plan/machine/machine.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "src/cli/help/completion.inc"

/* The values of "PRESET|DIR", "none|full|every=K", "FILE.jsonl": words as they are, "every=", and
 * @kind for what the shell or the program knows. */
static void print_values(const char *value)
{
    const char *word, *between = "";
    int length = 0;

    for (int i = 0; (word = sp_choice(value, i, &length)); i++) {
        const char *equals = memchr(word, '=', (size_t)length);
        const char *kind = !strncmp(word, "FILE", 4)     ? "@files"
                           : !strncmp(word, "DIR", 3)    ? "@directories"
                           : !strncmp(word, "PRESET", 6) ? "@presets"
                           : !strncmp(word, "NAME[", 5)  ? "@schedules"
                           : !strncmp(word, "NAME", 4)   ? "@machines"
                                                         : NULL;

        if (kind)
            printf("%s%s", between, kind);
        else if (islower(*word) && !strstr(word, ".."))
            printf("%s%.*s", between, equals ? (int)(equals - word) + 1 : length, word);
        else if (isdigit(*word))
            printf("%s%.*s", between, length, word);
        else
            continue;
        between = " ";
    }
}

void sp_help_bash(const struct sp_option *options, const char *command)
{
    printf("    '%s')\n        options='", command);
    for (const struct sp_option *o = options; o->name; o++)
        if (o->kind != SP_OPT_OPERAND)
            printf("--%s ", o->name);
    printf("--help'\n        case $2 in\n");
    for (const struct sp_option *o = options; o->name; o++) {
        const char *value = sp_help_value(o);

        if (!value)
            continue;
        if (o->kind == SP_OPT_OPERAND)
            printf("        operand) values='");
        else
            printf("        --%s) takes=1 values='", o->name);
        if (o->kind == SP_OPT_PLUGIN)
            printf("@plugins");
        else
            print_values(value);
        printf("' ;;\n");
    }
    printf("        esac\n        ;;\n");
}

void sp_help_program_bash(const struct sp_command *commands, int n)
{
    char *argv[] = {NULL, "--help=bash", NULL};

    printf("# bash completion of starpipe, made by 'starpipe --help=bash'.\n\n");
    printf("_starpipe_commands='");
    for (int i = 0; i < n; i++)
        printf("%s ", commands[i].name);
    printf("help --help --version'\n_starpipe_presets='");
    for (const char *const *name = sp_model_presets(); *name; name++)
        printf("%s%s", name == sp_model_presets() ? "" : " ", *name);
    printf("'\n_starpipe_machines='");
    for (int i = 0; sp_machine_name_at(i); i++)
        printf("%s%s", i ? " " : "", sp_machine_name_at(i));
    printf("'\n\n# The options of a command, and the values of one of them, in the caller's "
           "variables.\n"
           "# _starpipe_table COMMAND OPTION\n_starpipe_table()\n{\n    case $1 in\n");
    for (int i = 0; i < n; i++) {
        char name[32];

        snprintf(name, sizeof name, "%s", commands[i].name);
        argv[0] = name;
        commands[i].run(2, argv);
    }
    printf("    *) return 1 ;;\n    esac\n}\n\n%s", functions);
}
