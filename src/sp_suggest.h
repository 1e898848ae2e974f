/* The word a mistyped one was probably meant to be: "trian", of train, watch, list. */
#ifndef SP_SUGGEST_H
#define SP_SUGGEST_H

/* {.typed = ..}, then every word that it could have been. */
struct sp_suggestion {
    const char *typed; /* what follows its 63rd letter does not count */
    const char *nearest;
    int length; /* of nearest */
    int distance;
};

/* Edits (insert, delete, replace, swap of neighbours) between two words, of 63 letters at most. */
int sp_edit_distance(const char *a, const char *b);

/* Takes the first `length` letters of `word` for nearest if no word was nearer. Not copied. */
void sp_suggest(struct sp_suggestion *s, const char *word, int length);

/* ", did you mean 'train'?", "" where no word is near enough, into text[n], and text. `before` goes before the word:
 * "--". */
const char *sp_suggest_text(const struct sp_suggestion *s, const char *before, char *text, int n);

#endif
