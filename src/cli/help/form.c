/* The form of help that a word asks for. */
#include "cli/help/help.h"
#include <string.h>

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
        sp_help_text(options, command, summary);
}
