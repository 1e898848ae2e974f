#include "policies/families/weight_ring/flow.h"
#include "policies/families/weight_ring/node.h"
#include "policies/refuse.h"
#include <errno.h>
#include <stdio.h>

enum sp_ring_layout sp_flow_layout(const struct sp_layout *lay, enum sp_ring_layout says)
{
    if (sp_option_is(lay, "flow", "line"))
        return SP_RING_LINE;
    if (says == SP_RING_PAIRS && (lay->stages % 2 || lay->chunks > 1) &&
        !sp_option_is(lay, "flow", "ring"))
        return SP_RING_LINE;
    return says;
}

int sp_flow_check(const struct sp_layout *lay, enum sp_ring_layout says, char *why, size_t n)
{
    int err = sp_refuse_word(lay, "flow", "ring", "line", why, n);

    if (err || lay->chunks == 1 || sp_flow_layout(lay, says) == SP_RING_LINE)
        return err;
    snprintf(why, n,
             "has 1 chunk per stage where weights go around, not %d; use --chunks 1, or flow=line",
             lay->chunks);
    return -EINVAL;
}

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
