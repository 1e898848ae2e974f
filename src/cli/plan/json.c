/*
 * As JSON, one object: model, hardware, nodes, dtype (or both), seq, sequences (of a step),
 * complete (false: the search was ended early), and layouts[], in the order of the table:
 *   command              that trains with it
 *   trains               whether train runs it; otherwise it is simulated only
 *   fits                 into the memory of devices and nodes
 *   schedule, stages, devices (of a stage), tensor_parallel, context_parallel (whose product they
 *   are), data_parallel (pipelines), zero, processes (of all)
 *   micro_batches, micro_batch_size, chunks, slices, recompute, offload, vocabulary_parallel,
 *   dtype, partition
 *   step_ms, tokens_per_s (of a device), bubble_ratio, stall_ms, memory_bytes (of the fullest
 *   device), host_bytes (of the fullest node, of what left)
 */
#include "cli/print.h"
#include "cli/plan/ranking.h"
#include "sp_error.h"
#include "sp_figure.h"
#include "sp_utf8.h"
#include <errno.h>
#include <stdlib.h>

static json_t *json_of(const struct sp_ranking *r, const struct sp_found *f)
{
    char *command = sp_ranking_command(r, f), recompute[SP_RECOMPUTE_TEXT];
    json_t *one;

    if (!command)
        return NULL;
    one = json_pack("{s:o,s:b,s:b,s:o,s:i,s:i,s:i,s:i,s:i,s:i,s:s,s:s}", "command",
                    sp_utf8_json(command), "trains", f->trains, "fits", f->fits, "schedule",
                    sp_utf8_json(f->schedule), "stages", f->stages, "devices",
                    f->devices * f->context, "micro_batches", f->micro_batches, "micro_batch_size",
                    f->batch, "chunks", f->chunks, "slices", f->slices, "recompute",
                    sp_found_recompute(f, recompute), "offload", sp_offload_name(f->offload));
    free(command);
    json_object_update_new(one, json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:b,s:s}", "dtype",
                                          sp_dtype_name(f->dtype), "tensor_parallel", f->devices,
                                          "context_parallel", f->context, "data_parallel", f->data,
                                          "zero", f->zero, "processes", sp_found_processes(f),
                                          "vocabulary_parallel", f->vocabulary, "partition",
                                          f->balanced ? f->layers : "even"));
    json_object_update_new(
        one, json_pack("{s:f,s:f,s:f,s:f,s:I,s:I}", "step_ms", f->step_ms, "tokens_per_s",
                       f->tokens_per_s, "bubble_ratio", sp_figure(f->bubble, SP_FIGURE_ALL),
                       "stall_ms", sp_figure(f->stall_ms, SP_FIGURE_ALL), "memory_bytes",
                       (json_int_t)f->memory, "host_bytes", (json_int_t)f->host));
    return one;
}

int sp_ranking_json(const struct sp_ranking *r, FILE *out)
{
    const struct sp_search *want = r->want;
    json_t *list = json_array(), *root;
    bool lost = !list;

    for (int i = 0; i < r->rows && !lost; i++)
        lost = json_array_append_new(list, json_of(r, &r->all[r->row[i]])) != 0;
    root = json_pack("{s:o,s:o,s:i,s:s,s:i,s:i,s:b,s:o}", "model", sp_utf8_json(r->names.model),
                     "hardware", sp_utf8_json(want->machine->name), "nodes", want->nodes, "dtype",
                     want->any_dtype ? "both" : sp_dtype_name(want->dtype), "seq", want->seq,
                     "sequences", want->sequences, "complete", !r->stopped, "layouts", list);
    if (lost || !root) {
        json_decref(root);
        return sp_error(ENOMEM, "plan: no memory for the layouts of %s", r->names.model);
    }
    sp_json_print(root, 0, out);
    return 0;
}
