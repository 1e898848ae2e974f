/*
 * The claims of HelixPipe's text about its figures, and figure 8's grid: two clusters, three
 * models, three pipelines, four lengths and four systems, each played once.
 */
#include "cli/reproduce/helixpipe.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MACHINES = 2,
    MODELS = 3,
    SIZES = 3,
    LENGTHS = 4,
    SYSTEMS = SP_HELIXPIPE_SYSTEMS,
    H20 = 0,
    A800 = 1,
    HELIX = SP_HELIXPIPE_BASELINES
};

static const char *const machines[] = {"h20-ib", "a800-ib"};
static const char *const models[] = {"gpt3-1.3b", "gpt3-3b", "gpt3-7b"};
static const int sizes[] = {2, 4, 8};
static const int lengths[] = {32768, 65536, 98304, 131072};

/* Throughput by the arrays above; 0: it does not fit. */
static double rates[MACHINES][MODELS][SIZES][LENGTHS][SYSTEMS];
static bool played;

#define EACH_SETTING                                                                               \
    for (int a = 0; a < MACHINES; a++)                                                             \
        for (int m = 0; m < MODELS; m++)                                                           \
            for (int p = 0; p < SIZES; p++)                                                        \
                for (int s = 0; s < LENGTHS; s++)

static int play_grid(void)
{
    if (played)
        return 0;
    EACH_SETTING
    {
        const struct sp_helixpipe_setting setting = {machines[a], models[m], lengths[s], sizes[p],
                                                     0};
        int err = sp_helixpipe_rates(&setting, rates[a][m][p][s]);

        if (err)
            return err;
    }
    played = true;
    return 0;
}

static double speedup(int a, int m, int p, int s)
{
    return sp_helixpipe_speedup(rates[a][m][p][s]);
}

int sp_helixpipe_figure_8(struct sp_unpublished *out)
{
    static const char *const columns[] = {"32k", "64k", "96k", "128k"};
    static char rows[MACHINES][MODELS][SIZES][40];
    int n = 0, err = play_grid();

    if (err)
        return err;
    EACH_SETTING
    {
        snprintf(rows[a][m][p], sizeof rows[a][m][p], "%s, %s, %d stages", machines[a], models[m],
                 sizes[p]);
        if (!isnan(speedup(a, m, p, s)))
            out[n++] = (struct sp_unpublished){"figure8", rows[a][m][p], columns[s],
                                               "% over the best baseline", speedup(a, m, p, s)};
    }
    return n;
}

/* Figure 8 on A800 with attention at other parts of the peak, which is 312 TFLOP/s. */
int sp_helixpipe_vary(const struct sp_paper *paper, struct sp_unpublished *out)
{
    static const struct {
        const char *row;
        double part;
    } rows[] = {{"attention at 0.36 of the peak", 0.36}, {"attention at 0.72 of the peak", 0.72}};
    static const char *const columns[] = {"1.3B", "3B", "7B"};
    const struct sp_machine *machine = sp_machine_named(machines[A800]);
    const struct sp_curve *curve;
    double most = 0;
    int n = 0;

    (void)paper;
    if (!machine)
        return -EINVAL;
    curve = &machine->rates.attention[SP_BF16][SP_ATTENTION_FORWARD];
    for (int i = 0; i < curve->n; i++)
        most = fmax(most, curve->at[i].rate);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int m = 0; m < MODELS; m++) {
            const struct sp_helixpipe_setting setting = {machines[A800], models[m], 131072, 8,
                                                         rows[i].part * 312e12 / most};
            double of[SYSTEMS];
            int err = sp_helixpipe_rates(&setting, of);

            if (err)
                return err;
            out[n++] =
                (struct sp_unpublished){"assumptions", rows[i].row, columns[m],
                                        "% over the best baseline, A800", sp_helixpipe_speedup(of)};
        }
    return n;
}

/* A claim about so many settings: it holds where all are so. */
struct count {
    int right, all;
};

static void add_to(struct count *n, bool right)
{
    n->right += right;
    n->all++;
}

