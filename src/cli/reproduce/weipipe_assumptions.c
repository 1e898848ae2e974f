/*
 * WeiPipe: what becomes of tables 2 to 4 where one of the assumptions (weipipe.h) is another: rows
 * in which the same system is the fastest, how far 1F1B's and zero-bubble's cells of tables 2 and 3
 * are off, and the rates of one length.
 */
#include "cli/reproduce/weipipe.h"
#include <math.h>
#include <string.h>

static const struct variant {
    const char *name;
    struct sp_weipipe_assumptions assumed;
} variants[] = {
    {"as assumed", {.vocabulary = 1024, .unfused = 10}},
    {"a vocabulary of 32000", {.vocabulary = 32000, .unfused = 10}},
    {"kernels that move 5 times our bytes", {.vocabulary = 1024, .unfused = 5}},
    {"starpipe's ring", {.vocabulary = 1024, .unfused = 10, .own_ring = true}},
    {"messages that do not block", {.vocabulary = 1024, .unfused = 10, .buffered = true}},
    {"ZB waits twice for a message", {.vocabulary = 1024, .unfused = 10, .waits = 2}},
};

static bool is_rate(const struct sp_cell *c)
{
    return !sp_cell_is_claim(c) && !strcmp(c->what, "throughput") && !strncmp(c->id, "table", 5);
}

struct tally {
    int rows, same;
    int zero_bubble;    /* cells of tables 2 and 3 that run, in the paper and here */
    double least, most; /* by how much these are too fast, in per cent */
};

static int rate_of(const struct sp_cell *c, const struct variant *variant, double *rate)
{
    struct sp_weipipe_setting setting = sp_weipipe_setting_of(c);
    int err;

    setting.assumed = variant->assumed;
    err = sp_weipipe_rate(&setting, sp_cell_text(c, "schedule", "1f1b"), rate);
    *rate /= strncmp(c->unit, "kilo", 4) ? 1 : 1000;
    return err;
}

/* The cells of a row, which stand beside each other. */
static int add_row(const struct sp_cell *cells, int n, const struct variant *variant,
                   struct tally *tally)
{
    int published = 0, simulated = 0;
    double best = -1;

    for (int i = 0; i < n; i++) {
        const char *schedule = sp_cell_text(&cells[i], "schedule", "");
        double rate, off;
        int err = rate_of(&cells[i], variant, &rate);

        if (err)
            return err;
        if (sp_value_worth(cells[i].published) > sp_value_worth(cells[published].published))
            published = i;
        if (rate > best) {
            best = rate;
            simulated = i;
        }
        if (strncmp(schedule, "zb", 2) || !strcmp(cells[i].id, "table4") || rate == 0 ||
            cells[i].published.kind != SP_VALUE_NUMBER)
            continue;
        off = 100 * (rate / cells[i].published.number - 1);
        tally->least = tally->zero_bubble ? fmin(tally->least, off) : off;
        tally->most = tally->zero_bubble ? fmax(tally->most, off) : off;
        tally->zero_bubble++;
    }
    tally->rows++;
    tally->same += published == simulated;
    return 0;
}

static int tally_of(const struct sp_paper *paper, const struct variant *variant,
                    struct tally *tally)
{
    int err = 0;

    *tally = (struct tally){0};
    for (int i = 0, n; !err && i < paper->n; i += n) {
        n = sp_paper_row(paper, i);
        err = is_rate(&paper->cells[i]) ? add_row(&paper->cells[i], n, variant, tally) : 0;
    }
    return err;
}

/* Tokens a second and GPU of table 2 with 4k tokens. */
static int rates(struct sp_unpublished *out)
{
    static const struct {
        const char *column, *schedule;
        bool buffered;
    } columns[] = {{"1F1B, messages block", "1f1b", false},
                   {"1F1B, they do not", "1f1b", true},
                   {"WeiPipe", "weipipe", false}};
    int n = 0;

    for (int i = 0; i < SP_WEIPIPE_ROWS; i += 3)
        for (int k = 0; k < 3; k++) {
            struct sp_weipipe_setting setting = sp_weipipe_row(i);
            double rate;
            int err;

            setting.assumed.buffered = columns[k].buffered;
            err = sp_weipipe_rate(&setting, columns[k].schedule, &rate);
            if (err)
                return err;
            out[n++] = (struct sp_unpublished){"blocking", setting.model, columns[k].column,
                                               "tokens/s/GPU of table 2 with 4k tokens", rate};
        }
    return n;
}

int sp_weipipe_vary(const struct sp_paper *paper, struct sp_unpublished *out)
{
    static const char id[] = "assumptions";
    int n = 0, more;

    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        struct tally tally;
        int err = tally_of(paper, &variants[i], &tally);

        if (err)
            return err;
        out[n++] = (struct sp_unpublished){id, variants[i].name, "the same system fastest",
                                           "rows of tables 2 to 4", tally.same};
        out[n++] = (struct sp_unpublished){id, variants[i].name, "of", "rows of tables 2 to 4",
                                           tally.rows};
        out[n++] = (struct sp_unpublished){id, variants[i].name, "ZB too fast by, least",
                                           "% in tables 2 and 3", tally.least};
        out[n++] = (struct sp_unpublished){id, variants[i].name, "ZB too fast by, most",
                                           "% in tables 2 and 3", tally.most};
    }
    more = rates(out + n);
    return more < 0 ? more : n + more;
}
