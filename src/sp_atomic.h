/* A maximum that several threads raise. */
#ifndef SP_ATOMIC_H
#define SP_ATOMIC_H

#include <stdint.h>

static inline void sp_raise(int64_t *most, int64_t value)
{
    int64_t now = __atomic_load_n(most, __ATOMIC_RELAXED);

    while (value > now &&
           !__atomic_compare_exchange_n(most, &now, value, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

#endif
