/*
 * What a command prints is its result, in every command the same way: --format says in which form, --output
 * into which file.
 */
#ifndef SP_RESULT_H
#define SP_RESULT_H

#include "cli/options.h"

struct sp_result {
    int format; /* index in the formats of the command */
    const char *output;
};

/* Entries of an option table for the struct sp_result `r`; `formats` of SP_OPT_CHOICE, the default first. */
#define SP_RESULT_OPTIONS(r, formats)                                                              \
    {.name = "format",                                                                             \
     .kind = SP_OPT_CHOICE,                                                                        \
     .topic = SP_TOPIC_OUTPUT,                                                                     \
     .value = &(r).format,                                                                         \
     .help = "what to print",                                                                      \
     .choices = formats,                                                                           \
     .also = "json=json"},                                                                         \
        SP_OUTPUT_OPTION((r).output)

#define SP_OUTPUT_OPTION(path)                                                                     \
    {                                                                                              \
        .name = "output", .kind = SP_OPT_OUTPUT, .topic = SP_TOPIC_OUTPUT, .value = &(path),       \
        .arg = "FILE", .help = "file to write (default: standard output)"                          \
    }

/*
 * From here on what is printed on standard output is kept for the file `output`, where that is not NULL; exit statuses
 * up to `most` mean that the command has a result. 0, or -errno after one line.
 */
int sp_result_begin(const char *command, const char *output, int most);

/* At the end, once: writes the file if there is a result. A file that is there already is not touched before. The exit
 * status. */
int sp_result_end(int status);

#endif
