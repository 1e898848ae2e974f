/*
 * The tokenizer of a model directory, tokenizer.json as the `tokenizers` package of Hugging Face writes it: text
 * to the ids of tokens and back, with the ids that the package gives.
 *
 * Read are byte-level BPE (GPT-2, Llama 3, Qwen), BPE with byte fallback (Llama 2, Mistral) and Unigram, with their
 * normalizers, pre-tokenizers and decoders. A file that asks for something else is refused with the name of what
 * it asks for. Padding and truncation, which concern batches, are left to the caller.
 */
#ifndef SP_TOKENIZER_H
#define SP_TOKENIZER_H

#include "model/files/dir.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SP_TOKENIZER_FILE "tokenizer.json"
/* A larger file is refused unread; the largest known have 34 MB. */
#define SP_TOKENIZER_MAX_BYTES (64 << 20)
/* Ids are below it. */
#define SP_TOKENIZER_MAX_IDS (1 << 22)

struct sp_tokenizer; /* threads may share it */

/*
 * Reads tokenizer.json of `dir`, and the ids of special tokens from tokenizer_config.json, generation_config.json
 * and config.json, where they are. 0; -ENOENT without a word: there is no tokenizer.json; -ENOTSUP after one line:
 * this build reads none; or -errno after one line: it cannot be read, or is refused.
 */
int sp_tokenizer_open_in(const struct sp_dir *dir, struct sp_tokenizer **t);
/* The same of the directory at a path; that it has no tokenizer.json is said as well. */
int sp_tokenizer_open(const char *dir, struct sp_tokenizer **t);
/* The same of a text (the fuzzer's entry), `where` being its name in messages. */
int sp_tokenizer_parse(const char *json, size_t len, const char *where, struct sp_tokenizer **t);
void sp_tokenizer_close(struct sp_tokenizer *t);

/* Ids are below it: one above the largest, or the vocab_size of config.json, where that is larger. */
uint32_t sp_tokenizer_vocab(const struct sp_tokenizer *t);
/* The content of a token, of *n bytes, as the file has it; NULL: there is no such token. */
const char *sp_tokenizer_text(const struct sp_tokenizer *t, uint32_t id, size_t *n);
/* The id whose content is text[n], added tokens included; -1: none. */
int64_t sp_tokenizer_id(const struct sp_tokenizer *t, const char *text, size_t n);

enum sp_special_token { SP_TOKEN_BOS, SP_TOKEN_EOS, SP_TOKEN_PAD, SP_SPECIAL_TOKENS };
/* The id of such a token; -1: the directory names none. */
int64_t sp_tokenizer_special(const struct sp_tokenizer *t, enum sp_special_token which);

/* Ids, the room for which grows. {0}: none. */
struct sp_ids {
    uint32_t *id;
    size_t n, room;
    bool failed; /* there was no memory: ids are missing */
};
void sp_ids_free(struct sp_ids *ids);
/* False without memory. */
bool sp_ids_add(struct sp_ids *ids, uint32_t id);

/* ---- text to ids ------------------------------------------------------------------------------- */

enum {
    /* The contents of special tokens in the text, "<|endoftext|>", are these tokens. Without it they are text. */
    SP_ENCODE_SPECIAL = 1,
    /* The tokens that the file's post-processor puts around a text: bos, eos. */
    SP_ENCODE_AROUND = 2,
    /* The text continues another: nothing is done that is done at the beginning of a text. */
    SP_ENCODE_CONTINUED = 4,
    /* Another text continues it: the tokens that the post-processor puts behind a text are left out. */
    SP_ENCODE_UNFINISHED = 8
};

/* The memory of a thread that encodes: words that it has seen, and room to work. */
struct sp_encoder;
struct sp_encoder *sp_encoder_create(const struct sp_tokenizer *t); /* NULL without memory */
void sp_encoder_destroy(struct sp_encoder *e);

/*
 * Appends the ids of text[n] to *ids. A byte that belongs to no UTF-8 character is encoded by its byte token, and the
 * text after it is encoded as text that continues; a vocabulary without byte tokens has U+FFFD for it. 0, or -errno
 * after one line.
 */
int sp_encode(struct sp_encoder *e, const void *text, size_t n, unsigned flags, struct sp_ids *ids);

/*
 * A place at which text[n] may be cut: the first at or behind `from` such that both parts encoded by themselves, the second
 * with SP_ENCODE_CONTINUED, give the ids of the whole. n: no such place is known. Independent of other cuts.
 */
size_t sp_tokenizer_cut(const struct sp_tokenizer *t, const void *text, size_t n, size_t from);

/* ---- ids to text ------------------------------------------------------------------------------- */

enum {
    /* Special tokens are left out. */
    SP_DECODE_SKIP_SPECIAL = 1,
    /* A character whose bytes are not yet complete waits for the next id. */
    SP_DECODE_CHARACTERS = 2
};

/* The state of decoding a stream of ids. Zero with `flags`: nothing was decoded yet. */
struct sp_decoding {
    unsigned flags;
    bool begun;
    int stripped; /* characters taken from the beginning */
    unsigned char waiting[4];
    int n_waiting;
};

/*
 * The bytes that the id adds to the text, in room->at until the next call; *len may be 0. They are the bytes that were
 * encoded, so they may be no UTF-8. `room` is {0} at first. 0, or -errno after one line: the vocabulary has no such id, or no memory.
 */
struct sp_decode_room {
    char *at, *spare;
    size_t size, spare_size;
};
void sp_decode_room_free(struct sp_decode_room *room);
int sp_decode(const struct sp_tokenizer *t, struct sp_decoding *d, uint32_t id,
              struct sp_decode_room *room, size_t *len);

#endif
