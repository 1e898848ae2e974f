#include "cli/show/show.h"
#include "policies/lowering/traffic.h"
#include "sp_error.h"
#include <errno.h>
#include <stdlib.h>

enum { MOST_LINKS = 6 }; /* of a stage in text */

/* [stages][stages]; NULL after one line. */
static int64_t *links_of(const struct sp_show *show)
{
    size_t stages = (size_t)show->plan->layout.stages;
    int64_t *bytes = calloc(stages * stages, sizeof *bytes);

    if (bytes && !sp_plan_bytes_by_link(show->plan, show->shape, show->recompute.mode,
                                        show->recompute.every, bytes))
        return bytes;
    free(bytes);
    sp_error(ENOMEM, "show: no memory for the links of %zu stages", stages);
    return NULL;
}

static int largest(const int64_t *to, int stages)
{
    int most = 0;

    for (int k = 1; k < stages; k++)
        most = to[k] > to[most] ? k : most;
    return most;
}

int sp_show_links_text(const struct sp_show *show, FILE *out)
{
    int stages = show->plan->layout.stages;
    int64_t *bytes;

    if (!show->shape)
        return 0;
    bytes = links_of(show);
    if (!bytes)
        return -ENOMEM;
    fprintf(out, "\nstage   sends, MB   to stage: MB\n");
    for (int s = 0; s < stages; s++) {
        int64_t *to = bytes + s * stages, sum = 0;
        int links = 0;

        for (int k = 0; k < stages; k++) {
            sum += to[k];
            links += to[k] > 0;
        }
        fprintf(out, "%5d %11.3f ", s, (double)sum / 1e6);
        for (int i = 0; i < links && i < MOST_LINKS; i++) {
            int k = largest(to, stages);

            if (k == s)
                fprintf(out, "  itself: %.3f", (double)to[k] / 1e6);
            else
                fprintf(out, "  %d: %.3f", k, (double)to[k] / 1e6);
            to[k] = 0;
        }
        if (links > MOST_LINKS)
            fprintf(out, "  and %d more", links - MOST_LINKS);
        putc('\n', out);
    }
    free(bytes);
    return 0;
}

int sp_show_links_json(const struct sp_show *show, json_t *root)
{
    int stages = show->plan->layout.stages;
    int64_t *bytes = links_of(show);
    json_t *sent, *links;

    if (!bytes)
        return -ENOMEM;
    sent = json_array();
    links = json_array();
    for (int s = 0; s < stages; s++) {
        int64_t sum = 0;

        for (int k = 0; k < stages; k++) {
            int64_t to = bytes[s * stages + k];

            sum += to;
            if (to)
                json_array_append_new(links, json_pack("[i,i,I]", s, k, (json_int_t)to));
        }
        json_array_append_new(sent, json_integer(sum));
    }
    json_object_set_new(root, "bytes_sent", sent);
    json_object_set_new(root, "bytes_by_link", links);
    free(bytes);
    return 0;
}
