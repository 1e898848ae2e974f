/* JSON in the source of a test: 'single' quotes, which C need not escape. */
#ifndef TESTS_MODEL_QUOTES_H
#define TESTS_MODEL_QUOTES_H

#include <stdlib.h>
#include <string.h>

/* The text with "double" quotes for the single ones. The last eight texts stay. */
static inline const char *json_text(const char *quoted)
{
    static char *texts[8];
    static int turn;
    char *text = strdup(quoted);

    if (!text)
        abort();
    turn = (turn + 1) % 8;
    free(texts[turn]);
    texts[turn] = text;
    for (char *at = text; (at = strchr(at, '\'')); at++)
        *at = '"';
    return text;
}

#endif
