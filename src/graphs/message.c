#include "graphs/message.h"
#include <stdlib.h>

static void keep(struct sp_stage *st, starpu_data_handle_t handle, int until)
{
    if (st->n_sent == st->cap_sent) {
        int cap = st->cap_sent ? 2 * st->cap_sent : 16;
        struct sp_sent *more = realloc(st->sent, (size_t)cap * sizeof *more);

        STARPU_ASSERT_MSG(more, "starpipe: no memory for %d messages", cap);
        st->sent = more;
        st->cap_sent = cap;
    }
    st->sent[st->n_sent++] = (struct sp_sent){handle, until};
}

void sp_message_send_block(struct sp_graph *g, struct sp_stage *st, starpu_data_handle_t handle,
                           int to, int64_t tag)
{
    st->bytes_sent[g->turn] += starpu_data_get_size(handle);
    sp_transport_send(handle, sp_stage_rank(&g->place, to), tag);
}

void sp_message_send(struct sp_graph *g, struct sp_stage *st, starpu_data_handle_t handle, int to,
                     int64_t tag, int until)
{
    sp_message_send_block(g, st, handle, to, tag);
    keep(st, handle, until);
}

static void arrived(void *arg)
{
    double now = sp_now_us();

    __atomic_store((double *)arg, &now, __ATOMIC_RELAXED);
}

void sp_message_receive(struct sp_graph *g, const struct sp_lane *lane, starpu_data_handle_t handle,
                        int from, int64_t tag)
{
    struct sp_meter *meter = lane->meter;
    bool known = meter && lane->op_index >= 0 && lane->op_index < meter->n_ops;

    sp_transport_recv(handle, sp_stage_rank(&g->place, from), tag, known ? arrived : NULL,
                      known ? &meter->ops[lane->op_index].arrived_us : NULL);
}

void sp_message_release(struct sp_graph *g, int now)
{
    for (int k = 0; k < g->place.n_local; k++) {
        struct sp_stage *st = &g->stages[k];
        int kept = 0;

        for (int i = 0; i < st->n_sent; i++) {
            if (st->sent[i].until < now)
                sp_pool_put(st->sent[i].handle);
            else
                st->sent[kept++] = st->sent[i];
        }
        st->n_sent = kept;
    }
}
