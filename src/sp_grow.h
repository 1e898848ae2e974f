/* Lists that grow. */
#ifndef SP_GROW_H
#define SP_GROW_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for at least n elements of `size` bytes in a list that has room for *room. `list` is
 * the address of the pointer to the elements. False without memory: nothing changes. */
static inline bool sp_grow(void *list, size_t n, size_t *room, size_t size)
{
    size_t more = *room ? *room : 64;
    void *elements, *grown;

    if (n <= *room)
        return true;
    while (more < n)
        more *= 2;
    memcpy(&elements, list, sizeof elements);
    grown = realloc(elements, more * size);
    if (!grown)
        return false;
    memcpy(list, &grown, sizeof grown);
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
