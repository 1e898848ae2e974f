/*
 * The settings of a run, as lines "name=value" in the order of the options; "\n" in a value is a
 * newline. Ranks compare them before anything else, a checkpoint keeps them, and a resumed run says
 * which of its settings differ.
 */
#ifndef SP_SETTINGS_H
#define SP_SETTINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Adds a line to `text`, which is NULL or what an earlier call returned. */
char *sp_settings_add(char *text, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Compares this rank's lines with rank 0's. 0, or -EINVAL after a line that names the first setting
 * that differs, and both values.
 */
int sp_settings_same(const char *mine, const char *root);

/* {"name": "value", ...}; NULL without memory. */
json_t *sp_settings_json(const char *text);

/* True if a setting counts in a comparison; `name` has its dashes. */
typedef bool sp_setting_counts(const char *name);

/*
 * Lists, in out[n], the settings that count and differ from the saved ones, as "--lr 0.01 (was
 * 0.001), --seq 64 (was 32)". Returns how many there are.
 */
int sp_settings_changes(const char *text, const json_t *saved, sp_setting_counts *counts, char *out,
                        size_t n);

#endif
