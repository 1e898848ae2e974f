/* Queries on the messages of a step: their order by readers, their words, their share. */
#include "plan/simulation/step_messages.h"
#include <stdlib.h>

/* The place of a message in the order of readers: each stage's ops in turn, then messages without
 * one. */
static int place_of(const struct sp_step_messages *messages, const struct sp_step_message *m)
{
    return m->reader >= 0 ? messages->first_op[m->to] + m->reader + m->to
                          : messages->first_op[m->to + 1] + m->to;
}

int *sp_step_messages_by_reader(const struct sp_step_messages *messages, const struct sp_plan *plan,
                                int *n)
{
    int stages = plan->layout.stages, places = messages->first_op[stages] + stages;
    int *order = malloc((size_t)(messages->n + 1) * sizeof *order);
    int *first = calloc((size_t)places + 1, sizeof *first);

    *n = 0;
    if (!order || !first) {
        free(order);
        free(first);
        return NULL;
    }
    for (int i = 0; i < messages->n; i++)
        if (sp_step_message_is_sent(&messages->message[i]))
            first[place_of(messages, &messages->message[i]) + 1]++;
    for (int k = 0; k < places; k++)
        first[k + 1] += first[k];
    *n = first[places];
    for (int i = 0; i < messages->n; i++)
        if (sp_step_message_is_sent(&messages->message[i]))
            order[first[place_of(messages, &messages->message[i])]++] = i;
    free(first);
    return order;
}

char *sp_step_message_print(const struct sp_plan *plan, const struct sp_step_message *m,
                            char text[SP_TENSOR_TEXT])
{
    if (m->writer < 0)
        return sp_tensor_print(plan, &m->tensor, text);
    return sp_op_print(&plan->programs[m->writer_stage].ops[m->writer], plan->layout.slices > 1,
                       text);
}

double sp_step_message_share(const struct sp_plan *plan, const struct sp_step_message *m)
{
    const struct sp_family *family = plan->family;
    const struct sp_op *op;

    if (m->writer < 0 || !sp_step_message_is_sent(m))
        return 1;
    op = &plan->programs[m->writer_stage].ops[m->writer];
    return family->size ? family->size(&plan->layout, op) : 1;
}
