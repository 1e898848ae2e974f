#include "policies/families/weight_ring/node.h"
#include <errno.h>
#include <stdio.h>

int sp_node_option(const struct sp_layout *lay, int otherwise)
{
    int ok = 1;

    return sp_layout_option_int(lay, "node", otherwise, &ok);
}

int sp_node_check(const struct sp_layout *lay, char *why, size_t n)
{
    int ok = 1, node = sp_layout_option_int(lay, "node", 1, &ok);

    if (ok && node >= 1 && node <= lay->stages && lay->stages % node == 0)
        return 0;
    snprintf(why, n, "wants a number of workers of a node that divides %d, as node=%d", lay->stages,
             lay->stages % 2 ? lay->stages : lay->stages / 2);
    return -EINVAL;
}
