/* Regular files, opened for reading without ever waiting for a pipe or a device. */
#ifndef SP_INPUT_H
#define SP_INPUT_H

#include "model/files/dir.h"
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * Opens `name` in `dir`, or the path `name` where that is NULL; *size: its bytes. Read it with pread, see
 * sp_dir_file. 0, or -errno with one line on stderr (-EINVAL: not regular).
 */
int sp_input_open(const struct sp_dir *dir, const char *name, FILE **f, uint64_t *size);

/*
 * Reads a whole file of at most max_bytes into *text, which the caller frees. `what` is the kind
 * of file, for the refusal: "a config". 0, or -errno with one line on stderr.
 */
int sp_input_read_in(const struct sp_dir *dir, const char *name, uint64_t max_bytes,
                     const char *what, char **text, size_t *len);

#endif
