/* Reading a config.json, key by key, for config.c. */
#ifndef SP_CONFIG_KEYS_H
#define SP_CONFIG_KEYS_H

#include "model/model.h"
#include <jansson.h>

/* A value of the file as it may stand in a message: short, one line. Returns `out`. */
const char *sp_config_show(const json_t *v, char out[64]);

/* ---- typed access: each prints what is wrong and returns -EINVAL ---------------------- */

struct sp_config {
    const json_t *root;
    const char *where;
};

/* A member that is there and not null. */
const json_t *sp_config_member(const json_t *obj, const char *key);

/* A size of `obj`, 1 .. INT_MAX; absent or null: `fallback`, or an error if that is 0. */
int sp_config_size(const struct sp_config *c, const json_t *obj, const char *key, int fallback,
                   int *out);

/* A number; sp_model_check judges the value: an overflow to infinity does not pass it. */
int sp_config_real(const struct sp_config *c, const json_t *obj, const char *key, double fallback,
                   float *out);

int sp_config_bool(const struct sp_config *c, const char *key, bool fallback, bool *out);

/* The checks run in order and stop at the first that fails. */
#define SP_TRY(call)                                                                               \
    do {                                                                                           \
        int rc_ = (call);                                                                          \
        if (rc_)                                                                                   \
            return rc_;                                                                            \
    } while (0)

/* Rotary positions: rope_theta and rope_scaling, or rope_parameters since transformers 5. */
int sp_config_rope(const struct sp_config *c, struct sp_rope *rope);

/*
 * Refuses what would change the numbers and is nothing that `m`, the model read from `root`, has:
 * keys of other architectures unless they are switched off, and keys that say a size of `m` again
 * with another value. 0 or -EINVAL with one line on stderr.
 */
int sp_config_check_keys(const json_t *root, const char *where, const struct sp_model *m);

#endif
