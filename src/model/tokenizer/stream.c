#define _GNU_SOURCE /* memmem */
#include "model/tokenizer/stream.h"
#include "sp_grow.h"
#include "sp_error.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 256 << 10, WINDOW_BYTES = 16 << 20 };

/* A thread encodes this at once: a document, or a part of it. */
struct chunk {
    size_t at, n;
    bool begins, ends; /* a document */
    struct sp_ids ids;
};

struct window {
    size_t chunk_bytes, bytes; /* as asked for */
    char *text;
    size_t n, room;
    bool last; /* the file ends with it */
    const char *eos;
    size_t eos_n;
    struct chunk *chunk;
    size_t chunks, chunk_room;
    struct sp_encoder **encoder; /* of each thread */
    bool open;                   /* the text begins inside a document */
};

/* ---- documents --------------------------------------------------------------------------------- */

/* Behind a line without text that begins at `at`; 0: there is text; text[n] may be only its beginning. */
static size_t blank_line_end(const char *text, size_t n, size_t at)
{
    while (at < n && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r'))
        at++;
    return at < n && text[at] == '\n' ? at + 1 : 0;
}

/*
 * The end of the document at `at`, and in *next where another one may begin. SIZE_MAX: it is not in the window, and
 * *next is then up to where no end is.
 */
static size_t document_end(const struct sp_tokenizing *z, const struct window *w, size_t at,
                           size_t *next)
{
    const char *found;

    *next = w->n;
    if (z->by == SP_DOCUMENTS_EOS) {
        found = memmem(w->text + at, w->n - at, w->eos, w->eos_n);
        if (found)
            *next = (size_t)(found - w->text) + w->eos_n;
        else if (!w->last)
            *next = w->n - at < w->eos_n ? at : w->n - w->eos_n + 1;
        return found ? (size_t)(found - w->text) : w->last ? w->n : SIZE_MAX;
    }
    for (size_t line = at; z->by == SP_DOCUMENTS_BLANK_LINE && line < w->n;) {
        size_t behind = blank_line_end(w->text, w->n, line);

        if (behind) {
            *next = behind;
            return line;
        }
        found = memchr(w->text + line, '\n', w->n - line);
        if (!found) {
            *next = w->last ? w->n : line;
            break;
        }
        line = (size_t)(found - w->text) + 1;
        *next = line;
    }
    return w->last ? w->n : SIZE_MAX;
}

/* ---- chunks ------------------------------------------------------------------------------------ */

static bool add_chunk(struct window *w, struct chunk c)
{
    size_t room = w->chunk_room;

    if (!sp_grow(&w->chunk, w->chunks + 1, &w->chunk_room, sizeof c))
        return false;
    memset(w->chunk + room, 0, (w->chunk_room - room) * sizeof c);
    c.ids = w->chunk[w->chunks].ids;
    w->chunk[w->chunks++] = c;
    return true;
}

/*
 * Chunks of the document whose text is at `at` up to `end`; the last ends it, if it `ends` there, and is otherwise
 * left for the next window. *rest: behind the chunks.
 */
static bool cut_document(const struct sp_tokenizing *z, struct window *w, size_t at, size_t end,
                         bool ends, size_t *rest)
{
    bool begins = !w->open;

    while (at < end) {
        /* Text behind the document has no part in where it is cut. */
        size_t stop = end - at <= w->chunk_bytes
                          ? end
                          : at + sp_tokenizer_cut(z->t, w->text + at, end - at, w->chunk_bytes);

        if (stop == end && !ends)
            break;
        if (!add_chunk(
                w, (struct chunk){.at = at, .n = stop - at, .begins = begins, .ends = stop == end}))
            return false;
        begins = false;
        at = stop;
    }
    w->open = !begins && !ends;
    *rest = at;
    return true;
}

/* All chunks of the window; what is behind *rest stays for the next one. */
static bool cut_window(const struct sp_tokenizing *z, struct window *w, size_t *rest)
{
    size_t at = 0;

    w->chunks = 0;
    *rest = 0;
    while (at < w->n) {
        size_t next, end = document_end(z, w, at, &next);

        if (end == SIZE_MAX)
            return cut_document(z, w, at, next, false, rest);
        if (w->open && end == at) { /* the last window had all of it */
            w->open = false;
            if (!add_chunk(w, (struct chunk){.at = at, .ends = true}))
                return false;
        } else if (!cut_document(z, w, at, end, true, rest)) {
            return false;
        }
        *rest = at = next;
    }
    return true;
}

static int encode_chunk(const struct sp_tokenizing *z, const struct window *w, struct chunk *c,
                        struct sp_encoder *e)
{
    unsigned flags =
        z->flags | (c->begins ? 0 : SP_ENCODE_CONTINUED) | (c->ends ? 0 : SP_ENCODE_UNFINISHED);
    int err;

    c->ids.n = 0;
    err = sp_encode(e, w->text + c->at, c->n, flags, &c->ids);
    if (!err && c->ends && z->separator >= 0) {
        err = sp_ids_add(&c->ids, (uint32_t)z->separator)
                  ? 0
                  : sp_error(ENOMEM, "no memory for the ids of text");
    }
    return err;
}

static int encode_window(struct sp_tokenizing *z, struct window *w)
{
    int err = 0;

#pragma omp parallel for num_threads(z->threads) schedule(dynamic, 1)
    for (size_t i = 0; i < w->chunks; i++) {
        int before, failed;

#pragma omp atomic read
        before = err;
        if (before)
            continue;
        failed = encode_chunk(z, w, &w->chunk[i], w->encoder[omp_get_thread_num()]);

        if (failed) {
#pragma omp atomic write
            err = failed;
        }
    }
    for (size_t i = 0; !err && i < w->chunks; i++) {
        err = z->write(z->to, w->chunk[i].ids.id, w->chunk[i].ids.n);
        z->tokens += w->chunk[i].ids.n;
        z->documents += w->chunk[i].ends;
    }
    return err;
}

/* ---- the file ---------------------------------------------------------------------------------- */

/* More text behind that which is there. */
static int read_more(struct sp_tokenizing *z, struct window *w, FILE *f, const char *path)
{
    size_t k;

    if (w->room - w->n < w->bytes / 2 + 1) {
        size_t room = w->room ? 2 * w->room : w->bytes;
        char *grown = realloc(w->text, room);

        if (!grown)
            return sp_error(ENOMEM, "%s: no memory for %zu bytes of text", path, room);
        w->text = grown;
        w->room = room;
    }
    k = fread(w->text + w->n, 1, w->room - w->n, f);
    if (ferror(f))
        return sp_error(errno ? errno : EIO, "%s: cannot be read: %s", path,
                        strerror(errno ? errno : EIO));
    z->bytes += k;
    w->n += k;
    w->last = feof(f) != 0;
    return 0;
}

static int create_window(const struct sp_tokenizing *z, struct window *w)
{
    size_t n = 0;
    int64_t eos = sp_tokenizer_special(z->t, SP_TOKEN_EOS);
    bool failed;

    *w = (struct window){.eos = eos < 0 ? NULL : sp_tokenizer_text(z->t, (uint32_t)eos, &n)};
    w->eos_n = n;
    w->chunk_bytes = z->chunk_bytes ? z->chunk_bytes : CHUNK_BYTES;
    w->bytes = z->window_bytes ? z->window_bytes : WINDOW_BYTES;
    if (z->by == SP_DOCUMENTS_EOS && !n)
        return sp_error(EINVAL, "the tokenizer has no eos, between which documents would be");
    w->encoder = calloc((size_t)z->threads, sizeof *w->encoder);
    failed = !w->encoder;
    for (int i = 0; !failed && i < z->threads; i++)
        failed = !(w->encoder[i] = sp_encoder_create(z->t));
    return failed ? sp_error(ENOMEM, "no memory for %d threads that encode", z->threads) : 0;
}

static void destroy_window(const struct sp_tokenizing *z, struct window *w)
{
    for (int i = 0; w->encoder && i < z->threads; i++)
        sp_encoder_destroy(w->encoder[i]);
    for (size_t i = 0; i < w->chunk_room; i++)
        sp_ids_free(&w->chunk[i].ids);
    free(w->encoder);
    free(w->chunk);
    free(w->text);
}

int sp_tokenize_file(struct sp_tokenizing *z, FILE *f, const char *path)
{
    struct window w;
    int err = create_window(z, &w);

    while (!err && !w.last) {
        size_t rest = 0;

        err = read_more(z, &w, f, path);
        if (!err && !cut_window(z, &w, &rest))
            err = sp_error(ENOMEM, "%s: no memory for its parts", path);
        err = err ? err : encode_window(z, &w);
        if (!err && rest) {
            memmove(w.text, w.text + rest, w.n - rest);
            w.n -= rest;
        }
    }
    destroy_window(z, &w);
    return err;
}
