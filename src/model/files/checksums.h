/*
 * checksums.json of a checkpoint: XXH3 (128 bits, as `xxh128sum` prints them) of every file, and of
 * every tensor in the large ones, so that processes can divide the check among themselves and a
 * message can name the damaged tensor.
 *
 *   {"algorithm": "XXH3_128bits", "files": {"state.json": {"bytes": 812, "checksum": "9f..."},
 *    "model.safetensors": {..., "parts": [["header", 0, 4096, "07..."], ["wte.weight", 4096, ...]]}}}
 */
#ifndef SP_CHECKSUMS_H
#define SP_CHECKSUMS_H

#include "model/files/dir.h"
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define SP_CHECKSUMS_FILE "checksums.json"

/* Sums up a file while it is written. */
struct sp_file_sum;

struct sp_file_sum *sp_file_sum_create(void); /* NULL without memory */
/* This and the next do nothing if s is NULL. */
void sp_file_sum_add(struct sp_file_sum *s, const void *data, size_t bytes);
/* Closes a part: everything added since the last part is called `name`. */
void sp_file_sum_part(struct sp_file_sum *s, const char *name);
/* Returns the file's entry of checksums.json and frees s. NULL without memory, or if s is NULL. */
json_t *sp_file_sum_end(struct sp_file_sum *s);

/* Returns such an entry, without parts, for a file already in `dir`. NULL after one line. */
json_t *sp_file_sum_in(const struct sp_dir *dir, const char *name);

/* Writes `files`, {name: sums}, to checksums.json in `dir`; takes ownership of `files`. 0 or -errno
 * after one line. */
int sp_checksums_write(const struct sp_dir *dir, json_t *files);

/*
 * Reads the `share`-th of `shares` of the checkpoint in `dir` and compares its sums. Every share
 * also checks that no file is missing or has another size, and that all of `names` (ended by NULL)
 * have checksums. Returns 0; -ENOENT, silently, if there is no checksums.json; or -EINVAL after one
 * line that names the file and the tensor.
 */
int sp_checksums_verify(const struct sp_dir *dir, const char *const *names, int share, int shares);
/* The same for config.json and the weights alone: a user who copies only these may leave the rest
 * behind. */
int sp_checksums_verify_model(const struct sp_dir *dir, int share, int shares);

#endif
