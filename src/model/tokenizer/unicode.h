/* Characters: their bytes in UTF-8, and the classes that tokenizers tell apart. */
#ifndef SP_TOKENIZER_UNICODE_H
#define SP_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A set of bytes that grows. */
struct sp_bytes {
    char *at;
    size_t n, room;
    bool failed; /* there was no memory: bytes are missing */
};
void sp_bytes_add(struct sp_bytes *b, const void *bytes, size_t n);
void sp_bytes_add_char(struct sp_bytes *b, uint32_t c);

/* Bytes of the character at text[n], n > 0, and its number; 0: it is none. */
int sp_unicode_decode(const char *text, size_t n, uint32_t *c);
/* Writes a character; its bytes. */
int sp_unicode_encode(uint32_t c, char out[4]);
/* How many bytes of text[n] come before the first that belongs to no character. */
size_t sp_unicode_valid(const char *text, size_t n);

/* In text that is known to be valid: bytes of the character that begins with this byte. */
static inline int sp_unicode_length(char first)
{
    unsigned char b = (unsigned char)first;

    return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}

/* In text that is known to be valid: the character, and its bytes. */
static inline int sp_unicode_next(const char *text, uint32_t *c)
{
    const unsigned char *b = (const unsigned char *)text;
    int length = sp_unicode_length(*text);

    if (length == 1)
        *c = b[0];
    else if (length == 2)
        *c = (uint32_t)((b[0] & 31) << 6 | (b[1] & 63));
    else if (length == 3)
        *c = (uint32_t)((b[0] & 15) << 12 | (b[1] & 63) << 6 | (b[2] & 63));
    else
        *c = (uint32_t)((b[0] & 7) << 18 | (b[1] & 63) << 12 | (b[2] & 63) << 6 | (b[3] & 63));
    return length;
}

/* Which of \s, \p{L}, \p{N} it is; these exclude each other. */
enum sp_char_class { SP_CHAR_OTHER, SP_CHAR_LETTER, SP_CHAR_NUMBER, SP_CHAR_SPACE };
extern const unsigned char sp_ascii_class[128];
enum sp_char_class sp_unicode_class(uint32_t c);

bool sp_unicode_is_space(uint32_t c);       /* White_Space */
bool sp_unicode_is_word(uint32_t c);        /* \w of UTS #18 */
bool sp_unicode_is_mark(uint32_t c);        /* M */
bool sp_unicode_is_punctuation(uint32_t c); /* P, and the punctuation of ASCII */

/* Lower case as Unicode has it for a character alone: one character, or two. */
int sp_unicode_lower(uint32_t c, uint32_t out[2]);

enum sp_normal_form { SP_NFC, SP_NFD, SP_NFKC, SP_NFKD };
/* Appends text[n], valid UTF-8, in that form. */
void sp_unicode_normalize(enum sp_normal_form form, const char *text, size_t n,
                          struct sp_bytes *out);

#endif
