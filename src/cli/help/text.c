/* Help on the terminal. */
#include "cli/help/help.h"
#include <stdio.h>
#include <string.h>

enum { COLUMN = 32, COLUMNS = 100 }; /* where help begins, and ends */

/* Prints from COLUMN on, in lines that end at COLUMNS or before. */
static void print_wrapped(const char *text)
{
    int at = COLUMN;

    while (*text) {
        int word = (int)strcspn(text, " ");

        if (at > COLUMN && at + 1 + word > COLUMNS) {
            printf("\n%*s", COLUMN, "");
            at = COLUMN;
        } else if (at > COLUMN) {
            putchar(' ');
            at++;
        }
        printf("%.*s", word, text);
        at += word;
        text += word;
        text += *text == ' ';
    }
    putchar('\n');
}

static void print_option(const struct sp_option *o)
{
    bool operand = o->kind == SP_OPT_OPERAND;
    const char *value = operand ? NULL : sp_help_value(o);
    char text[4400], also[256], all[8192];
    int used =
        printf("  %s%s%s%s", operand ? "" : "--", o->name, value ? " " : "", value ? value : "");

    if (used > COLUMN - 2)
        printf("\n%*s", COLUMN, "");
    else
        printf("%*s", COLUMN - used, "");
    sp_help_default(o, text, sizeof text);
    sp_help_also(o, also, sizeof also);
    snprintf(all, sizeof all, "%s%s%s%s%s", o->help, text[0] ? " " : "", text, also[0] ? "; " : "",
             also);
    print_wrapped(all);
}

void sp_help_text(const struct sp_option *options, const char *command, const char *summary)
{
    const char *sizes = sp_help_sizes(options);

    printf("usage: starpipe %s", command);
    for (const struct sp_option *o = options; o->name; o++)
        if (o->kind == SP_OPT_OPERAND)
            printf(" %s", o->name);
    printf(" [options]\n%s\n\n", summary);
    for (const struct sp_option *o = options; o->name; o++)
        if (o->kind == SP_OPT_OPERAND)
            print_option(o);
    for (int topic = 0; topic < SP_TOPICS; topic++) {
        const char *heading = sp_help_heading(options, (enum sp_option_topic)topic);

        if (heading && topic != SP_TOPIC_NONE)
            printf("%s\n", heading);
        for (const struct sp_option *o = options; heading && o->name; o++)
            if ((int)o->topic == topic && o->kind != SP_OPT_OPERAND)
                print_option(o);
        if (heading && topic != SP_TOPIC_NONE)
            putchar('\n');
    }
    printf("  --help, -h%20s%s\n", "", "this text");
    if (sizes)
        printf("\n%s\n", sizes);
}

void sp_help_program_text(const struct sp_command *commands, int n)
{
    printf("usage: starpipe COMMAND [options]\n\n");
    for (int i = 0; i < n; i++)
        printf("  %-9s %s\n", commands[i].name, commands[i].summary);
    printf(
        "\n'starpipe help COMMAND' lists the options of a command; 'starpipe --version' says which "
        "this is.\n");
}
