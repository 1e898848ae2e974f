#include "sp_suggest.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LONGEST 63

int sp_edit_distance(const char *a, const char *b)
{
    int na = (int)strnlen(a, LONGEST), nb = (int)strnlen(b, LONGEST);
    int d[LONGEST + 1][LONGEST + 1];

    for (int i = 0; i <= na; i++)
        d[i][0] = i;
    for (int j = 0; j <= nb; j++)
        d[0][j] = j;
    for (int i = 1; i <= na; i++) {
        for (int j = 1; j <= nb; j++) {
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[na][nb];
}

void sp_suggest(struct sp_suggestion *s, const char *word, int length)
{
    char whole[LONGEST + 1];
    int distance;

    snprintf(whole, sizeof whole, "%.*s", length, word);
    distance = sp_edit_distance(s->typed, whole);
    if (distance > 0 && s->typed[0] && s->typed[1] && !strncmp(whole, s->typed, strlen(s->typed)))
        distance = 0; /* its beginning was typed */
    if (s->nearest && distance >= s->distance)
        return;
    s->nearest = word;
    s->length = length;
    s->distance = distance;
}

/* Few edits, for a word as long as it is. */
static bool is_near(const struct sp_suggestion *s)
{
    int length = (int)strnlen(s->typed, LONGEST);

    return s->nearest && s->distance < length &&
           s->distance <= (length < 5   ? 1
                           : length < 9 ? 2
                                        : 3);
}

const char *sp_suggest_text(const struct sp_suggestion *s, const char *before, char *text, int n)
{
    if (is_near(s))
        snprintf(text, (size_t)n, ", did you mean %s%.*s?", before, s->length, s->nearest);
    else
        text[0] = '\0';
    return text;
}
