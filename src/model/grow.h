/* Arrays that grow. */
#ifndef SP_MODEL_GROW_H
#define SP_MODEL_GROW_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Gives the array whose address is in the pointer at `at`, and which has room for *room elements of `size` bytes, room
 * for at least n. False without memory: it stays as it is. */
static inline bool sp_grow(void *at, size_t *room, size_t n, size_t size)
{
    size_t more = *room ? *room : 64;
    void *array, *grown;

    if (*room >= n)
        return true;
    while (more < n)
        more *= 2;
    memcpy(&array, at, sizeof array);
    grown = realloc(array, more * size);
    if (!grown)
        return false;
    memcpy(at, &grown, sizeof grown);
    *room = more;
    return true;
}

/* Appends a copy of a text to a list of *n. False without memory. */
static inline bool sp_append_text(char ***list, int *n, const char *text)
{
    char **longer = realloc(*list, ((size_t)*n + 1) * sizeof *longer);
    char *copy = longer ? strdup(text) : NULL;

    if (longer)
        *list = longer;
    if (copy)
        longer[(*n)++] = copy;
    return copy != NULL;
}

#endif