static int set_count(struct sp_cell *c, const struct count *n, const char *of)
{
    sp_cell_holds(c, n->all > 0 && n->right == n->all, "in %d of %d %s", n->right, n->all, of);
    return 0;
}

/* ---- figure 8 */

/* "Comparable": no more than 5 % behind. */
static void comparable(struct count *n)
{
    EACH_SETTING
    if ((p < SIZES - 1 || s < LENGTHS - 1) && !isnan(speedup(a, m, p, s)))
        add_to(n, speedup(a, m, p, s) >= -5);
}

static void gains_with_length(struct count *n)
{
    EACH_SETTING
    if (s > 0 && !isnan(speedup(a, m, p, s)) && !isnan(speedup(a, m, p, s - 1)))
        add_to(n, speedup(a, m, p, s) > speedup(a, m, p, s - 1));
}

/* From the shortest to the longest, all three models go the same way. */
static void alike_for_models(struct count *n)
{
    for (int a = 0; a < MACHINES; a++)
        for (int p = 0; p < SIZES; p++) {
            int up = 0;

            for (int m = 0; m < MODELS; m++)
                up += speedup(a, m, p, LENGTHS - 1) > speedup(a, m, p, 0);
            add_to(n, up == 0 || up == MODELS);
        }
}

static void gains_but_for_short_a800(struct count *n)
{
    EACH_SETTING
    if (!isnan(speedup(a, m, p, s)))
        add_to(n, a == A800 && s == 0 ? speedup(a, m, p, s) <= 0 : speedup(a, m, p, s) > 0);
}

static void less_on_a800(struct count *n)
{
    EACH_SETTING
    if (a == A800 && !isnan(speedup(a, m, p, s)) && !isnan(speedup(H20, m, p, s)))
        add_to(n, speedup(a, m, p, s) < speedup(H20, m, p, s));
}

static void best_is_1f1b(struct count *n)
{
    for (int m = 0; m < MODELS; m++)
        for (int p = 0; p < SIZES; p++) {
            const double *rate = rates[A800][m][p][0];

            add_to(n, rate[0] >= fmax(rate[1], fmax(rate[2], rate[HELIX])));
        }
}

/* In settings in which both fit. */
static void adapipe_is_no_faster(struct count *n)
{
    EACH_SETTING
    if (rates[a][m][p][s][0] > 0 && rates[a][m][p][s][2] > 0)
        add_to(n, rates[a][m][p][s][2] <= rates[a][m][p][s][0] * (1 + 1e-9));
}

/* Claims about figure 8, by their tests: what each counts in the grid, and of what. */
static const struct {
    const char *test;
    void (*count)(struct count *n);
    const char *of;
} grid_claims[] = {
    {"comparable", comparable, "settings with fewer stages or tokens, at most 5 % behind"},
    {"gains-with-length", gains_with_length, "steps to the next length"},
    {"alike-for-models", alike_for_models, "clusters and pipelines"},
    {"gains-but-for-short-a800", gains_but_for_short_a800, "settings"},
    {"less-on-a800", less_on_a800, "settings"},
    {"best-is-1f1b", best_is_1f1b, "settings"},
    {"adapipe-is-no-faster", adapipe_is_no_faster, "settings in which both fit"},
};

static int grid_claim(struct sp_cell *c)
{
    struct count n = {0};
    int i = 0, err = play_grid();

    if (err)
        return err;
    while (strcmp(grid_claims[i].test, c->test))
        i++;
    grid_claims[i].count(&n);
    return set_count(c, &n, grid_claims[i].of);
}

/* ---- figures 3, 4 and 6 */

/* Attention has more than a half of both passes of a layer; the rest is "marginal" where it has less
 * than a quarter. */
static int attention_claim(struct sp_cell *c)
{
    bool dominates = !strcmp(c->test, "attention-dominates");
    double share[SP_HELIXPIPE_PARTS], forward, backward;
    int err = sp_helixpipe_shares(sp_cell_int(c, "seq", 131072), share);

    if (err)
        return err;
    forward = dominates ? share[1] : share[0] + share[2];
    backward = dominates ? share[4] : share[3] + share[5];
    sp_cell_holds(c,
                  dominates ? forward > 0.5 && backward > 0.5 : forward < 0.25 && backward < 0.25,
                  "%.0f %% of the forward and %.0f %% of the backward with 128k", 100 * forward,
                  100 * backward);
    return 0;
}

