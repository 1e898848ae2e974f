/*
 * The JSON form, one object:
 *   schedule, stages, micro_batches, chunks, slices, layers (0: unknown)
 *   stage_map[rank][chunk]   global stage; of parts of layers, the blocks of a rank; where
 *                            weights travel, the chunk that is its own; sharded, all
 *   ranks[rank][k]           ops in issue order, "F3.0"
 *   times[rank][k]           [start, end] of ranks[rank][k]
 *   makespan, bubble_ratio   idle of all ranks / (ranks x makespan)
 *   span[rank], idle[rank]   last end - first start; makespan - busy
 *   peak_live[rank]          most (micro-batch, chunk) activations alive at once
 *   peak_micro_batches[rank] the same in micro-batches on a whole stage, of which a chunk or slice
 *                            is a part
 *   multiplex[stage]         {left, steady, right: slices; left_stages, ...: who computes them};
 *                            only with the flag multiplex, where an op names the global stage as
 *                            its chunk, and a part of its slices, counted over all of them, as its
 *                            slice
 *   slice_tokens[slice]      tokens of each; only with --partition-slices
 *   overlap[rank]            [k, k+1] of ops that are one unit; only where there are any
 *   buffers                  messages that may wait on a channel at once; 0: sends may block
 *   strict_makespan          of the order in which no op overtakes another; only with --scheduler
 *                            ready, of which all else is
 *   formula                  makespan, source, claim ("exact", "lower bound", "upper bound",
 *                            "approximate"): the published one, without communication; only where
 *                            there is one for the layout
 *   messages                 [from, to, op, sent, arrives] of every message between stages, in the
 *                            order of the receivers' programs; op is the producer, or the tensor
 *                            where that goes on as it came
 *   actions[rank]            [kind, op or tensor, peer or group or null, bytes or null] in the
 *                            order of submission, with a process a stage; only with --actions
 *   step_ms                  makespan, messages that come after it, and the update; times are in
 *                            milliseconds then; only with --model and without --cost
 *   bytes_sent[rank]         payload of one optimizer step, with a process a stage; only with
 *                            --model
 *   bytes_by_link            [from, to, bytes] of the same, by who receives it; of from = to what
 *                            the devices of a stage, or its pipelines, send each other
 *   memory_bytes[rank]       {parameters: weights and gradients, optimizer: two moments,
 *                            activations, workspace, total}; only with --model
 *   tiers[rank]              {kept_bytes, recomputed_bytes, parked_bytes: on other stages,
 *                            evicted_bytes}: where activations of a step wait for their backwards;
 *                            only with --offload or --offload-peers
 */
#include "policies/families/multiplexed/multiplex.h"
#include "cli/print.h"
#include "cli/show/show.h"
#include "policies/families/ownership.h"
#include "sp_error.h"
#include "sp_utf8.h"
#include <stdlib.h>

static json_t *stage_map_json(const struct sp_plan *plan)
{
    json_t *map = json_array();

    for (int s = 0; s < plan->layout.stages; s++) {
        json_t *owned = json_array();

        for (int i = 0, at; (at = sp_stage_owned(plan, s, i)) >= 0; i++)
            json_array_append_new(owned, json_integer(at));
        json_array_append_new(map, owned);
    }
    return map;
}

static json_t *overlap_json(const struct sp_plan *plan)
{
    json_t *all = json_array();

    for (int s = 0; s < plan->layout.stages; s++) {
        json_t *pairs = json_array();

        for (int k = 0; k + 1 < plan->programs[s].n; k++) {
            if (plan->programs[s].ops[k].overlap)
                json_array_append_new(pairs, json_pack("[i,i]", k, k + 1));
        }
        json_array_append_new(all, pairs);
    }
    return all;
}

static void add_formula(const struct sp_show *show, json_t *root)
{
    struct sp_show_formula f;

    if (sp_show_formula(show, &f))
        json_object_set_new(root, "formula",
                            json_pack("{s:f,s:s,s:s}", "makespan", f.makespan, "source", f.source,
                                      "claim", f.claim));
}

