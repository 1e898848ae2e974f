/*
 * The result of a command is what it prints. In every command --format chooses its form and
 * --output the file it goes to.
 */
#ifndef SP_RESULT_H
#define SP_RESULT_H

#include "cli/options.h"

struct sp_result {
    int format; /* index in the formats of the command */
    const char *output;
};

/* Entries of an option table for the struct sp_result `r`; `formats` as in SP_OPT_CHOICE, the
 * default first. */
#define SP_RESULT_OPTIONS(r, formats)                                                              \
    SP_OPTION("format", CHOICE, (r).format, .help = "what to print", .topic = SP_TOPIC_OUTPUT,     \
              .choices = formats, .also = "json=json"),                                            \
        SP_OUTPUT_OPTION((r).output)

#define SP_OUTPUT_OPTION(path)                                                                     \
    SP_OPTION("output", OUTPUT, path, .help = "file to write (default: standard output)",          \
              .topic = SP_TOPIC_OUTPUT, .arg = "FILE")

/*
 * Unless `output` is NULL, standard output is kept for that file from here on. Exit statuses up to
 * `most` mean that the command has a result. 0, or -errno after one line.
 */
int sp_result_begin(const char *command, const char *output, int most);

/* Call it once, at the end: writes the file if there is a result. An existing file is not
 * touched before. Returns the exit status. */
int sp_result_end(int status);

#endif
