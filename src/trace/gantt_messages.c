/* What a simulated step sends, for pictures. */
#include "plan/predict.h"
#include "trace/gantt.h"
#include <errno.h>
#include <stdlib.h>

/* Bars are the ops of the plan in order. */
static void set_exchanges(struct sp_gantt *g, const struct sp_plan *plan,
                          const struct sp_prediction *p)
{
    struct sp_bar *bar = g->bars;

    for (int s = 0; s < plan->layout.stages; s++)
        for (int k = 0; k < plan->programs[s].n; k++, bar++)
            bar->exchange = sp_prediction_exchange(plan, p, s, &plan->programs[s].ops[k]);
}

int sp_gantt_add_messages(struct sp_gantt *g, const struct sp_plan *plan,
                          const struct sp_prediction *prediction)
{
    const struct sp_step_messages *messages = &prediction->messages;
    const struct sp_message_times *when = &prediction->when;
    int n, *order = sp_step_messages_by_reader(messages, plan, &n), ret = order ? 0 : -ENOMEM;

    set_exchanges(g, plan, prediction);
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
