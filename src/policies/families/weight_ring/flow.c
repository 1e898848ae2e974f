#include "policies/families/weight_ring/flow.h"
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