static int memory_is_spare(struct sp_cell *c)
{
    double bytes = 0, bsh = 0;
    int err = sp_helixpipe_activations(c, "gpt-13b", "1f1b", &bytes, &bsh);

    bytes /= sp_cell_int(c, "devices_per_stage", 8);
    sp_cell_holds(c, bytes < 40e9, "the last stage keeps %.1f GB of 80", bytes / 1e9);
    return err;
}

/* Messages as long as a pre-attention add this part to the makespan. */
static int added_by_messages(int fold, double *part)
{
    struct sp_theory t = {.schedule = fold == 1 ? "helix:fold=1,tail=published"
                                                : "helix:fold=2,tail=published",
                          .stages = 8,
                          .micro_batches = 16,
                          .layers = 32,
                          .costs = SP_HELIXPIPE_COSTS};
    struct sp_theory_result none, some;
    int err = sp_theory_run(&t, &none);

    t.comm = 1;
    err = err ? err : sp_theory_run(&t, &some);
    if (!err)
        *part = some.makespan / none.makespan - 1;
    return err;
}

/* The naive schedule waits for them, the two-fold one hides them. */
static int messages_claim(struct sp_cell *c)
{
    bool naive = !strcmp(c->test, "naive-waits");
    double part = 0;
    int err = added_by_messages(naive ? 1 : 2, &part);

    sp_cell_holds(c, naive ? part > 0.1 : part < 0.01,
                  "p=8, m=16, L=32: messages of one unit add %.1f %%", 100 * part);
    return err;
}

/* ---- figure 10 */

enum { STAGES = 8 };

struct peaks {
    double of[SYSTEMS][STAGES];
};

static int peaks_on(const char *machine, struct peaks *peaks)
{
    const struct sp_helixpipe_setting setting = {machine, "gpt3-3b", 131072, STAGES, 0};
    int err = 0;

    for (int i = 0; !err && i < SYSTEMS; i++)
        err = sp_helixpipe_memory(&setting, sp_helixpipe_systems[i], peaks->of[i]);
    return err;
}

/* The least and the most bytes of the first n stages. */
struct range {
    double least, most;
};

static struct range range_of(const double *bytes, int n)
{
    struct range r = {INFINITY, 0};

    for (int s = 0; s < n; s++) {
        r.least = fmin(r.least, bytes[s]);
        r.most = fmax(r.most, bytes[s]);
    }
    return r;
}

static int lowest_and_even(struct sp_cell *c)
{
    struct peaks peaks = {0};
    struct range helix, one;
    int err = peaks_on("h20-ib", &peaks);
    bool holds = true;

    if (err)
        return err;
    helix = range_of(peaks.of[HELIX], STAGES);
    one = range_of(peaks.of[0], STAGES);
    for (int i = 0; i < HELIX; i++) {
        struct range other = range_of(peaks.of[i], STAGES);

        holds &= helix.most < other.most && helix.most / helix.least < other.most / other.least;
    }
    sp_cell_holds(c, holds, "HelixPipe %.1f to %.1f GB, 1F1B %.1f to %.1f", helix.least / 1e9,
                  helix.most / 1e9, one.least / 1e9, one.most / 1e9);
    return 0;
}

/* "The same": within a tenth, but for the last stage, of which the next claim is. */
static int skewed_and_flat(struct sp_cell *c)
{
    struct peaks peaks = {0};
    int err = peaks_on("h20-ib", &peaks);
    const double *one = peaks.of[0];
    struct range zb = range_of(peaks.of[1], STAGES - 1);

    sp_cell_holds(c, one[0] > 2 * one[STAGES - 1] && zb.most < 1.1 * zb.least,
                  "1F1B %.1f to %.1f GB, ZB1P %.1f to %.1f but for the last stage", one[0] / 1e9,
                  one[STAGES - 1] / 1e9, zb.least / 1e9, zb.most / 1e9);
    return err;
}

