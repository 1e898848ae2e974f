#include "cli/options.h"
#include "cli/help/help.h"
#include "policies/suggest.h"
#include "policies/load/plugin.h"
#include "sp_error.h"
#include <stdio.h>
#include <string.h>

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
    if (o->kind == SP_OPT_FLAG && !*value)
        *value = "on";
    if (!*value) {
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
        ret = ret ? ret : sp_option_set(o, command, value);
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
