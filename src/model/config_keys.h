/* Keys of a config.json that are not implemented, for config.c. */
#ifndef SP_CONFIG_KEYS_H
#define SP_CONFIG_KEYS_H

#include "model/model.h"
#include <jansson.h>

/* A value of the file as it may stand in a message: short, one line. Returns `out`. */
const char *sp_config_show(const json_t *v, char out[64]);

/*
 * Refuses what would change the numbers and is nothing that `m`, the model read from `root`, has:
 * keys of other architectures unless they are switched off, and keys that say a size of `m` again
 * with another value. 0 or -EINVAL with one line on stderr.
 */
int sp_config_check_keys(const json_t *root, const char *where, const struct sp_model *m);

#endif
