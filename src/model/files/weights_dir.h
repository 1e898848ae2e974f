/* The weights of a model directory as Hugging Face lays it out: which files they are in. */
#ifndef SP_WEIGHTS_DIR_H
#define SP_WEIGHTS_DIR_H

#include "model/files/safetensors.h"

#define SP_WEIGHTS_FILE "model.safetensors"
#define SP_WEIGHTS_INDEX SP_WEIGHTS_FILE ".index.json"

/*
 * Opens model.safetensors of `dir`, or the shards of its model.safetensors.index.json. 0 with *st zero:
 * it has no weights in any form known. Refused with one line on stderr, -errno: both (which are
 * they?), one that cannot be read, weights in another form, an adapter.
 */
int sp_weights_open_in(const struct sp_dir *dir, struct sp_st_file *st);
/* The same of the directory at a path. */
int sp_weights_open(const char *dir, struct sp_st_file *st);

/* Is it the name of a file that holds weights which are written here: model.safetensors, its
 * index, or model-NNNNN-of-NNNNN.safetensors? */
bool sp_weights_is_file(const char *name);
/* Is it one that some program gives to weights, or to their index, in this form or another? */
bool sp_weights_is_any_form(const char *name);

/*
 * The files of that kind in `dir`, sorted so that an index comes last. 0 or -errno with one line on
 * stderr; sp_dir_free_names frees them.
 */
int sp_weights_list(const struct sp_dir *dir, char ***names, int *n);

#endif
