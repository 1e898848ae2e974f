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

/* Tensors that a stage evicts and fetches again; what only visits (keys of earlier slices) was not evicted. */
static int add_away(struct sp_gantt *g, const struct sp_step_messages *messages,
                    const struct sp_message_times *when)
{
    int ret = 0;

    for (int i = 0; !ret && i < messages->n; i++) {
        const struct sp_step_message *m = &messages->message[i];

        if (m->kind == SP_ACTION_FETCH && m->before >= 0)
            ret =
                sp_gantt_add_evicted(g, &(struct sp_gantt_evicted){.stage = m->to,
                                                                   .from = when->arrived[m->before],
                                                                   .until = when->arrived[i],
                                                                   .bytes = m->bytes});
    }
    return ret;
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
    return ret ? ret : add_away(g, messages, when);
}
