/*
 * checksums.json of a checkpoint: XXH3 (128 bits, as `xxh128sum` prints them) of every file, and of
 * every tensor in the large ones, so that processes can share the checking out and the tensor that is
 * damaged has a name.
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

/* The sums of a file that is being written. */
struct sp_file_sum;

struct sp_file_sum *sp_file_sum_create(void); /* NULL without memory */
void sp_file_sum_add(struct sp_file_sum *s, const void *data, size_t bytes);
/* What was added since the last part is part `name`. */
void sp_file_sum_part(struct sp_file_sum *s, const char *name);
/* What checksums.json says of the file; frees s. NULL without memory. */
json_t *sp_file_sum_end(struct sp_file_sum *s);

/* The same of a file of `dir` that is there, as a whole. NULL after one line. */
json_t *sp_file_sum_in(const struct sp_dir *dir, const char *name);

/* Writes `files`, {name: sums}, to checksums.json in `dir`; takes it over. 0 or -errno after one line. */
int sp_checksums_write(const struct sp_dir *dir, json_t *files);

/*
 * Reads the `share`-th of `shares` of the checkpoint in `dir` and compares; every share also sees that
 * no file is missing, has another size, or none of `names` (ended by NULL) is without checksums. 0;
 * -ENOENT without a word: there is no checksums.json; or -EINVAL after one line that names the file
 * and the tensor.
 */
int sp_checksums_verify(const struct sp_dir *dir, const char *const *names, int share, int shares);
/* The same of config.json and the weights alone: who takes these elsewhere may leave the rest behind. */
int sp_checksums_verify_model(const struct sp_dir *dir, int share, int shares);

#endif