static int zb1p_fills_the_last(struct sp_cell *c)
{
    struct peaks peaks = {0};
    int err = peaks_on("h20-ib", &peaks);
    const double *zb = peaks.of[1];

    sp_cell_holds(c, zb[STAGES - 1] >= range_of(zb, STAGES).most,
                  "%.1f GB on the last stage, %.1f on the first", zb[STAGES - 1] / 1e9,
                  zb[0] / 1e9);
    return err;
}

/* Full: nine tenths of a GPU of the smaller cluster. */
static int adapipe_fills_three(struct sp_cell *c)
{
    struct peaks peaks = {0};
    int err = peaks_on("a800-ib", &peaks), full = 0;
    bool first = true;

    if (err)
        return err;
    for (int s = 0; s < STAGES; s++) {
        bool is = peaks.of[2][s] > 0.9 * 80e9;

        full += is;
        first &= is == (s < 3);
    }
    sp_cell_holds(c, first, "%d stages are full; %.1f GB at most, so nothing is recomputed", full,
                  range_of(peaks.of[2], STAGES).most / 1e9);
    return 0;
}

static int alike_on_clusters(struct sp_cell *c)
{
    struct peaks h20 = {0}, a800 = {0};
    int err = peaks_on("h20-ib", &h20);
    double off = 0;

    err = err ? err : peaks_on("a800-ib", &a800);
    if (err)
        return err;
    for (int i = 0; i < SYSTEMS; i++)
        for (int s = 0; s < STAGES; s++)
            off = fmax(off, fabs(a800.of[i][s] / h20.of[i][s] - 1));
    sp_cell_holds(c, off < 0.05, "apart by %.1f %% at most", 100 * off);
    return 0;
}

/* ---- figure 11 */

static int gap_shrinks(struct sp_cell *c)
{
    struct count n = {0};

    for (int a = 0; a < MACHINES; a++) {
        double last = INFINITY;

        for (int s = 0; s < LENGTHS; s++) {
            const struct sp_helixpipe_setting setting = {machines[a], "gpt3-3b", lengths[s], 4, 0};
            double percent;
            bool fits[2];
            int err = sp_helixpipe_lost(&setting, &percent, fits);

            if (err)
                return err;
            if (s > 0)
                add_to(&n, percent < last);
            last = percent;
        }
    }
    return set_count(c, &n, "steps to the next length");
}

/* The longest sequence in steps of 32k, without recomputation and with it. */
static int ends_at_128k(struct sp_cell *c)
{
    int longest[2] = {0, 0};

    for (int seq = 32768; seq <= 524288; seq += 32768) {
        const struct sp_helixpipe_setting setting = {"a800-ib", "gpt3-3b", seq, 4, 0};
        double percent;
        bool fits[2];
        int err = sp_helixpipe_lost(&setting, &percent, fits);

        if (err)
            return err;
        for (int i = 0; i < 2; i++)
            if (fits[i])
                longest[i] = seq;
    }
    sp_cell_holds(c, longest[0] <= 131072 && longest[1] > 131072,
                  "on A800 %dk without, %dk with it", longest[0] / 1024, longest[1] / 1024);
    return 0;
}

const struct sp_experiment sp_helixpipe_claims[] = {
    {"attention-dominates", attention_claim},
    {"others-are-marginal", attention_claim},
    {"memory-is-spare", memory_is_spare},
    {"naive-waits", messages_claim},
    {"two-fold-hides", messages_claim},
    {"comparable", grid_claim},
    {"gains-with-length", grid_claim},
    {"alike-for-models", grid_claim},
    {"gains-but-for-short-a800", grid_claim},
    {"less-on-a800", grid_claim},
    {"best-is-1f1b", grid_claim},
    {"adapipe-is-no-faster", grid_claim},
    {"lowest-and-even", lowest_and_even},
    {"skewed-and-flat", skewed_and_flat},
    {"zb1p-fills-the-last", zb1p_fills_the_last},
    {"adapipe-fills-three", adapipe_fills_three},
    {"alike-on-clusters", alike_on_clusters},
    {"gap-shrinks", gap_shrinks},
    {"ends-at-128k", ends_at_128k},
    {0},
};
