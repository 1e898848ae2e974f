/* Manual pages, in the macros of man(7). */
#include "cli/help/help.h"
#include "config.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Text as roff prints it: dashes that can be copied, no requests. */
static void put_roff(const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", stdout);
    for (; *text; text++) {
        if (*text == '-')
            fputs("\\-", stdout);
        else if (*text == '\\')
            fputs("\\e", stdout);
        else
            putchar(*text);
    }
}

static void put_in_font(char font, const char *text)
{
    printf("\\f%c", font);
    put_roff(text);
    fputs("\\fR", stdout);
}

/* "starpipe-reproduce-helixpipe" of "reproduce helixpipe". */
static void page_name(const char *command, bool upper, char name[80])
{
    snprintf(name, 80, "starpipe%s%s", *command ? "-" : "", command);
    for (char *c = name; *c; c++)
        *c = (char)(*c == ' ' ? '-' : upper ? toupper(*c) : *c);
}

/* `summary` without its capital and its period. */
static void put_head(const char *command, const char *summary)
{
    char name[80], title[80], line[256];
    size_t n;

    page_name(command, false, name);
    page_name(command, true, title);
    snprintf(line, sizeof line, "%s", summary);
    n = strlen(line);
    if (n && line[n - 1] == '.')
        line[n - 1] = '\0';
    if (islower(line[1]))
        line[0] = (char)tolower(line[0]);
    printf(".TH %s 1 \"\" \"" PACKAGE_STRING "\" \"starpipe\"\n.SH NAME\n", title);
    put_roff(name);
    printf(" \\- ");
    put_roff(line);
    printf("\n.SH SYNOPSIS\n");
}

static void put_option(const struct sp_option *o)
{
    const char *value = sp_help_value(o);
    char text[4400], also[256];

    printf(".TP\n");
    if (o->kind == SP_OPT_OPERAND) {
        put_in_font('I', o->name);
    } else {
        printf("\\fB\\-\\-");
        put_roff(o->name);
        printf("\\fR");
        if (value) {
            putchar(' ');
            put_in_font('I', value);
        }
    }
    putchar('\n');
    put_roff(o->help);
    putchar('\n');
    sp_help_default(o, text, sizeof text);
    if (text[0]) {
        put_roff(text);
        putchar('\n');
    }
    sp_help_also(o, also, sizeof also);
    if (also[0]) {
        put_roff(also);
        putchar('\n');
    }
}

/* Operands, then the options by their headings. */
static void put_options(const struct sp_option *options)
{
    const char *sizes = sp_help_sizes(options);

    printf(".SH OPTIONS\nA value follows its option, or an equals sign.\n"
           "If an option is given twice, the last value counts.\n");
    if (sizes) {
        put_roff(sizes);
        putchar('\n');
    }
    for (const struct sp_option *o = options; o->name; o++)
        if (o->kind == SP_OPT_OPERAND)
            put_option(o);
    for (int topic = 0; topic < SP_TOPICS; topic++) {
        const char *heading = sp_help_heading(options, (enum sp_option_topic)topic);

        if (heading && topic != SP_TOPIC_NONE) {
            printf(".SS ");
            put_roff(heading);
            putchar('\n');
        }
        for (const struct sp_option *o = options; heading && o->name; o++)
            if ((int)o->topic == topic && o->kind != SP_OPT_OPERAND)
                put_option(o);
    }
    printf(".TP\n\\fB\\-\\-help\\fR, \\fB\\-h\\fR\nThe options with their defaults.\n");
}

static void put_examples(const struct sp_help_page *page)
{
    if (!page->examples[0].line)
        return;
    printf(".SH EXAMPLES\n");
    for (int i = 0; i < 5 && page->examples[i].line; i++) {
        printf("%s\n", i ? ".PP" : "");
        put_roff(page->examples[i].what);
        printf("\n.PP\n.nf\n.RS\n");
        put_roff(page->examples[i].line);
        printf("\n.RE\n.fi\n");
    }
}

