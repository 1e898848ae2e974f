/* The messages of a simulated step, for pictures. */
#include "trace/gantt.h"
#include "plan/simulation/simulate.h"
#include <errno.h>
#include <stdlib.h>

int sp_gantt_add_messages(struct sp_gantt *g, const struct sp_plan *plan,
                          const struct sp_step_messages *messages,
                          const struct sp_message_times *when)
{
    int n, *order = sp_step_messages_by_reader(messages, plan, &n), ret = order ? 0 : -ENOMEM;

    for (int i = 0; !ret && i < n; i++) {
        const struct sp_step_message *m = &messages->message[order[i]];
        struct sp_gantt_message drawn = {.from = m->from,
                                         .to = m->to,
                                         .sent = when->sent[order[i]],
                                         .arrived = when->arrived[order[i]]};

        sp_step_message_print(plan, m, drawn.name);
        if (drawn.arrived > drawn.sent)
            ret = sp_gantt_add_message(g, &drawn);
    }
    free(order);
    return ret;
}
