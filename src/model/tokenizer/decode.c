/* Ids to text. */
#include "model/tokenizer/parts.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

void sp_decode_room_free(struct sp_decode_room *room)
{
    free(room->at);
    free(room->spare);
    *room = (struct sp_decode_room){0};
}

int64_t sp_tokenizer_id(const struct sp_tokenizer *t, const char *text, size_t n)
{
    for (size_t i = 0; i < t->added.n; i++)
        if (t->added.token[i].n == n && !memcmp(t->added.token[i].content, text, n))
            return t->added.token[i].id;
    return sp_vocabulary_find(&t->vocabulary, text, n);
}

const char *sp_tokenizer_text(const struct sp_tokenizer *t, uint32_t id, size_t *n)
{
    const struct sp_added_token *added = sp_added_of(&t->added, id);

    if (!added)
        return sp_vocabulary_text(&t->vocabulary, id, n);
    *n = added->n;
    return added->content;
}

/* The characters of the whole text that are to be taken from its beginning. */
static size_t strip_beginning(const struct sp_decoder *z, struct sp_decoding *d,
                              const struct sp_bytes *text)
{
    char c[4];
    size_t length = (size_t)sp_unicode_encode(z->c, c), at = 0;

    while (d->stripped < z->left && at < text->n) {
        bool same = text->n - at >= length && !memcmp(text->at + at, c, length);

        d->stripped = same ? d->stripped + 1 : z->left;
        at += same ? length : 0;
    }
    return at;
}

/* Bytes at the end that begin a character which is not complete. */
static size_t incomplete(const char *text, size_t n)
{
    for (size_t length = 1; length < 4 && length <= n; length++) {
        unsigned char byte = (unsigned char)text[n - length];

        if (byte >= 0xc2 && byte <= 0xf4)
            return (size_t)sp_unicode_length((char)byte) > length ? length : 0;
        if ((byte & 0xc0) != 0x80)
            break;
    }
    return 0;
}

/* Bytes that wait come first; a character that is not complete waits. */
static void hold_back(struct sp_decoding *d, struct sp_bytes *text, struct sp_bytes *spare)
{
    struct sp_bytes from = *text;
    size_t n;

    spare->n = 0;
    sp_bytes_add(spare, d->waiting, (size_t)d->n_waiting);
    sp_bytes_add(spare, text->at, text->n);
    *text = *spare;
    *spare = from;
    n = text->n ? incomplete(text->at, text->n) : 0;
    d->n_waiting = (int)n;
    if (n)
        memcpy(d->waiting, text->at + text->n - n, n);
    text->n -= n;
}

int sp_decode(const struct sp_tokenizer *t, struct sp_decoding *d, uint32_t id,
              struct sp_decode_room *room, size_t *len)
{
    const struct sp_added_token *added = sp_added_of(&t->added, id);
    size_t n = 0, from;
    const char *text = sp_tokenizer_text(t, id, &n);
    struct sp_bytes out = {room->at, 0, room->size, false},
                    spare = {room->spare, 0, room->spare_size, false};

    if (!text)
        return sp_error(EINVAL, "the tokenizer has no token %u", (unsigned)id);
    *len = 0;
    if (added && added->special && (d->flags & SP_DECODE_SKIP_SPECIAL))
        return 0;
    sp_decoder_token(&t->decoder, text, n, !d->begun, &out, &spare);
    d->begun = true;
    from = strip_beginning(&t->decoder, d, &out);
    if (from) {
        memmove(out.at, out.at + from, out.n - from);
        out.n -= from;
    }
    if (d->flags & SP_DECODE_CHARACTERS)
        hold_back(d, &out, &spare);
    room->at = out.at;
    room->size = out.room;
    room->spare = spare.at;
    room->spare_size = spare.room;
    *len = out.n;
    return out.failed || spare.failed ? sp_error(ENOMEM, "no memory to decode a token") : 0;
}
