#include "cli/options.h"
#include "cli/help/help.h"
#include "policies/suggest.h"
#include "policies/load/plugin.h"
#include "sp_error.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sp_parse_size(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"", 1},     {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824},
                 {"KB", 1e3}, {"MB", 1e6},   {"GB", 1e9}};
    char *end;
    double v;

    /* no signs, blanks, hexadecimal or "inf" of strtod */
    if (*text < '0' || *text > '9' || strspn(text, "0123456789.") != strcspn(text, "KMG"))
        return -EINVAL;
    v = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(end, units[i].suffix))
            continue;
        v *= units[i].factor;
        if (!(v < 9e18) || (i == 0 && v != floor(v)))
            return -EINVAL;
        *bytes = (uint64_t)v;
        return 0;
    }
    return -EINVAL;
}

static int unknown(const struct sp_option *options, const char *command, const char *name, int len)
{
    char typed[64];
    const char *nearest = NULL;
    int best = INT_MAX;

    snprintf(typed, sizeof typed, "%.*s", len, name);
    for (const struct sp_option *o = options; o->name; o++) {
        int d = sp_edit_distance(typed, o->name);

        if (o->kind != SP_OPT_OPERAND && d < best) {
            best = d;
            nearest = o->name;
        }
    }
    if (nearest && sp_is_near(typed, best))
        return sp_error(EINVAL, "%s: no option --%s, did you mean --%s?", command, typed, nearest);
    return sp_error(EINVAL, "%s: no option --%s; 'starpipe %s --help' lists them", command, typed,
                    command);
}

static int parse_int(const struct sp_option *o, const char *command, const char *text)
{
    double min = o->min, max = o->max;
    char *end;
    long v;

    if (min == 0 && max == 0) {
        min = INT_MIN;
        max = INT_MAX;
    }
    if (o->choices && !strcmp(text, strchr(o->choices, '|') + 1)) {
        *(int *)o->value = 0;
        return 0;
    }
    errno = 0;
    v = strtol(text, &end, 10);
    if (end == text || *end)
        return sp_error(EINVAL, "%s: --%s: '%s' is not an integer (%.0f .. %.0f)%s%s", command,
                        o->name, text, min, max, o->choices ? " or " : "",
                        o->choices ? strchr(o->choices, '|') + 1 : "");
    if (errno || (double)v < min || (double)v > max)
        return sp_option_beyond(o, command, text);
    *(int *)o->value = (int)v;
    return 0;
}

static int parse_double(const struct sp_option *o, const char *command, const char *text)
{
    bool bounded = o->min != 0 || o->max != 0;
    char *end;
    double v = strtod(text, &end);

    if (end == text || *end || !isfinite(v))
        return sp_error(EINVAL, "%s: --%s: '%s' is not a number", command, o->name, text);
    if (bounded && (v < o->min || v > o->max))
        return sp_option_beyond(o, command, text);
    *(double *)o->value = v;
    return 0;
}

static int parse_choice(const struct sp_option *o, const char *command, const char *text)
{
    int choice = sp_choice_of(o->choices, text);

    if (choice < 0)
        return sp_error(EINVAL, "%s: --%s: '%s' is none of %s", command, o->name, text, o->choices);
    *(int *)o->value = choice;
    return 0;
}

static int set(const struct sp_option *o, const char *command, const char *text)
{
    switch (o->kind) {
    case SP_OPT_STRING:
    case SP_OPT_PLUGIN:
    case SP_OPT_OPERAND:
        if (!*text)
            return sp_error(EINVAL, "%s: %s%s: the value is empty", command,
                            o->kind == SP_OPT_OPERAND ? "" : "--", o->name);
        *(const char **)o->value = text;
        return 0;
    case SP_OPT_INT:
        return parse_int(o, command, text);
    case SP_OPT_SIZE:
        if (sp_parse_size(text, o->value))
            return sp_error(EINVAL,
                            "%s: --%s: '%s' is not a size in bytes, KiB, MiB, GiB, KB, MB or GB",
                            command, o->name, text);
        return 0;
    case SP_OPT_DOUBLE:
        return parse_double(o, command, text);
    case SP_OPT_CHOICE:
        return parse_choice(o, command, text);
    case SP_OPT_FLAG:
        break;
    }
    *(bool *)o->value = true;
    return 0;
}

/* A command that has the option takes those of the environment even when it is not given. */
static int load_plugins(const struct sp_option *options)
{
    int ret = 0;

    for (const struct sp_option *o = options; o->name && !ret; o++) {
        if (o->kind == SP_OPT_PLUGIN)
            ret = sp_plugins_load(*(const char **)o->value);
    }
    return ret;
}

/* The option that argv[*i] names and the value that is given to it, NULL: none. */
static int find_option(const struct sp_option *options, const char *command, int argc, char **argv,
                       int *i, const struct sp_option **found, const char **value)
{
    const char *name = argv[*i] + 2, *equals = strchr(name, '=');
    int len = (int)(equals ? equals - name : (long)strlen(name));
    const struct sp_option *o = options;

    while (o->name && (o->kind == SP_OPT_OPERAND || (int)strlen(o->name) != len ||
                       strncmp(o->name, name, (size_t)len)))
        o++;
    if (!o->name)
        return unknown(options, command, name, len);
    *value = equals ? equals + 1 : NULL;
    if (o->kind == SP_OPT_FLAG && *value)
        return sp_error(EINVAL, "%s: --%s takes no value, not '%s'", command, o->name, *value);
    if (o->kind != SP_OPT_FLAG && !*value) {
        /* an option in the place of a value is a forgotten value; -3 may be a number */
        if (*i + 1 >= argc || !strncmp(argv[*i + 1], "--", 2))
            return sp_error(EINVAL, "%s: --%s needs a value: %s", command, o->name,
                            o->choices ? o->choices
                            : o->arg   ? o->arg
                                       : "VALUE");
        *value = argv[++*i];
    }
    *found = o;
    return 0;
}

/* The first operand that has no value yet, NULL: none. */
static const struct sp_option *next_operand(const struct sp_option *options)
{
    for (const struct sp_option *o = options; o->name; o++) {
        if (o->kind == SP_OPT_OPERAND && !*(const char **)o->value)
            return o;
    }
    return NULL;
}

int sp_options_parse(const struct sp_option *options, const char *summary, int argc, char **argv)
{
    const char *command = argv[0];
    const struct sp_option *missing;

    for (int i = 1; i < argc; i++) {
        const struct sp_option *o = next_operand(options);
        const char *value = argv[i];
        int ret = 0;

        if (sp_help_form(argv[i])) {
            sp_help_print(sp_help_form(argv[i]), options, command, summary);
            return 1;
        }
        if (!strncmp(argv[i], "--", 2) && argv[i][2])
            ret = find_option(options, command, argc, argv, &i, &o, &value);
        else if (!o || (argv[i][0] == '-' && argv[i][1]))
            ret = sp_error(EINVAL, "%s: '%s' is not an option; 'starpipe %s --help' lists them",
                           command, argv[i], command);
        ret = ret ? ret : set(o, command, value);
        if (ret)
            return ret;
        if (o->given)
            *o->given = true;
    }
    missing = next_operand(options);
    if (missing)
        return sp_error(EINVAL, "%s: %s is missing: %s", command, missing->name, missing->help);
    return load_plugins(options);
}
