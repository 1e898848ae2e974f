#include "cli/options.h"
#include "cli/help/help.h"
#include "policies/load/plugin.h"
#include "sp_error.h"
#include "sp_suggest.h"
#include "train/start/outputs.h"
#include <stdio.h>
#include <string.h>

static int refuse_option(const struct sp_option *options, const char *command, const char *name,
                         int len)
{
    char typed[64], meant[128];
    struct sp_suggestion suggestion = {.typed = typed};

    snprintf(typed, sizeof typed, "%.*s", len, name);
    for (const struct sp_option *o = options; o->name; o++)
        if (o->kind != SP_OPT_OPERAND)
            sp_suggest(&suggestion, o->name, (int)strlen(o->name));
    sp_suggest_text(&suggestion, "--", meant, sizeof meant);
    if (*meant)
        return sp_error(EINVAL, "%s: no option --%s%s", command, typed, meant);
    return sp_error(EINVAL, "%s: no option --%s; 'starpipe %s --help' lists them", command, typed,
                    command);
}

/* A command that has the option also loads the plugins of the environment, given or not. */
static int load_plugins(const struct sp_option *options)
{
    int ret = 0;

    for (const struct sp_option *o = options; o->name && !ret; o++) {
        if (o->kind == SP_OPT_PLUGIN)
            ret = sp_plugins_load(*(const char **)o->value);
    }
    return ret;
}

/* An option on the command line: its entry in the table, the name that was used, and its value. */
struct word {
    const struct sp_option *option;
    const char *name, *value;
    char also[32]; /* the value, if the name used is an alias for one */
};

/* True if `name` is the option's name or one of its aliases. An alias may imply a value
 * (word->also). */
static bool is_named(const struct sp_option *o, const char *name, int length, struct word *word)
{
    const char *also;
    int n;

    if (o->kind == SP_OPT_OPERAND)
        return false;
    if ((int)strlen(o->name) == length && !strncmp(o->name, name, (size_t)length))
        return true;
    for (int i = 0; (also = sp_choice(o->also, i, &n)); i++) {
        int end = (int)strcspn(also, "=|");

        if (end != length || strncmp(also, name, (size_t)length))
            continue;
        snprintf(word->also, sizeof word->also, "%.*s", end < n ? n - end - 1 : 0, also + end + 1);
        return true;
    }
    return false;
}

/* Finds the option that argv[*i] names, and the value given to it. */
static int find_option(const struct sp_option *options, const char *command, int argc, char **argv,
                       int *i, struct word *word)
{
    const char *name = argv[*i] + 2, *equals = strchr(name, '=');
    int len = (int)(equals ? equals - name : (long)strlen(name));
    const struct sp_option *o = options;

    while (o->name && !is_named(o, name, len, word))
        o++;
    if (!o->name)
        return refuse_option(options, command, name, len);
    word->option = o;
    word->name = name;
    word->value = word->also[0] ? word->also : NULL;
    if (word->value && equals)
        return sp_error(EINVAL, "%s: --%.*s takes no value; --%s does", command, len, name,
                        o->name);
    if (equals)
        word->value = equals + 1;
    else if (o->kind == SP_OPT_FLAG)
        word->value = "on";
    if (word->value)
        return 0;
    /* an option where a value is due means that the value was forgotten; -3 may be a number */
    if (*i + 1 >= argc || !strncmp(argv[*i + 1], "--", 2))
        return sp_error(EINVAL, "%s: --%s needs a value: %s", command, name,
                        o->choices ? o->choices
                        : o->arg   ? o->arg
                                   : "VALUE");
    word->value = argv[++*i];
    return 0;
}

/* The first operand that has no value yet or can take another one; NULL: none. */
static const struct sp_option *next_operand(const struct sp_option *options)
{
    for (const struct sp_option *o = options; o->name; o++) {
        if (o->kind == SP_OPT_OPERAND && (!*(const char **)o->value || o->max > 1))
            return o;
    }
    return NULL;
}

