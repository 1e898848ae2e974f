/*
 * Companions of a model: the files beside its configuration and its weights that go with it wherever it is saved,
 * whatever they are. Its tokenizer, generation_config.json, a chat template, a README, code.
 */
#ifndef SP_COMPANIONS_H
#define SP_COMPANIONS_H

#include "model/files/dir.h"
#include <jansson.h>
#include <stdint.h>

enum { SP_COMPANIONS_MOST = 256 };

/* May a file of this name be one? No weights in any form, nothing that this program writes itself into a
 * checkpoint, no step, no hidden file, and nothing that a killed process left of one ("NAME.tmp-..."). */
bool sp_companions_is_name(const char *name);

/* Is it of those that say how the model reads and writes text: tokenizer*, generation_config.json, ...? */
bool sp_companions_is_known(const char *name);

/* Files that are no companions, although their names may be: those that `takes` is true for. NULL: there are none. */
struct sp_companions_other {
    bool (*takes)(int fd, const struct stat *st, const void *arg);
    const void *arg;
};

/*
 * Opens the companions of the model in the directory at `path`, and its config.json, for *held, which is
 * closed: regular files, also through links. The files that have these names now are saved later, whoever removes
 * or replaces the names; a file that is rewritten in place is saved as it is then. One warning names the first of
 * those left out: beyond SP_COMPANIONS_MOST, larger than a tokenizer may be, or not to be read. 0 or -ENOMEM
 * after one line. To be closed.
 */
int sp_companions_open(const char *path, const struct sp_companions_other *other,
                       struct sp_dir *held);
/* The same of a directory that holds its files: those of `names` that it has. */
int sp_companions_take(const struct sp_dir *from, const json_t *names, struct sp_dir *held);

/* The names of those that are held; NULL: none, or no memory. */
json_t *sp_companions_names(const struct sp_dir *held);
/* The texts among `names`, from a file that may say anything, that may be names of companions: no more than there can
 * be. NULL: none. */
json_t *sp_companions_check_names(const json_t *names);

/* Bytes that copies of them take. */
uint64_t sp_companions_bytes(const struct sp_dir *held);
/* Copies them into `to`, and adds their checksums to `sums`; a warning for one that cannot be read any more. 0, or
 * -errno after one line. */
int sp_companions_copy(const struct sp_dir *held, const struct sp_dir *to, json_t *sums);

#endif
