/* HelixPipe's tables 1 and 2, from what the kernels count, what layers keep and the list
 * simulation. */
#include "cli/reproduce/helixpipe.h"
#include "kernels/kernels.h"
#include "model/params.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A layer on which the terms are measured; the sizes cancel out, but for those of statistics. */
static int shape_of(struct sp_model *m, struct sp_shape *sh)
{
    int err = sp_model_load("gpt3-7b", m);

    if (!err)
        sp_shape_init(sh, m, 1, 65536, 1);
    return err;
}

/* ---- table 1 */

static const struct {
    const char *name;
    enum sp_role role;
} products[] = {
    {"qkv", SP_ROLE_QKV}, {"o", SP_ROLE_OUT}, {"linear1", SP_ROLE_UP}, {"linear2", SP_ROLE_DOWN}};
enum { PRODUCTS = sizeof products / sizeof *products };

/* Operations of a token in a product, of all of them for "layer", in h^2. */
static double product_flops(const struct sp_model *m, const char *part)
{
    double sum = 0;

    for (int i = 0; i < PRODUCTS; i++)
        if (!strcmp(part, products[i].name) || !strcmp(part, "layer"))
            sum += sp_product_flops(m, products[i].role);
    return sum / ((double)m->hidden * m->hidden);
}

int sp_helixpipe_table_1(struct sp_cell *c)
{
    const char *part = sp_cell_text(c, "part", ""), *pass = sp_cell_text(c, "pass", "F");
    struct sp_model m;
    struct sp_shape sh;
    struct sp_attention at;

    if (shape_of(&m, &sh))
        return -EINVAL;
    if (strcmp(sp_cell_text(c, "term", ""), "bhs^2")) {
        sp_cell_set(c, product_flops(&m, part));
        return 0;
    }
    at = (struct sp_attention){.batch = sh.batch,
                               .heads = m.heads,
                               .kv_heads = m.kv_heads,
                               .head_dim = m.head_dim,
                               .q_len = sh.seq};
    sp_cell_set(c, (*pass == 'F'   ? 1
                    : *pass == 'B' ? 2.5
                                   : 0) *
                       sp_flops_attention(&at) / ((double)sh.batch * m.hidden * sh.seq * sh.seq));
    if (*pass != 'W')
        sp_cell_note(c, "half of the scores are masked%s",
                     *pass == 'B' ? "; products of the forward once more" : "");
    return 0;
}

static double parameters(const struct sp_model *m, const char *part)
{
    const double h = m->hidden, norm = (double)sp_block_elements(m, SP_BLOCK_NORM1) / h;

    if (!strncmp(part, "norm", 4))
        return norm;
    return product_flops(m, part) / 2;
}

/* Numbers of a token that a part's backward reads, in h. */
static double kept_by_part(const struct sp_shape *sh, const char *part)
{
    const struct sp_post_saved post = sp_shape_post_view(sh, true, NULL);
    const double of = (double)sp_shape_elem(sh) * sh->rows * sh->model.hidden;
    const char *r = post.r, *u = post.u, *n2 = post.n2, *g = post.g;
    const char *end = (char *)post.stats + sp_shape_elem(sh) * sp_shape_post_saved(sh, true);
    int64_t stash[SP_STASH_TENSORS];
    double all = 0;

    sp_stash_of_layer(sh, SP_RECOMPUTE_NONE, true, false, stash);
    for (int i = 0; i < SP_STASH_TENSORS; i++)
        all += (double)stash[i];
    if (!strcmp(part, "norm1"))
        return (double)stash[SP_STASH_X] / of;
    if (!strcmp(part, "qkv"))
        return (double)stash[SP_STASH_PRE] / of;
    if (!strcmp(part, "attn"))
        return (double)(stash[SP_STASH_Q] + stash[SP_STASH_KV] + stash[SP_STASH_LSE]) / of;
    if (!strcmp(part, "o"))
        return (double)stash[SP_STASH_O] / of;
    if (!strcmp(part, "norm2"))
        return (double)(u - r) / of;
    if (!strcmp(part, "gelu"))
        return (double)(n2 - u) / of;
    if (!strcmp(part, "linear1"))
        return (double)(g - n2) / of;
    if (!strcmp(part, "linear2"))
        return (double)(end - g) / of;
    return all / of;
}

int sp_helixpipe_table_1_memory(struct sp_cell *c)
{
    const char *part = sp_cell_text(c, "part", ""), *term = sp_cell_text(c, "term", "");
    struct sp_model m;
    struct sp_shape sh;

    if (shape_of(&m, &sh))
        return -EINVAL;
    if (!strcmp(term, "bsh"))
        sp_cell_set(c, kept_by_part(&sh, part));
    else if (!strcmp(part, "layer") && !strcmp(term, "h"))
        sp_cell_set(c, 2 * parameters(&m, "norm1"));
    else
        sp_cell_set(c, parameters(&m, part));
    return 0;
}

/* ---- table 2 */

/* The makespan less the work of the busiest stage. */
int sp_helixpipe_table_2(struct sp_cell *c)
{
    const char *name = sp_cell_text(c, "schedule", "1f1b");
    bool again = !strcmp(sp_cell_text(c, "recompute", "none"), "no-attention");
    char schedule[64];
    struct sp_theory t = {.schedule = schedule,
                          .stages = sp_cell_int(c, "stages", 4),
                          .micro_batches = sp_cell_int(c, "micro_batches", 8),
                          .layers = sp_cell_int(c, "layers", 8),
                          .costs = SP_HELIXPIPE_COSTS,
                          .recompute = again ? SP_RECOMPUTE_NO_ATTENTION : SP_RECOMPUTE_NONE};
    struct sp_theory_result r;
    int err;

    snprintf(schedule, sizeof schedule, "%s%s", name,
             !strncmp(name, "helix", 5) ? ",tail=published" : "");
    err = sp_theory_run(&t, &r);
    if (!err)
        sp_cell_set(c, r.makespan - r.busy);
    return err;
}

/* ---- section 4.5: recomputation without attention */

/* The two-fold schedule's bubble with it over that without, and what its first stage keeps without
 * it over with. */
int sp_helixpipe_section_4(struct sp_cell *c)
{
    struct sp_theory t = {.schedule = "helix:fold=2,tail=published",
                          .stages = sp_cell_int(c, "stages", 8),
                          .micro_batches = sp_cell_int(c, "micro_batches", 16),
                          .layers = sp_cell_int(c, "layers", 32),
                          .costs = SP_HELIXPIPE_COSTS};
    struct sp_theory_result without, with;
    double bytes[2];
    struct sp_model m;
    struct sp_shape sh;
    int err = shape_of(&m, &sh);

    err = err ? err : sp_theory_activations(&t, &sh, 0, &bytes[0]);
    err = err ? err : sp_theory_run(&t, &without);
    t.recompute = SP_RECOMPUTE_NO_ATTENTION;
    err = err ? err : sp_theory_activations(&t, &sh, 0, &bytes[1]);
    err = err ? err : sp_theory_run(&t, &with);
    if (!err)
        sp_cell_set(c, strcmp(c->column, "bubble")
                           ? bytes[0] / bytes[1]
                           : (with.makespan - with.busy) / (without.makespan - without.busy));
    return err;
}
