#include "cli/reproduce/ring.h"

static bool is_weight(const struct sp_step_message *m)
{
    return m->tensor.kind == SP_TENSOR_W || m->tensor.kind == SP_TENSOR_WB;
}

/* True if an op read the tensor on its previous hop too. */
static bool was_read(const struct sp_step_messages *all, const struct sp_step_message *m)
{
    return m->before >= 0 && all->message[m->before].reader >= 0;
}

/* The last weight that the stage gets for the first time and reads before it reads `m`; -1:
 * none. */
static int wanted_before(const struct sp_step_messages *all, const struct sp_step_message *m)
{
    int last = -1;

    for (int i = 0; i < all->n; i++) {
        const struct sp_step_message *e = &all->message[i];

        if (e->to == m->to && is_weight(e) && !was_read(all, e) && e->writer < 0 &&
            e->reader >= 0 && e->reader < m->reader &&
            (last < 0 || e->reader > all->message[last].reader))
            last = i;
    }
    return last;
}

/* Makes the lists by writer and by previous message again. */
static void link(const struct sp_plan *plan, struct sp_step_messages *all)
{
    for (int i = 0; i < all->first_op[plan->layout.stages]; i++)
        all->first_of_writer[i] = -1;
    for (int i = 0; i < all->n; i++)
        all->first_of_before[i] = -1;
    for (int i = all->n - 1; i >= 0; i--) {
        struct sp_step_message *m = &all->message[i];

        if (m->writer >= 0) {
            int *first = &all->first_of_writer[all->first_op[m->writer_stage] + m->writer];

            m->next_of_writer = *first;
            *first = i;
        }
        if (m->before >= 0) {
            m->next_of_before = all->first_of_before[m->before];
            all->first_of_before[m->before] = i;
        }
    }
}

void sp_ring_as_published(const struct sp_plan *plan, struct sp_step_messages *all)
{
    int *before = all->first_of_before; /* link() makes it again at the end */

    for (int i = 0; i < all->n; i++) {
        const struct sp_step_message *m = &all->message[i];
        bool first = is_weight(m) && m->reader >= 0 && m->writer < 0 && !was_read(all, m);

        before[i] = !first                           ? m->before
                    : m->tensor.kind == SP_TENSOR_WB ? wanted_before(all, m)
                                                     : -1;
    }
    for (int i = all->n - 1; i >= 0; i--) { /* `before` of earlier messages is not changed yet */
        struct sp_step_message *m = &all->message[i];

        if (m->reader < 0 ||
            (m->tensor.kind == SP_TENSOR_D && m->writer < 0)) /* only passes through; is 0 */
            m->bytes = 0;
        if (is_weight(m) && m->writer < 0 && m->reader >= 0 && was_read(all, m)) {
            m->writer = all->message[m->before].reader;
            m->writer_stage = m->from;
            m->beside = true;
        }
    }
    for (int i = 0; i < all->n; i++)
        all->message[i].before = before[i];
    link(plan, all);
}