static void put_exit_status(const char *command)
{
    printf(".SH EXIT STATUS\n");
    if (!strcmp(command, "diff"))
        printf(".TP\n0\nA and B agree.\n.TP\n1\nThey differ.\n.TP\n2\nOne cannot be read, or an "
               "option is wrong; one line on standard error says why.\n");
    else
        printf(".TP\n0\nSuccess.\n.TP\n1\nWhat was asked for failed after it had begun.\n.TP\n2\n"
               "It was refused; one line on standard error says why, and nothing was written.\n");
}

void sp_help_man(const struct sp_option *options, const char *command, const char *summary)
{
    const struct sp_help_page *page = sp_help_find_page(command);

    put_head(command, summary);
    printf("\\fBstarpipe %s\\fR", command);
    for (const struct sp_option *o = options; o->name; o++) {
        if (o->kind == SP_OPT_OPERAND) {
            putchar(' ');
            put_in_font('I', o->name);
        }
    }
    printf(" [\\fIoptions\\fR]\n.SH DESCRIPTION\n");
    put_roff(summary);
    putchar('\n');
    for (int i = 0; page && i < 4 && page->paragraphs[i]; i++) {
        printf(".PP\n");
        put_roff(page->paragraphs[i]);
        putchar('\n');
    }
    put_options(options);
    if (page)
        put_examples(page);
    put_exit_status(command);
    printf(".SH SEE ALSO\n.BR starpipe (1)\n");
}

static const struct {
    const char *name, *what;
} environment[] = {
    {"SP_CHECK=1",
     "Ends the run at the first task that writes a NaN or an infinity, or reads an activation that "
     "was given back, or at an offloaded tensor that comes back as another, and names it."},
    {"SP_SAMPLES=1", "Lists in the log the place in the data of each sequence of a step."},
    {"SP_SYNC=1", "Waits for every task after its submission: one at a time, for debugging."},
    {"SP_DEVICE", "What --device is where it is not given: auto, cpu or cuda."},
    {"SP_POLL_US=N",
     "Microseconds that the thread for MPI messages rests between two polls, 0: none; without it, "
     "as long as is good while workers compute or wait."},
    {"STARPIPE_PLUGIN_PATH", "Plugins with schedules, files and directories, separated by colons."},
    {"STARPIPE_PLUGIN_SECONDS",
     "Seconds after which a plugin that has not answered is refused (30)."},
    {"TMPDIR", "Where offloaded activations go without --offload-dir (/var/tmp)."},
    {"NO_COLOR", "Pictures on the terminal have no colours."},
};

void sp_help_program_man(const struct sp_command *commands, int n)
{
    put_head("", "Pipelined training of GPTs as StarPU task graphs");
    printf("\\fBstarpipe\\fR \\fICOMMAND\\fR [\\fIoptions\\fR]\n.br\n"
           "\\fBstarpipe\\fR \\fBhelp\\fR [\\fICOMMAND\\fR]\n.br\n"
           "\\fBstarpipe\\fR \\fB\\-\\-version\\fR|\\fB\\-V\\fR\n.SH DESCRIPTION\n");
    put_roff(
        "starpipe trains GPT-2 and Llama-like models in pipeline stages. A schedule, chosen by its "
        "name, says what each stage computes when; StarPU runs it as a task graph, on the cores or "
        "GPUs of one machine or of the machines of an MPI launcher. The numbers are the same for "
        "every schedule and every number of stages and processes.");
    printf("\n.SH COMMANDS\n");
    for (int i = 0; i < n; i++) {
        printf(".TP\n\\fBstarpipe\\-%s\\fR(1)\n", commands[i].name);
        put_roff(commands[i].summary);
        putchar('\n');
    }
    printf(".SH ENVIRONMENT\n");
    for (size_t i = 0; i < sizeof environment / sizeof *environment; i++) {
        printf(".TP\n");
        put_in_font('B', environment[i].name);
        putchar('\n');
        put_roff(environment[i].what);
        putchar('\n');
    }
    put_exit_status("");
    printf(".SH SEE ALSO\n");
    for (int i = 0; i < n; i++)
        printf(".BR starpipe\\-%s (1)%s\n", commands[i].name, i + 1 < n ? "," : "");
}
