#include "trace/analysis/findings.h"
#include <math.h>

int sp_long_waits(const struct sp_waits *w, struct sp_long_wait longest[SP_LONG_WAITS])
{
    int n = 0;

    for (int s = 0; s < w->t->stages; s++) {
        double end = 0;

        for (int k = w->first_unit[s]; k < w->first_unit[s + 1]; k++) {
            const struct sp_unit_of_step *u = &w->unit[k];

            for (int i = 0; i < SP_STEP_PARTS; i++) {
                struct sp_long_wait wait = {u->op, (enum sp_part_of_step)i, u->before[i], end,
                                            u->producer};
                int at = n;

                if (wait.time <= 0)
                    continue;
                for (; at > 0 && longest[at - 1].time < wait.time; at--)
                    if (at < SP_LONG_WAITS)
                        longest[at] = longest[at - 1];
                if (at < SP_LONG_WAITS)
                    longest[at] = wait;
                n += n < SP_LONG_WAITS;
            }
            end = fmax(end, u->end);
        }
    }
    return n;
}
