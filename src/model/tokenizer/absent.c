/* In the place of the others, where configure found no PCRE2 or no utf8proc: no tokenizer is ever opened. */
#include "model/tokenizer/stream.h"
#include "sp_error.h"
#include <stdlib.h>

int sp_tokenizer_open_in(const struct sp_dir *dir, struct sp_tokenizer **t)
{
    struct stat st;

    (void)t;
    if (!sp_dir_has(dir, SP_TOKENIZER_FILE, &st))
        return -ENOENT;
    return sp_error(ENOTSUP,
                    "%s/" SP_TOKENIZER_FILE ": this build reads no tokenizers: install PCRE2 and "
                    "utf8proc (libpcre2-dev, libutf8proc-dev) and build it again",
                    dir->path);
}

#define ABSENT(type, name, parameters, result)                                                     \
    type name parameters                                                                           \
    {                                                                                              \
        abort();                                                                                   \
        return result;                                                                             \
    }
#define T const struct sp_tokenizer *t
#pragma GCC diagnostic ignored "-Wunused-parameter"

ABSENT(int, sp_tokenizer_parse,
       (const char *json, size_t len, const char *where, struct sp_tokenizer **t), 0)
ABSENT(uint32_t, sp_tokenizer_vocab, (T), 0)
ABSENT(const char *, sp_tokenizer_text, (T, uint32_t id, size_t *n), NULL)
ABSENT(int64_t, sp_tokenizer_id, (T, const char *text, size_t n), 0)
ABSENT(int64_t, sp_tokenizer_special, (T, enum sp_special_token which), 0)
ABSENT(struct sp_encoder *, sp_encoder_create, (T), NULL)
ABSENT(int, sp_encode,
       (struct sp_encoder * e, const void *text, size_t n, unsigned flags, struct sp_ids *ids), 0)
ABSENT(size_t, sp_tokenizer_cut, (T, const void *text, size_t n, size_t from), 0)
ABSENT(int, sp_decode,
       (T, struct sp_decoding *d, uint32_t id, struct sp_decode_room *room, size_t *len), 0)
ABSENT(int, sp_tokenize_file, (struct sp_tokenizing * z, FILE *f, const char *path), 0)

/* There is nothing to free. */
void sp_tokenizer_close(struct sp_tokenizer *t)
{
}

void sp_encoder_destroy(struct sp_encoder *e)
{
}

void sp_decode_room_free(struct sp_decode_room *room)
{
}
