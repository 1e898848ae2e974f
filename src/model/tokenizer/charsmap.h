/* The table of characters and what they become that sentencepiece writes, the normalizer Precompiled. */
#ifndef SP_TOKENIZER_CHARSMAP_H
#define SP_TOKENIZER_CHARSMAP_H

#include "model/tokenizer/unicode.h"

struct sp_charsmap;

/* Reads the table from base64. *out NULL without an error: an empty one. 0, -EINVAL without a word, or -ENOMEM likewise. */
int sp_charsmap_create(const char *base64, size_t n, struct sp_charsmap **out);
void sp_charsmap_destroy(struct sp_charsmap *m);

/* Appends what text[n], valid UTF-8, becomes. */
void sp_charsmap_run(const struct sp_charsmap *m, const char *text, size_t n, struct sp_bytes *out);

#endif
