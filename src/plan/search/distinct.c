#include "plan/search/distinct.h"
#include <stdlib.h>
#include <string.h>

/* The ways in which a layout can differ from those already chosen, in the order of the search. */
enum idea { GRID, FAMILY, FAMILY_ON_GRID, VARIANT, IDEAS };

struct choice {
    const struct sp_found *all;
    int n, most;
    int *chosen, count;
};

static bool is_same(enum idea idea, const struct sp_found *a, const struct sp_found *b)
{
    switch (idea) {
    case GRID:
        return sp_found_same_grid(a, b);
    case FAMILY:
        return sp_found_same_family(a, b);
    case FAMILY_ON_GRID:
        return sp_found_same_grid(a, b) && sp_found_same_family(a, b);
    default:
        return a == b;
    }
}

static void choose(struct choice *c, enum idea idea, int i, int room)
{
    for (int k = 0; k < c->count; k++)
        if (is_same(idea, &c->all[c->chosen[k]], &c->all[i]))
            return;
    if (c->count < room)
        c->chosen[c->count++] = i;
}

static void choose_of(struct choice *c, bool fits)
{
    for (enum idea idea = GRID; idea < IDEAS; idea++)
        for (int i = 0; i < c->n; i++)
            if (c->all[i].fits == fits)
                choose(c, idea, i, idea == GRID ? (c->most + 1) / 2 : c->most);
}

static int compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

int sp_found_distinct(const struct sp_found *all, int n, int *chosen, int most)
{
    struct choice c = {.all = all, .n = n, .most = most, .chosen = chosen};
    const struct sp_found *told = sp_search_recommended(all, n);

    if (n > 0)
        choose(&c, VARIANT, 0, most);
    if (told)
        choose(&c, VARIANT, (int)(told - all), most);
    choose_of(&c, true);
    choose_of(&c, false);
    qsort(chosen, (size_t)c.count, sizeof *chosen, compare);
    return c.count;
}
