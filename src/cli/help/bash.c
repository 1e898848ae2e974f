/* Completion for bash: a table of options and their values, and the function that looks them up. */
#include "cli/help/help.h"
#include "model/model.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* The values of "PRESET|DIR", "none|full|every=K", "FILE.jsonl": words as they are, "every=", and @kind
 * for what the shell or the program knows. */
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
        print_values(value);
        printf("' ;;\n");
    }
    printf("        esac\n        ;;\n");
}

static const char functions[] =
    "# What the values of a table stand for: _starpipe_words VALUES.\n"
    "_starpipe_words()\n"
    "{\n"
    "    local value\n"
    "\n"
    "    for value in $1; do\n"
    "        case $value in\n"
    "        @files) compopt -o filenames 2> /dev/null; compgen -f -- \"$word\" ;;\n"
    "        @directories) compopt -o filenames 2> /dev/null; compgen -d -- \"$word\" ;;\n"
    "        @presets) compgen -W \"$_starpipe_presets\" -- \"$word\" ;;\n"
    "        @schedules) compgen -W \"$(\"$program\" list 2> /dev/null | sed 's/ .*//')\" -- "
    "\"$word\" ;;\n"
    "        *) compgen -W \"$value\" -- \"$word\" ;;\n"
    "        esac\n"
    "    done\n"
    "}\n"
    "\n"
    "# After the colon of a schedule: its options, the last one of a list of them.\n"
    "_starpipe_schedule_options()\n"
    "{\n"
    "    local known done=${word%\"${word##*,}\"}\n"
    "\n"
    "    known=$(\"$program\" list 2> /dev/null | sed -n \"s/^$1 .*\\[\\(.*\\)\\]$/\\1/p\")\n"
    "    compgen -P \"$done\" -W \"${known//../}\" -- \"${word##*,}\"\n"
    "}\n"
    "\n"
    "_starpipe()\n"
    "{\n"
    "    local program=${COMP_WORDS[0]} command=${COMP_WORDS[1]} word=${COMP_WORDS[COMP_CWORD]}\n"
    "    local at=$((COMP_CWORD - 1)) options= values= takes= line\n"
    "\n"
    "    COMPREPLY=()\n"
    "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
    "        COMPREPLY=($(compgen -W \"$_starpipe_commands\" -- \"$word\"))\n"
    "        return\n"
    "    fi\n"
    "    if [ \"$COMP_CWORD\" -gt 2 ] && _starpipe_table \"$command ${COMP_WORDS[2]}\" ''; then\n"
    "        command=\"$command ${COMP_WORDS[2]}\"\n"
    "    fi\n"
    "    # The words are cut at '=' and ':', which are words of their own.\n"
    "    case $word in = | :) at=$COMP_CWORD word= ;; esac\n"
    "    if [ \"${COMP_WORDS[at]}\" = : ]; then\n"
    "        COMPREPLY=($(_starpipe_schedule_options \"${COMP_WORDS[at - 1]}\"))\n"
    "    else\n"
    "        [ \"${COMP_WORDS[at]}\" != = ] || at=$((at - 1))\n"
    "        options= values= takes=\n"
    "        _starpipe_table \"$command\" \"${COMP_WORDS[at]}\"\n"
    "        if [ -z \"$takes\" ] && [[ $word == -* ]]; then\n"
    "            values=$options\n"
    "        elif [ -z \"$takes\" ]; then\n"
    "            _starpipe_table \"$command\" operand\n"
    "            [ -n \"$values\" ] || values=$options\n"
    "        fi\n"
    "        while IFS= read -r line; do\n"
    "            COMPREPLY+=(\"$line\")\n"
    "        done < <(_starpipe_words \"$values\")\n"
    "    fi\n"
    "    [ \"${COMPREPLY[*]: -1}\" != = ] || compopt -o nospace 2> /dev/null\n"
    "}\n"
    "complete -F _starpipe starpipe\n";

void sp_help_program_bash(const struct sp_command *commands, int n)
{
    char *argv[] = {NULL, "--help=bash", NULL};

    printf("# bash completion of starpipe, made by 'starpipe --help=bash'.\n\n");
    printf("_starpipe_commands='");
    for (int i = 0; i < n; i++)
        printf("%s ", commands[i].name);
    printf("--help --version'\n_starpipe_presets='");
    for (const char *const *name = sp_model_presets(); *name; name++)
        printf("%s%s", name == sp_model_presets() ? "" : " ", *name);
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