static json_t *messages_json(const struct sp_show *show)
{
    int n, *order = sp_step_messages_by_reader(&show->prediction->messages, show->plan, &n);
    json_t *list = order ? json_array() : NULL;

    for (int i = 0; list && i < n; i++) {
        const struct sp_step_message *m = &show->prediction->messages.message[order[i]];
        char name[SP_TENSOR_TEXT];

        json_array_append_new(list, json_pack("[i,i,s,f,f]", m->from, m->to,
                                              sp_step_message_print(show->plan, m, name),
                                              show->prediction->when.sent[order[i]],
                                              show->prediction->when.arrived[order[i]]));
    }
    free(order);
    return list;
}

static json_t *integers(const int *v, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(v[i]));
    return list;
}

static json_t *peaks_json(const struct sp_show *show)
{
    const struct sp_plan *plan = show->plan;
    double share = sp_activation_share(plan->family, &plan->layout);
    json_t *list = json_array();

    for (int s = 0; s < plan->layout.stages; s++)
        json_array_append_new(list, json_real(show->prediction->times.peak_live[s] * share));
    return list;
}

int sp_show_json(const struct sp_show *show, FILE *out)
{
    const struct sp_layout *lay = &show->plan->layout;
    const struct sp_times *t = &show->prediction->times;
    json_t *root = json_pack("{s:o,s:i,s:i,s:i,s:i,s:i}", "schedule", sp_utf8_json(show->schedule),
                             "stages", lay->stages, "micro_batches", lay->micro_batches, "chunks",
                             lay->chunks, "slices", lay->slices, "layers", lay->layers);
    json_t *tokens = NULL;
    int ret = 0;

    if (!root)
        return sp_error(ENOMEM, "show: no memory for schedule %s", show->schedule);
    json_object_set_new(root, "stage_map", stage_map_json(show->plan));
    sp_json_add_programs(show->plan, t, root);
    json_object_set_new(root, "makespan", json_real(t->makespan));
    json_object_set_new(root, "span", sp_json_reals(t->span, lay->stages));
    json_object_set_new(root, "idle", sp_json_reals(t->idle, lay->stages));
    json_object_set_new(root, "bubble_ratio", json_real(t->bubble_ratio));
    json_object_set_new(root, "peak_live", integers(t->peak_live, lay->stages));
    json_object_set_new(root, "peak_micro_batches", peaks_json(show));
    if (show->plan->first_token)
        json_object_set_new(root, "slice_tokens", tokens = json_array());
    for (int k = 0; tokens && k < lay->slices; k++) {
        int first, len;

        sp_plan_slice_tokens(show->plan, 0, k, &first, &len);
        json_array_append_new(tokens, json_integer(len));
    }
    if (sp_is_multiplexed(lay))
        json_object_set_new(root, "multiplex", sp_show_multiplex_json(show));
    if (show->plan->paired)
        json_object_set_new(root, "overlap", overlap_json(show->plan));
    json_object_set_new(root, "buffers", json_integer(show->buffers));
    add_formula(show, root);
    if (show->execution && show->execution->ready)
        json_object_set_new(root, "strict_makespan", json_real(show->strict_makespan));
    if (show->machine)
        json_object_set_new(root, "step_ms", json_real(show->prediction->step_ms));
    if (show->offload || show->plan->parking)
        json_object_set_new(root, "tiers", sp_show_tiers_json(show));
    if (show->offload)
        json_object_set_new(root, "offload", sp_show_offload_json(show));
    if (json_object_set_new(root, "messages", messages_json(show)))
        ret = sp_error(ENOMEM, "show: no memory for the messages of %d stages", lay->stages);
    ret = ret || !show->shape ? ret : sp_show_links_json(show, root);
    ret = ret || !show->shape ? ret : sp_show_memory_json(show, root);
    ret = ret || !show->actions ? ret : sp_show_actions_json(show, root);
    if (ret)
        json_decref(root);
    else
        sp_json_print(root, 0, out);
    return ret;
}
