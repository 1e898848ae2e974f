/* Lists that grow as elements are appended. */
#ifndef SP_GROW_H
#define SP_GROW_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for one more element of `size` bytes in a list of n elements, with `room` for more.
 * `list` is the address of the pointer to the elements. False without memory: nothing changes. */
static inline bool sp_grow(void *list, int n, int *room, size_t size)
{
    int more = 2 * n + 64;
    void *elements;

    if (n < *room)
        return true;
    memcpy(&elements, list, sizeof elements);
    elements = realloc(elements, (size_t)more * size);
    if (!elements)
        return false;
    memcpy(list, &elements, sizeof elements);
    *room = more;
    return true;
}

#endif
