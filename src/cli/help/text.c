/* Help on the terminal, and what the other forms share with it. */
#include "cli/help/help.h"
#include <stdio.h>
#include <string.h>

static void default_int(const struct sp_option *o, char *text, size_t n)
{
    bool bounded = o->min != 0 || o->max != 0;

    if (o->choices && *(int *)o->value == 0)
        snprintf(text, n, "(%.0f .. %.0f; default %s)", o->min, o->max,
                 strchr(o->choices, '|') + 1);
    else if (bounded && o->max < INT_MAX)
        snprintf(text, n, "(%.0f .. %.0f; default %d)", o->min, o->max, *(int *)o->value);
    else
        snprintf(text, n, "(default %d)", *(int *)o->value);
}

static void default_size(uint64_t bytes, char *text, size_t n)
{
    if (bytes && bytes % (1 << 20) == 0)
        snprintf(text, n, "(default %llu MiB)", (unsigned long long)bytes >> 20);
    else if (bytes && bytes % 1000000000 == 0)
        snprintf(text, n, "(default %llu GB)", (unsigned long long)bytes / 1000000000);
    else
        snprintf(text, n, "(default %llu)", (unsigned long long)bytes);
}

void sp_help_default(const struct sp_option *o, char *text, size_t n)
{
    bool bounded = o->min != 0 || o->max != 0;
    char value[4096];

    text[0] = '\0';
    switch (o->kind) {
    case SP_OPT_STRING:
    case SP_OPT_PLUGIN:
    case SP_OPT_CHOICE:
        sp_option_text(o, value, sizeof value);
        if (*value)
            snprintf(text, n, "(default %s)", value);
        break;
    case SP_OPT_INT:
        default_int(o, text, n);
        break;
    case SP_OPT_DOUBLE:
        if (bounded && o->max < 1e15)
            snprintf(text, n, "(%g .. %g; default %g)", o->min, o->max, *(double *)o->value);
        else
            snprintf(text, n, "(default %g)", *(double *)o->value);
        break;
    case SP_OPT_SIZE:
        default_size(*(uint64_t *)o->value, text, n);
        break;
    case SP_OPT_FLAG:
    case SP_OPT_OPERAND:
        break;
    }
}

const char *sp_help_value(const struct sp_option *o)
{
    const char *value = o->choices ? o->choices : o->arg;

    return o->kind == SP_OPT_FLAG || !value || !*value ? NULL : value;
}

static void print_option(const struct sp_option *o)
{
    bool operand = o->kind == SP_OPT_OPERAND;
    const char *value = operand ? NULL : sp_help_value(o);
    char text[4400];
    int used =
        printf("  %s%s%s%s", operand ? "" : "--", o->name, value ? " " : "", value ? value : "");

    if (used > 30)
        printf("\n%32s", "");
    else
        printf("%*s", 32 - used, "");
    sp_help_default(o, text, sizeof text);
    printf("%s%s%s\n", o->help, text[0] ? " " : "", text);
}

void sp_help_text(const struct sp_option *options, const char *command, const char *summary)
{
    printf("usage: starpipe %s", command);
    for (const struct sp_option *o = options; o->name; o++)
        if (o->kind == SP_OPT_OPERAND)
            printf(" %s", o->name);
    printf(" [options]\n%s\n\n", summary);
    for (const struct sp_option *o = options; o->name; o++)
        print_option(o);
    printf("  --help%24s%s\n", "", "this text");
}

void sp_help_program_text(const struct sp_command *commands, int n)
{
    printf("usage: starpipe COMMAND [options]\n\n");
    for (int i = 0; i < n; i++)
        printf("  %-9s %s\n", commands[i].name, commands[i].summary);
    printf("\n'starpipe COMMAND --help' lists the options of a command.\n");
}
