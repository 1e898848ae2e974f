/*
 * A heap of numbers, ordered by `before`. If the order of a number in the heap changes, call
 * sp_heap_settle for it. The functions, and `before`, are inline because simulations spend their
 * time in heaps.
 */
#ifndef SP_HEAP_H
#define SP_HEAP_H

#include <stdbool.h>

struct sp_heap {
    int *item; /* [n] and room for those to come */
    int *at;   /* [numbers] the place of each in `item`; NULL: not kept */
    int n;
};

typedef bool (*sp_heap_before)(const void *arg, int a, int b);

static inline void sp_heap_put(struct sp_heap *h, int item, int i)
{
    h->item[i] = item;
    if (h->at)
        h->at[item] = i;
}

/* Puts a number where it belongs; place i is free for it. */
static inline void sp_heap_settle(struct sp_heap *h, int item, int i, sp_heap_before before,
                                  const void *arg)
{
    for (; i > 0 && before(arg, item, h->item[(i - 1) / 2]); i = (i - 1) / 2)
        sp_heap_put(h, h->item[(i - 1) / 2], i);
    for (int child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && before(arg, h->item[child + 1], h->item[child]))
            child++;
        if (!before(arg, h->item[child], item))
            break;
        sp_heap_put(h, h->item[child], i);
    }
    sp_heap_put(h, item, i);
}

static inline void sp_heap_push(struct sp_heap *h, int item, sp_heap_before before, const void *arg)
{
    h->n++;
    sp_heap_settle(h, item, h->n - 1, before, arg);
}

/* Removes the number at place i. */
static inline void sp_heap_remove(struct sp_heap *h, int i, sp_heap_before before, const void *arg)
{
    int last = h->item[--h->n];

    if (i < h->n)
        sp_heap_settle(h, last, i, before, arg);
}

static inline int sp_heap_pop(struct sp_heap *h, sp_heap_before before, const void *arg)
{
    int top = h->item[0];

    sp_heap_remove(h, 0, before, arg);
    return top;
}

#endif
