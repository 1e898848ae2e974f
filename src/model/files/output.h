/* A file that appears under its name only when it is complete. */
#ifndef SP_OUTPUT_H
#define SP_OUTPUT_H

#include <jansson.h>
#include <stdio.h>

struct sp_output {
    FILE *f;         /* of the temporary file, beside `path`; NULL: written and closed */
    char *path;      /* the name it will have */
    char *temporary; /* the name it has */
};

/* Creates the temporary file. 0, or -errno with one line on stderr. */
int sp_output_open(const char *path, struct sp_output *out);

/* Flushes, fsyncs and closes the temporary file, where sp_output_commit would come much later.
 * 0, or -errno with one line on stderr; *out is still to be committed or discarded. */
int sp_output_close(struct sp_output *out);

/* Flushes, fsyncs, renames, fsyncs the directory. On -errno the old file is untouched and the
 * temporary one gone. *out is spent either way. */
int sp_output_commit(struct sp_output *out);

/* Removes the temporary file. */
void sp_output_discard(struct sp_output *out);

/* Writes a JSON value so, with a newline. 0, or -errno after one line. */
int sp_output_json(const char *path, const json_t *value);

/* Makes renames and removals in a directory durable, where its file system can. */
void sp_output_sync(const char *dir);
/* The same of the directory that `path` is in. */
void sp_output_sync_parent(const char *path);

#endif
