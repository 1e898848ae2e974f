/*
 * The output of `--help`, `--help=man` and `--help=bash`: text, a manual page, a part of the
 * completion. All are made from the tables that parse the options, so none can name an option that
 * does not exist. `make` runs the program to write the pages and the completion.
 */
#ifndef SP_HELP_H
#define SP_HELP_H

#include "train/options.h"

enum sp_help_form { SP_HELP_NONE, SP_HELP_TEXT, SP_HELP_MAN, SP_HELP_BASH };

/* The form of help that a word of the command line asks for; 0: none. */
enum sp_help_form sp_help_form(const char *word);

/* Prints the help of a command; `command` may be two words: "reproduce helixpipe". */
void sp_help_print(enum sp_help_form form, const struct sp_option *options, const char *command,
                   const char *summary);

/* Its other forms (man.c, bash.c). */
void sp_help_man(const struct sp_option *options, const char *command, const char *summary);
void sp_help_bash(const struct sp_option *options, const char *command);

/* "(1 .. 65536; default 4)", or "" if there is nothing to say. */
void sp_help_default(const struct sp_option *o, char *text, size_t n);
/* "--json: --format json" for an option's other names, or "" if it has none. */
void sp_help_also(const struct sp_option *o, char *text, size_t n);
/* The heading of a topic, "Memory: what is kept ..."; NULL if the table has no option of this
 * topic. */
const char *sp_help_heading(const struct sp_option *options, enum sp_option_topic topic);
/* How sizes are written; NULL if no option of the table takes a size. */
const char *sp_help_sizes(const struct sp_option *options);
/* The placeholder for an option's value, such as "FILE"; NULL if the option takes no value. */
const char *sp_help_value(const struct sp_option *o);

struct sp_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
};

/* Prints the program's own help. Its completion runs each command for that command's part. */
void sp_help_print_program(enum sp_help_form form, const struct sp_command *commands, int n);

void sp_help_program_man(const struct sp_command *commands, int n);
void sp_help_program_bash(const struct sp_command *commands, int n);

/* The text of a command's manual page besides its options. */
struct sp_help_page {
    const char *command;
    const char *paragraphs[4];
    struct {
        const char *line, *what;
    } examples[5];
};
/* The page of a command; NULL: it has none. */
const struct sp_help_page *sp_help_find_page(const char *command);

#endif
