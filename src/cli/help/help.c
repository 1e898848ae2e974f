/* The form of help that a word asks for, help on the terminal, and what the forms have in common. */
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

static void print_help(const struct sp_option *options, const char *command, const char *summary)
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

static void print_program(const struct sp_command *commands, int n)
{
    printf("usage: starpipe COMMAND [options]\n\n");
    for (int i = 0; i < n; i++)
        printf("  %-9s %s\n", commands[i].name, commands[i].summary);
    printf(
        "\n'starpipe help COMMAND' lists the options of a command; 'starpipe --version' says which "
        "this is.\n");
}

/* ---- all forms */

enum sp_help_form sp_help_form(const char *word)
{
    static const struct {
        const char *word;
        enum sp_help_form form;
    } forms[] = {{"--help", SP_HELP_TEXT},
                 {"-h", SP_HELP_TEXT},
                 {"--help=man", SP_HELP_MAN},
                 {"--help=bash", SP_HELP_BASH}};

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(word, forms[i].word))
            return forms[i].form;
    return SP_HELP_NONE;
}

void sp_help_print(enum sp_help_form form, const struct sp_option *options, const char *command,
                   const char *summary)
{
    if (form == SP_HELP_MAN)
        sp_help_man(options, command, summary);
    else if (form == SP_HELP_BASH)
        sp_help_bash(options, command);
    else
        print_help(options, command, summary);
}

void sp_help_print_program(enum sp_help_form form, const struct sp_command *commands, int n)
{
    if (form == SP_HELP_MAN)
        sp_help_program_man(commands, n);
    else if (form == SP_HELP_BASH)
        sp_help_program_bash(commands, n);
    else
        print_program(commands, n);
}

static void default_int(const struct sp_option *o, char *text, size_t n)
{
    bool bounded = o->min != 0 || o->max != 0;

    if (sp_option_word(o))
        snprintf(text, n, "(%.0f .. %.0f; default %s)", o->min, o->max, sp_option_word(o));
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

/* True if the help line states the default itself, or if 0 means "not given", as for a token id,
 * which is one only if it was given. */
static bool has_no_default(const struct sp_option *o)
{
    return strstr(o->help, "(default") ||
           (o->kind == SP_OPT_INT && o->given && !sp_option_word(o) && !*(int *)o->value);
}

void sp_help_default(const struct sp_option *o, char *text, size_t n)
{
    bool bounded = o->min != 0 || o->max != 0;
    char value[4096];

    text[0] = '\0';
    if (has_no_default(o))
        return;
    switch (o->kind) {
    case SP_OPT_STRING:
    case SP_OPT_TEXT:
    case SP_OPT_PLUGIN:
    case SP_OPT_OUTPUT:
    case SP_OPT_CHOICE:
        sp_option_text(o, value, sizeof value);
        if (*value == '\n')
            snprintf(text, n, "(default: a line break)");
        else if (*value)
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

void sp_help_also(const struct sp_option *o, char *text, size_t n)
{
    const char *also;
    size_t used = 0;
    int length;

    text[0] = '\0';
    for (int i = 0; (also = sp_choice(o->also, i, &length)) && used < n; i++) {
        int name = (int)strcspn(also, "=|");

        used += (size_t)snprintf(text + used, n - used, "%s--%.*s: --%s%s%.*s", i ? ", " : "", name,
                                 also, o->name, name < length ? " " : "",
                                 name < length ? length - name - 1 : 0, also + name + 1);
    }
}

const char *sp_help_heading(const struct sp_option *options, enum sp_option_topic topic)
{
    static const char *const headings[SP_TOPICS] = {
        [SP_TOPIC_NONE] = "Options",
        [SP_TOPIC_EVERYDAY] = "Everyday: what most command lines have",
        [SP_TOPIC_MODEL] = "Model and data: what a step computes with",
        [SP_TOPIC_SCHEDULE] = "Schedule: how work is cut, and which stage does it when",
        [SP_TOPIC_MEMORY] = "Memory: what is kept, computed again or moved out",
        [SP_TOPIC_DEVICES] = "Devices and groups: what computes, and what processes share",
        [SP_TOPIC_OPTIMIZER] = "Optimizer: how a step changes the parameters",
        [SP_TOPIC_EVALUATION] = "Evaluation: what the model has learnt",
        [SP_TOPIC_OUTPUT] = "Output: what is printed and written",
        [SP_TOPIC_ADVANCED] = "Advanced: for measurements and hard cases",
    };

    for (const struct sp_option *o = options; o->name; o++)
        if (o->topic == topic && o->kind != SP_OPT_OPERAND)
            return headings[topic];
    return NULL;
}

const char *sp_help_sizes(const struct sp_option *options)
{
    for (const struct sp_option *o = options; o->name; o++)
        if (o->kind == SP_OPT_SIZE)
            return "Sizes are in bytes; 10M is 10MiB, 10 x 1024^2 bytes; 10MB is 10 x 1000^2.";
    return NULL;
}
