/*
 * The choice of distinct layouts: checked by hand on small rankings, and on random ones against the
 * promises of the rule, counted independently.
 */
#include "plan/search/distinct.h"
#include "policies/common.h"
#include <stdio.h>
#include <string.h>

static uint64_t seed = 11;

static int below(int n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

static struct sp_found a_layout(const char *schedule, int stages, int devices, bool fits)
{
    struct sp_found f = {
        .stages = stages, .devices = devices, .context = 1, .fits = fits, .trains = true};

    snprintf(f.schedule, sizeof f.schedule, "%s", schedule);
    return f;
}

static void chosen_are(const struct sp_found *all, int n, int most, const char *want)
{
    int chosen[64], count = sp_found_distinct(all, n, chosen, most);
    char text[256] = "";

    for (int i = 0; i < count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", i ? " " : "", chosen[i]);
    assert_string_equal(text, want);
}

/* Helix has the five fastest rows: they leave half of the table to other grids and schedules. */
TEST(by_hand)
{
    const struct sp_found all[] = {
        a_layout("helix:bounded", 8, 1, true), a_layout("helix", 8, 1, true),
        a_layout("helix:fold=1", 8, 1, true),  a_layout("helix", 4, 2, true),
        a_layout("helix:bounded", 4, 2, true), a_layout("1f1b", 8, 1, true),
        a_layout("zbv", 8, 1, true),           a_layout("1f1b", 4, 2, true),
        a_layout("1f1b", 2, 4, true),          a_layout("gpipe", 1, 8, false),
    };

    chosen_are(all, 10, 1, "0");
    chosen_are(all, 10, 2, "0 5");         /* one grid is half; another family */
    chosen_are(all, 10, 4, "0 3 5 6");     /* the best of two grids, two more families */
    chosen_are(all, 10, 6, "0 3 5 6 7 8"); /* three grids and three families; 1f1b on 4 x 2 */
    chosen_are(all, 10, 7, "0 1 3 5 6 7 8");
    chosen_are(all, 10, 9, "0 1 2 3 4 5 6 7 8"); /* variants, before what does not fit */
    chosen_are(all, 10, 64, "0 1 2 3 4 5 6 7 8 9");
    chosen_are(all, 0, 12, "");
    chosen_are(all + 9, 1, 12, "0");
}

/* The first can only be simulated; the best that train can run is in the table, whatever its
 * rank. */
TEST(recommended)
{
    struct sp_found all[] = {
        a_layout("sppo:multiplex", 8, 1, true),
        a_layout("helix", 8, 1, true),
        a_layout("zbv", 8, 1, true),
        a_layout("1f1b", 4, 2, true),
        a_layout("1f1b", 2, 4, true),
        a_layout("1f1b:x", 8, 1, true),
    };

    for (int i = 0; i < 5; i++)
        all[i].trains = false;
    chosen_are(all, 6, 2, "0 5");
    chosen_are(all, 6, 3, "0 1 5");
    chosen_are(all, 6, 1, "0");
}

static bool is_family(const struct sp_found *a, const struct sp_found *b)
{
    char of_a[sizeof a->schedule], of_b[sizeof b->schedule];

    snprintf(of_a, sizeof of_a, "%s", a->schedule);
    snprintf(of_b, sizeof of_b, "%s", b->schedule);
    return !strcmp(strtok(of_a, ":"), strtok(of_b, ":"));
}

static bool is_grid(const struct sp_found *a, const struct sp_found *b)
{
    return a->stages == b->stages && a->devices == b->devices && a->context == b->context;
}

/* Counts those of all[n] whose family (what & 1) and grid (what & 2) no chosen one has. */
static int left_out(const struct sp_found *all, int n, const int *chosen, int count, int what)
{
    int left = 0;

    for (int i = 0; i < n; i++) {
        bool found = !all[i].fits;

        for (int k = 0; k < count && !found; k++)
            found = (!(what & 1) || is_family(&all[i], &all[chosen[k]])) &&
                    (!(what & 2) || is_grid(&all[i], &all[chosen[k]]));
        left += !found;
    }
    return left;
}

/* Counts rows that repeat the family and grid of a better chosen row. */
static int variants(const struct sp_found *all, const int *chosen, int count)
{
    int n = 0;

    for (int k = 1; k < count; k++) {
        bool again = false;

        for (int j = 0; j < k && !again; j++)
            again = is_family(&all[chosen[j]], &all[chosen[k]]) &&
                    is_grid(&all[chosen[j]], &all[chosen[k]]);
        n += again;
    }
    return n;
}

TEST(random_rankings)
{
    static const char *const names[] = {"1f1b",      "helix", "helix:bounded",  "helix:fold=1",
                                        "1f1b-v",    "sppo",  "sppo:multiplex", "gpipe",
                                        "gpipe:b=f", "zbv"};
    int full = 0;

    for (int round = 0; round < 2000; round++) {
        struct sp_found all[64];
        int wide = 1 + below(4); /* few grids, and many */
        int n = 1 + below(64), fit = below(n + 1), most = 1 + below(64), chosen[64], count;

        for (int i = 0; i < n; i++) {
            all[i] = a_layout(names[below(10)], 1 << below(wide), 1 << below(wide > 3 ? 3 : wide),
                              i < fit);
            all[i].context = 1 + below(2);
        }
        count = sp_found_distinct(all, n, chosen, most);
        assert_int_equal(count, n < most ? n : most);
        assert_int_equal(chosen[0], 0);
        for (int k = 0; k < count; k++)
            assert_true(k ? chosen[k] > chosen[k - 1] : chosen[k] >= 0);
        assert_true(chosen[count - 1] < n);
        if (count > 0 && !all[chosen[count - 1]].fits) /* all that fit come before */
            assert_true(fit < count && (!fit || chosen[fit - 1] == fit - 1));
        if (fit && variants(all, chosen, count) && all[chosen[count - 1]].fits) {
            assert_int_equal(left_out(all, n, chosen, count, 3), 0);
            full++;
        }
        if (fit && most >= 30) { /* there are 6 families, and 24 grids */
            assert_int_equal(left_out(all, n, chosen, count, 1), 0);
            if (most >= 48)
                assert_int_equal(left_out(all, n, chosen, count, 2), 0);
        }
    }
    assert_true(full > 100);
}
