/* The regular expressions that most models cut text into words with, matched by hand: several times as fast. */
#ifndef SP_TOKENIZER_WORDS_H
#define SP_TOKENIZER_WORDS_H

#include <stddef.h>

/* How text is cut; every character is in a word. */
struct sp_words {
    size_t (*end)(const struct sp_words *w, const char *text, size_t n, size_t at);
    int digits; /* at most so many in a word; 0: any number */
};

/* The pattern that the pre-tokenizer ByteLevel has by itself, GPT-2's. */
extern const struct sp_words sp_words_gpt2;

/* The words of a pattern; NULL: it is none of those known. */
const struct sp_words *sp_words_of(const char *pattern);

/* The end of the word that begins at `at` < n in text[n], valid UTF-8. */
static inline size_t sp_word_end(const struct sp_words *w, const char *text, size_t n, size_t at)
{
    return w->end(w, text, n, at);
}

#endif
