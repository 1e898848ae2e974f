/* The keys of a config.json: reading them for config.c, and editing them in a text for config_write.c. */
#ifndef SP_CONFIG_KEYS_H
#define SP_CONFIG_KEYS_H

#include "model/model.h"
#include <jansson.h>

/* A value of the file as it may stand in a message: short, one line. Returns `out`. */
const char *sp_config_show(const json_t *v, char out[64]);

/* Says that a key of the file is that value, and what is wrong with it: "WHERE: KEY is VALUE, ..."; -EINVAL. */
int sp_config_refuse(const char *where, const char *key, const json_t *v, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

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

/*
 * Refuses what would change the numbers and is nothing that `m`, the model read from `root`, has:
 * keys of other architectures unless they are switched off, and keys that say a size of `m` again
 * with another value. 0 or -EINVAL with one line on stderr.
 */
int sp_config_check_keys(const json_t *root, const char *where, const struct sp_model *m);

/* ---- a config.json that stays as it was written but for some of its members -------------- */

/* A member of the object, and its value as JSON: added at the end where it is not there, if that is `wanted`. */
struct sp_config_edit {
    const char *key, *value;
    bool wanted;
};

/*
 * Makes the edits, up to one without a key (32 at most), in text(len), an object that sp_foreign_json has read. Everything else keeps its bytes:
 * integers beyond 64 bits, NaN and all digits of numbers too. A member whose value is the same keeps its own.
 * 0 with *out(*out_len), to be freed; -ENOMEM or -EINVAL (no such object) without a word.
 */
int sp_config_edit(const char *text, size_t len, const struct sp_config_edit *edits, char **out,
                   size_t *out_len);

#endif
