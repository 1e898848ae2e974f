/* A config.json that stays as it was written but for some of its members. */
#ifndef SP_CONFIG_EDIT_H
#define SP_CONFIG_EDIT_H

#include <stdbool.h>
#include <stddef.h>

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
