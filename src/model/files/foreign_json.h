/* JSON that other programs wrote beside a model: config.json, an index, the header of a safetensors file. */
#ifndef SP_FOREIGN_JSON_H
#define SP_FOREIGN_JSON_H

#include <jansson.h>
#include <stddef.h>

/*
 * Reads text(len). Python writes what JSON has no word for, and reads it back: NaN, Infinity and -Infinity, and
 * numbers beyond a double, come as texts, "NaN" and so on, which no reader of a number takes; an integer beyond
 * 64 bits comes as a real. A key twice is refused. NULL, with *err set: not JSON, or no memory.
 */
json_t *sp_foreign_json(const char *text, size_t len, json_error_t *err);
/* The same with more flags of jansson: JSON_ALLOW_NUL for a reader of texts that may hold zeros. */
json_t *sp_foreign_json_with(const char *text, size_t len, size_t flags, json_error_t *err);

#endif
