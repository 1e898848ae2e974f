/*
 * GPT-2:    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * Llama 3 and Qwen, after GPT-4's (cl100k):
 *
 *     (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 */
#include "model/tokenizer/words.h"
#include "model/tokenizer/unicode.h"
#include <string.h>

/* The class of the character at `at` < n, and where it ends. */
static inline enum sp_char_class class_at(const char *text, size_t at, size_t *end)
{
    unsigned char byte = (unsigned char)text[at];
    uint32_t c;

    if (byte < 0x80) {
        *end = at + 1;
        return (enum sp_char_class)sp_ascii_class[byte];
    }
    *end = at + (size_t)sp_unicode_next(text + at, &c);
    return sp_unicode_class(c);
}

/* Behind the characters of a class from `at` on, at most `most` of them if that is not 0. */
static inline size_t run_end(const char *text, size_t n, size_t at, enum sp_char_class class,
                             int most)
{
    int count = 0;
    size_t end;

    for (; at < n && class_at(text, at, &end) == class; at = end)
        if (most && count++ == most)
            break;
    return at;
}

/* Behind 's, 't, 're, 've, 'm, 'll or 'd at `at`, in letters of either case, among them the long s; 0: it is none. */
static size_t contraction_end(const char *text, size_t n, size_t at, bool any_case)
{
    char low[2] = {0};

    if (text[at] != '\'' || n - at < 2)
        return 0;
    for (size_t i = 0; i < 2 && at + 1 + i < n; i++) {
        low[i] = text[at + 1 + i];
        if (any_case && low[i] >= 'A' && low[i] <= 'Z')
            low[i] = (char)(low[i] + 32);
    }
    if (low[0] == 's' || low[0] == 't' || low[0] == 'm' || low[0] == 'd')
        return at + 2;
    if ((low[0] == 'r' && low[1] == 'e') || (low[0] == 'v' && low[1] == 'e') ||
        (low[0] == 'l' && low[1] == 'l') || (any_case && low[0] == '\xc5' && low[1] == '\xbf'))
        return at + 3;
    return 0;
}

/*
 * \s+(?!\S)|\s+ from `at` on: white space to the end of the text; before something else its last character is left
 * to that, unless it is the only one. *newline: behind the last \r or \n of all of it, 0 without one.
 */
static size_t space_end(const char *text, size_t n, size_t at, size_t *newline)
{
    size_t begin = at, last = at, end;

    *newline = 0;
    for (; at < n && class_at(text, at, &end) == SP_CHAR_SPACE; at = end) {
        last = at;
        if (text[at] == '\n' || text[at] == '\r')
            *newline = end;
    }
    return at == n || last == begin ? at : last;
}

static size_t gpt2_end(const struct sp_words *w, const char *text, size_t n, size_t at)
{
    size_t start = at, end, newline;
    enum sp_char_class class = class_at(text, at, &end);

    (void)w;
    if (class == SP_CHAR_OTHER) {
        size_t behind = contraction_end(text, n, at, false);

        if (behind)
            return behind;
    } else if (class == SP_CHAR_SPACE) {
        if (text[at] != ' ' || end == n)
            return space_end(text, n, at, &newline);
        class = class_at(text, end, &end);
        if (class == SP_CHAR_SPACE)
            return space_end(text, n, at, &newline);
        start = at + 1;
    }
    return run_end(text, n, start, class, 0);
}

static size_t newlines_end(const char *text, size_t n, size_t at)
{
    while (at < n && (text[at] == '\r' || text[at] == '\n'))
        at++;
    return at;
}

static size_t cl100k_end(const struct sp_words *w, const char *text, size_t n, size_t at)
{
    size_t second, end, newline;
    enum sp_char_class class = class_at(text, at, &second), next = SP_CHAR_SPACE;

    if (class == SP_CHAR_LETTER)
        return run_end(text, n, second, class, 0);
    if (class == SP_CHAR_NUMBER)
        return run_end(text, n, at, class, w->digits);
    if (class == SP_CHAR_OTHER) {
        end = contraction_end(text, n, at, true);
        if (end)
            return end;
    }
    if (second < n)
        next = class_at(text, second, &end);
    if (next == SP_CHAR_LETTER && text[at] != '\r' && text[at] != '\n')
        return run_end(text, n, end, next, 0);
    if (class == SP_CHAR_OTHER || (text[at] == ' ' && next == SP_CHAR_OTHER))
        return newlines_end(text, n, run_end(text, n, second, SP_CHAR_OTHER, 0));
    end = space_end(text, n, at, &newline);
    return newline ? newline : end;
}

const struct sp_words sp_words_gpt2 = {gpt2_end, 0};
static const struct sp_words llama3 = {cl100k_end, 3}, qwen = {cl100k_end, 1};

const struct sp_words *sp_words_of(const char *pattern)
{
    static const struct {
        const char *pattern;
        const struct sp_words *words;
    } known[] = {
        {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
         &sp_words_gpt2},
        {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
         &sp_words_gpt2},
        {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
         " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
         &llama3},
        {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
         " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
         &qwen},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(pattern, known[i].pattern))
            return known[i].words;
    return NULL;
}
