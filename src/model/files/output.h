/* A file that appears under its name only when it is complete. */
#ifndef SP_OUTPUT_H
#define SP_OUTPUT_H

#include "model/files/dir.h"
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

struct sp_output {
    FILE *f;         /* of the temporary file, beside `path`; NULL: written and closed */
    uint64_t bytes;  /* that it is going to have, for messages; 0: not known */
    int dir;         /* descriptor of the directory that both are in */
    char *path;      /* where it will be, for messages */
    char *name;      /* the name it will have */
    char *temporary; /* the name it has */
};

/* Creates the temporary file of `name` in `dir`. 0, or -errno with one line on stderr. */
int sp_output_open_in(const struct sp_dir *dir, const char *name, struct sp_output *out);
/* The same at a path. */
static inline int sp_output_open(const char *path, struct sp_output *out)
{
    return sp_output_open_in(NULL, path, out);
}

/* Says that it cannot be written, with its path and the bytes it was to have: -err. */
int sp_output_fail(const struct sp_output *out, int err);

/* Flushes, fsyncs and closes the temporary file, where sp_output_commit would come much later.
 * 0, or -errno with one line on stderr; *out is still to be committed or discarded. */
int sp_output_close(struct sp_output *out);

/* Flushes, fsyncs, renames, fsyncs the directory. On -errno the old file is untouched and the
 * temporary one gone. *out is spent either way. */
int sp_output_commit(struct sp_output *out);

/* Removes the temporary file. */
void sp_output_discard(struct sp_output *out);

/* Writes a whole text so. 0, or -errno after one line. */
int sp_output_text_in(const struct sp_dir *dir, const char *name, const char *text, size_t n);
/* A JSON value, with a newline; `flags` of jansson. */
int sp_output_json_in(const struct sp_dir *dir, const char *name, const json_t *value,
                      size_t flags);
/* Nine digits give every float back. */
#define SP_OUTPUT_JSON (JSON_INDENT(2) | JSON_REAL_PRECISION(9))

#endif