/* Reads one word: an option with its value, or the next operand. */
static int read_word(const struct sp_option *options, const char *command, int argc, char **argv,
                     int *i, struct word *word)
{
    const char *text = argv[*i];

    *word = (struct word){.option = next_operand(options), .value = text};
    if (!strncmp(text, "--", 2) && text[2])
        return find_option(options, command, argc, argv, i, word);
    if (!word->option || (text[0] == '-' && text[1]))
        return sp_error(EINVAL, "%s: '%s' is not an option; 'starpipe %s --help' lists them",
                        command, text, command);
    return 0;
}

int sp_options_read(const struct sp_option *options, const char *summary, int argc, char **argv,
                    const char **typed)
{
    const char *command = argv[0];

    for (int i = 1; i < argc; i++) {
        struct word word;
        int ret;

        if (sp_help_form(argv[i])) {
            sp_help_print(sp_help_form(argv[i]), options, command, summary);
            return 1;
        }
        ret = read_word(options, command, argc, argv, &i, &word);
        ret = ret ? ret : sp_option_set(word.option, command, word.value);
        if (ret)
            return ret;
        if (word.option->given)
            *word.option->given = true;
        if (typed)
            typed[word.option - options] = word.name;
    }
    return 0;
}

/* True for a flag that is off, and for the first of several choices, which usually means "off". */
static bool is_off(const struct sp_option *o)
{
    return (o->kind == SP_OPT_CHOICE && !*(int *)o->value) ||
           (o->kind == SP_OPT_STRING && !sp_choice_of(o->choices, sp_option_string(o))) ||
           (o->kind == SP_OPT_FLAG && !*(bool *)o->value);
}

/* Refuses options that were given without the options they need. */
static int check_typed(const struct sp_option *options, const char *command, const char **typed)
{
    int ret = 0;

    for (int i = 0; options[i].name && !ret; i++) {
        const struct sp_option *o = &options[i];
        char name[64];

        if (!typed[i] || is_off(o))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(typed[i], "="), typed[i]);
        ret = sp_option_check_wants(options, o, command, name);
    }
    return ret;
}

/* Adds the file that an option names, if it names one, to the files of the command. */
static int add_file(struct sp_files *files, const struct sp_option *o, char name[64])
{
    const char *path;

    if (o->kind != SP_OPT_OUTPUT && o->kind != SP_OPT_OPERAND)
        return 0;
    path = *(const char **)o->value;
    snprintf(name, 64, "%s%s", o->kind == SP_OPT_OUTPUT ? "--" : "", o->name);
    if (o->kind == SP_OPT_OUTPUT)
        return path ? sp_files_add(files, SP_FILE_WRITTEN, name, path) : 0;
    return strcmp(path, "-") ? sp_files_add(files, SP_FILE_READ, name, path) : 0;
}

static bool writes_none;

void sp_options_of_rank(int rank)
{
    sp_error_hold(rank);
    writes_none = rank > 0;
    if (rank > 0 && !freopen("/dev/null", "w", stdout))
        sp_error(errno, "cannot silence standard output: %s", strerror(errno));
}

/* Checks that the files of SP_OPT_OUTPUT can be written and that the command does not read them
 * too. */
static int check_outputs(const struct sp_option *options, const char *command)
{
    char names[SP_OPTIONS_MOST][64];
    struct sp_files files = {0};
    int err = 0;

    for (int i = 0; options[i].name && !err; i++)
        err = add_file(&files, &options[i], names[i]);
    err = err ? err : sp_files_check(&files, command);
    sp_files_free(&files);
    for (const struct sp_option *o = options; o->name && !err; o++)
        if (o->kind == SP_OPT_OUTPUT && *(const char **)o->value)
            err = sp_output_try_file(*(const char **)o->value, false);
    return err;
}

int sp_options_parse(const struct sp_option *options, const char *summary, int argc, char **argv)
{
    const char *command = argv[0], *typed[SP_OPTIONS_MOST] = {NULL};
    const struct sp_option *missing;
    int ret = sp_options_read(options, summary, argc, argv, typed);

    if (ret)
        return ret;
    missing = next_operand(options);
    if (missing && !*(const char **)missing->value)
        return sp_error(EINVAL, "%s: %s is missing: %s", command, missing->name, missing->help);
    ret = check_typed(options, command, typed);
    ret = ret || writes_none ? ret : check_outputs(options, command);
    return ret ? ret : load_plugins(options);
}
