/*
 * SlimPipe (Li et al. 2025, arXiv 2504.14519): 1F1B over slices of the same length. All stages run
 * in step, so that they can share the attention of their current slices: a late slice reads many
 * keys, an early one few (families/aligned: slots.h describes the order, assist.h the sharing).
 *
 * p = 4, m = 2, n = 4, b + w = f, 0-1 forward, a-b backward of micro-batches 0-1:
 *
 *   stage 0  00001111..a.a.a.a.bbbb
 *   stage 1  .00001111a.a.a.a.bbbb.
 *   stage 2  ..000011a1a1a.a.bbbb..
 *   stage 3  ...0000a1a1a1a1bbbb...
 *
 * Makespan (m + (p-1)/(nv))(f + b + w). Stage s holds min(nv + 2(p-1-s), mnv) slices of chunks, the
 * activations of 1 + 2(p-1-s)/(nv) micro-batches; 1F1B holds p - s.
 */
#include "policies/families/aligned/slots.h"
#include "policies/orders/onef1b.h"
#include "policies/refuse.h"

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    int ret = sp_refuse_word(lay, "exchange", "on", "off", why, n);

    return ret ? ret : sp_slots_check(lay, why, n);
}

const struct sp_schedule_def sp_schedule_slimpipe = {
    .abi = SP_SCHEDULE_ABI,
    .name = "slimpipe",
    .summary = "1F1B over slices of one length in step, which share their attention (exchange=off: "
               "without)",
    .source = "SlimPipe (Li et al. 2025)",
    .family = "aligned",
    .options = "exchange",
    .variants = "exchange=off",
    .default_chunks = 1,
    .check = check,
    .makespan = sp_1f1b_closed_form,
    .makespan_source = "(m + (p-1)/(nv))(f+b+w), all slots of the same length",
    .makespan_is = SP_EXACT,
};
