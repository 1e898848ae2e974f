/*
 * What `--help`, `--help=man` and `--help=bash` print: the text, the manual page and a part of the
 * completion. All are made from the tables that the options are parsed with, so that none can name an
 * option that is not there. `make` runs the program to make the pages and the completion.
 */
#ifndef SP_HELP_H
#define SP_HELP_H

#include "cli/options.h"

enum sp_help_form { SP_HELP_NONE, SP_HELP_TEXT, SP_HELP_MAN, SP_HELP_BASH };

/* What a word of the command line asks for. */
enum sp_help_form sp_help_form(const char *word);

/* Prints the help of a command; `command` may be two words: "reproduce helixpipe". */
void sp_help_print(enum sp_help_form form, const struct sp_option *options, const char *command,
                   const char *summary);

/* The forms, by one file each. */
void sp_help_text(const struct sp_option *options, const char *command, const char *summary);
void sp_help_man(const struct sp_option *options, const char *command, const char *summary);
void sp_help_bash(const struct sp_option *options, const char *command);

/* "(1 .. 65536; default 4)", "" where there is nothing to say. */
void sp_help_default(const struct sp_option *o, char *text, size_t n);
/* "--json: --format json" of an option's other names, "" where it has none. */
void sp_help_also(const struct sp_option *o, char *text, size_t n);
/* The heading of a topic, "Memory: what is kept ..."; NULL where the table has no option of it. */
const char *sp_help_heading(const struct sp_option *options, enum sp_option_topic topic);
/* How sizes are written; NULL where the table has none. */
const char *sp_help_sizes(const struct sp_option *options);
/* What the value of an option is called, NULL: it takes none. */
const char *sp_help_value(const struct sp_option *o);

struct sp_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
};

/* The program's own help. The completion is that of all commands: each is run for its part. */
void sp_help_program_text(const struct sp_command *commands, int n);
void sp_help_program_man(const struct sp_command *commands, int n);
void sp_help_program_bash(const struct sp_command *commands, int n);

/* What the manual page of a command says beyond its options. */
struct sp_help_page {
    const char *command;
    const char *paragraphs[4];
    struct {
        const char *line, *what;
    } examples[5];
};
/* NULL: none. */
const struct sp_help_page *sp_help_find_page(const char *command);

#endif
