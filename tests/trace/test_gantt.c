/* The pictures: well-formed, a bar for every op, bars where the ops are. */
#include "../policies/common.h"
#include "policies/registry.h"
#include "trace/gantt.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/times.h"
#include <ctype.h>
#include <math.h>

static char *drawn(const struct sp_gantt *g, int columns, bool color)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);

    assert_non_null(out);
    if (columns)
        sp_gantt_text(g, columns, color, out);
    else
        sp_gantt_svg(g, out);
    assert_int_equal(ferror(out), 0);
    fclose(out);
    return text;
}

/* The picture of a plan, which it destroys. */
static void picture_of(struct sp_plan *plan, const struct sp_costs *c, bool paired,
                       struct sp_gantt *g)
{
    struct sp_times t;
    char why[256] = "";

    assert_int_equal(sp_listsim(plan, c, paired ? SP_PAIRED : SP_UNBOUNDED, &t, why, sizeof why),
                     0);
    assert_int_equal(sp_gantt_from_times(plan, &t, g), 0);
    sp_times_destroy(&t);
    sp_plan_destroy(plan);
}

static void picture(const char *schedule, int p, int m, const struct sp_costs *c,
                    struct sp_gantt *g)
{
    struct sp_plan plan;

    make_plan(schedule, p, m, &plan);
    picture_of(&plan, c, false, g);
}

static int count(const char *text, const char *what)
{
    int n = 0;

    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

/* Checks the XML: tags nest and close, attributes are quoted, all entities are known. */
static void check_xml(const char *x)
{
    char open[16][32];
    int depth = 0, elements = 0;

    if (!strncmp(x, "<?xml", 5))
        x = strstr(x, "?>") + 2;
    while (*x) {
        if (*x == '&') {
            assert_true(!strncmp(x, "&amp;", 5) || !strncmp(x, "&lt;", 4) ||
                        !strncmp(x, "&gt;", 4) || !strncmp(x, "&quot;", 6));
        }
        assert_true(*x == '\n' || (unsigned char)*x >= 32);
        if (*x != '<') {
            assert_true(depth > 0 || isspace((unsigned char)*x));
            x++;
            continue;
        }
        if (x[1] == '/') {
            size_t len = strcspn(x + 2, ">");

            assert_true(depth > 0 && strlen(open[depth - 1]) == len);
            assert_memory_equal(open[--depth], x + 2, len);
            x += len + 3;
            continue;
        }
        {
            size_t len = strcspn(x + 1, " />");

            assert_true(depth < 16 && len > 0 && len < 32);
            memcpy(open[depth], x + 1, len);
            open[depth++][len] = 0;
            elements++;
            x += 1 + len;
        }
        while (*x == ' ') {
            x += 1 + strcspn(x + 1, "=<>\"");
            assert_true(x[0] == '=' && x[1] == '"');
            x += 2 + strcspn(x + 2, "\"<");
            assert_int_equal(*x, '"');
            x++;
        }
        if (*x == '/') {
            depth--;
            x++;
        }
        assert_int_equal(*x, '>');
        x++;
    }
    assert_int_equal(depth, 0);
    assert_true(elements > 10);
}

TEST(svg_holds_every_op)
{
    static const struct sp_costs c = {.f = 6, .b = 9, .w = 3, .comm = 0.5};
    static const struct {
        const char *schedule;
        int p, m;
    } table[] = {{"1f1b", 4, 8}, {"gpipe", 1, 1}, {"naive", 3, 5}, {"1f1b", 17, 111}};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int p = table[i].p, m = table[i].m;
        struct sp_gantt g;
        char *svg;

        picture(table[i].schedule, p, m, &c, &g);
        svg = drawn(&g, 0, false);
        check_xml(svg);
        assert_int_equal(count(svg, "class=\"bar\""), 2 * p * m);
        assert_int_equal(count(svg, "<title>F0.0: "), p);
        assert_int_equal(count(svg, ">stage "), p);
        assert_int_equal(count(svg, ">peak "), p);
        assert_int_equal(count(svg, "nan"), 0);
        print_message("%-6s p=%d m=%d: %zu bytes of SVG, %d bars\n", table[i].schedule, p, m,
                      strlen(svg), count(svg, "class=\"bar\""));
        free(svg);
        sp_gantt_destroy(&g);
    }
}

TEST(svg_escapes)
{
    struct sp_bar bar = {.end = 4, .label = "<&\">", .name = "a<b&c", .mb = -1};
    struct sp_gantt g;
    char *svg;

    assert_int_equal(sp_gantt_create(1, &g), 0);
    snprintf(g.title, sizeof g.title, "run <of> \"A&B\" \x01");
    snprintf(g.note[0], sizeof g.note[0], "x<y");
    g.unit = "m<s";
    g.end = 4;
    assert_int_equal(sp_gantt_add(&g, &bar), 0);
    svg = drawn(&g, 0, false);
    check_xml(svg);
    assert_non_null(strstr(svg, "run &lt;of&gt; &quot;A&amp;B&quot; <"));
    assert_non_null(strstr(svg, ">&lt;&amp;&quot;&gt;<"));
    assert_non_null(strstr(svg, ">a&lt;b&amp;c: 0 to 4<"));
    assert_non_null(strstr(svg, ">x&lt;y<"));
    assert_non_null(strstr(svg, "(m&lt;s)"));
    free(svg);
    sp_gantt_destroy(&g);
}

/* A picture without bars, or with bars of no length, is still drawn. */
TEST(empty_pictures)
{
    static const struct sp_costs nothing = {0};
    struct sp_gantt g;
    char *text;

    picture("1f1b", 2, 3, &nothing, &g);
    text = drawn(&g, 0, false);
    check_xml(text);
    assert_int_equal(count(text, "nan"), 0);
    free(text);
    text = drawn(&g, 80, false);
    assert_int_equal(count(text, "stage "), 2);
    free(text);
    sp_gantt_destroy(&g);
}

TEST(text_is_to_scale)
{
    static const struct sp_costs unit = {.f = 1, .b = 1, .w = 1};
    struct sp_gantt g;
    char *text, *again;

    picture("1f1b", 2, 3, &unit, &g);
    /* 12 units of 2 columns, 9 for the names, 24 for the notes */
    text = drawn(&g, 2 * 12 + 9 + 24, false);
    assert_non_null(strstr(text, "\nstage 0  0-1-....0===2-1===..2===   25.0 % idle  peak 2\n"));
    assert_non_null(strstr(text, "\nstage 1  ..0-0===1-1===2-2===....   25.0 % idle  peak 1\n"));
    assert_null(strchr(text, '\033'));
    free(text);
    text = drawn(&g, 12 + 9 + 24, false); /* never narrower than 20 columns: still 1 a unit */
    assert_non_null(strstr(text, "\nstage 0  01..aa2bb.cc  "));
    free(text);
    text = drawn(&g, 2 * 12 + 9 + 24, true);
    assert_non_null(strstr(text, "\033[0;48;5;"));
    free(text);
    sp_gantt_destroy(&g);

    picture("gpipe", 3, 60, &unit, &g); /* more bars than columns */
    text = drawn(&g, 80, false);
    again = drawn(&g, 80, false);
    assert_string_equal(text, again);
    assert_non_null(strstr(text, "\nstage 0  ------"));
    assert_non_null(strstr(text, "\n- forward, = backward, . idle\n"));
    for (char *line = text; *line; line = strchr(line, '\n') + 1)
        assert_true(strcspn(line, "\n") <= 80);
    free(text);
    free(again);
    sp_gantt_destroy(&g);
}

/* Odd chunks and overlapped pairs are told apart, and the legend says how. */
TEST(chunks_and_pairs)
{
    static const struct sp_costs unit = {.f = 2, .b = 2, .w = 2};
    static const char *const lines[] = {"F0.0 F0.1 B0.1 W0.1 B0.0 W0.0"};
    struct sp_layout lay = layout(1, 1);
    struct sp_plan plan;
    struct sp_gantt g;
    char *text;

    lay.chunks = 2;
    write_plan(lay, lines, &plan);
    plan.def = sp_schedule_find("1f1b");
    plan.programs[0].ops[1].overlap = 1;
    picture_of(&plan, &unit, false, &g);
    assert_true(g.share == 0.5);
    text = drawn(&g, 9 + 24 + 24, false); /* four columns an op: the label and one for the pass */
    assert_non_null(strstr(text, "\nstage 0  0.0-0.1_0.1%0.1^0.0=0.0~"));
    assert_non_null(strstr(
        text, "- forward, = backward, ~ weight gradient, . idle; 3.1: micro-batch 3, chunk 1, "));
    assert_non_null(strstr(text, "odd chunk: _, %, ^; even: -, =, ~\n"));
    assert_non_null(strstr(text, "overlap"));
    free(text);
    text = drawn(&g, 9 + 24 + 12, true);
    assert_non_null(strstr(text, "\033[0;48;5;117m\033[30;4m"));
    assert_non_null(strstr(text, "underlined"));
    free(text);
    text = drawn(&g, 0, false);
    check_xml(text);
    assert_int_equal(count(text, "url(#odd)"), 3 + 1); /* and the legend */
    assert_int_equal(count(text, "class=\"unit\""), 1 + 1);
    free(text);
    sp_gantt_destroy(&g);
}

static char *as_json(const struct sp_gantt *g)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);

    assert_non_null(out);
    sp_gantt_json(g, 1, NULL, 0, out);
    fclose(out);
    return text;
}

/* The smallest text of an SVG, in pixels. */
static double smallest_text(const char *svg)
{
    double least = 99;

    for (const char *at = svg; (at = strstr(at, "font-size")); at++) {
        double size = strtod(at + strcspn(at, "0123456789"), NULL);

        least = size < least ? size : least;
    }
    return least;
}

/* Checks that no text is wider than its bar, if a figure takes 0.53 of the height. Returns the
 * number of texts. */
static int check_labels(const char *svg)
{
    double width = 0;
    int n = 0;

    for (const char *at = svg; (at = strchr(at, '<')); at++) {
        if (!strncmp(at, "<rect class=\"bar\"", 17))
            width = strtod(strstr(at, " width=\"") + 8, NULL);
        if (!strncmp(at, "<text ", 6) && strstr(at, "class=\"n\"") &&
            strstr(at, "class=\"n\"") < strchr(at, '>')) {
            double size = strtod(strstr(at, "font-size=\"") + 11, NULL);
            size_t letters = strcspn(strchr(at, '>') + 1, "<");

            assert_true(0.53 * size * (double)letters <= width);
            n++;
        }
    }
    return n;
}

/* Terminal, SVG and page explain the same signs in the same words; peaks are in micro-batches of a
 * whole stage, whatever the parts. */
TEST(legends)
{
    static const struct {
        const char *schedule;
        int m, chunks, slices, layers;
        const char *number, *other, *peak;
    } table[] = {
        {"1f1b", 8, 1, 1, 0, "3: micro-batch 3", "backward", "peak 4"},
        {"zbv", 8, 2, 1, 0, "3.1: micro-batch 3, chunk 1", "odd chunk", "peak 4"},
        {"weipipe", 8, 1, 1, 0, "3.1: micro-batch 3, chunk 1", "odd chunk", "peak 4"},
        {"seq1f1b", 8, 1, 2, 0, "3s2: micro-batch 3, slice 2", "idle", "peak 2.5"},
        {"sppo", 1, 1, 8, 0, "s2: slice 2", "idle", "peak 1"},
        {"helix", 8, 1, 1, 8, "3.1: micro-batch 3, layer 1", "attention", "peak 9.412"},
        {"helix", 8, 1, 2, 8, "3.1s2: micro-batch 3, layer 1, slice 2", "attention", "peak 9.412"},
        {"dualpipe", 8, 2, 1, 0, "3.1: micro-batch 3, chunk 1", "overlapped", "peak 5"},
        {"1f1b", 200, 1, 1, 0, "3: micro-batch 3", "backward", "peak 4"},
    };
    static const struct sp_costs unit = {
        .f = 1, .b = 1, .w = 1, .parts = {.pre = 1, .attn = 3, .post = 2, .backward = 2}};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sp_gantt_key key[SP_GANTT_KEYS];
        struct sp_layout lay = layout(4, table[i].m);
        struct sp_plan plan;
        struct sp_gantt g;
        char *text, *svg, *json;
        bool number = false, other = false;
        int n;

        lay.chunks = table[i].chunks;
        lay.slices = table[i].slices;
        lay.layers = table[i].layers;
        assert_int_equal(sp_plan_create(table[i].schedule, &lay, &plan), 0);
        picture_of(&plan, &unit, true, &g);
        text = drawn(&g, 80, false);
        assert_true(*table[i].number != 's' || strstr(text, "(a: slice 0)"));
        free(text);
        text = drawn(&g, 2000, false);
        svg = drawn(&g, 0, false);
        json = as_json(&g);
        n = sp_gantt_legend(&g, key);
        for (int k = 0; k < n; k++) {
            char line[128], quoted[128];

            snprintf(line, sizeof line, "%s: %s", key[k].sample ? key[k].sample : "", key[k].text);
            number |= !strncmp(line, table[i].number, strlen(table[i].number));
            other |= !strcmp(key[k].text, table[i].other);
            snprintf(quoted, sizeof quoted, "\"%s\"]", key[k].text);
            assert_non_null(strstr(json, quoted));
            snprintf(quoted, sizeof quoted, ">%s<", key[k].text);
            assert_non_null(strstr(svg, quoted));
            assert_non_null(strstr(text, key[k].mark == SP_MARK_NUMBER ? line : key[k].text));
        }
        assert_true(number && other);
        for (int k = 0; k < 3; k++) {
            const char *picture = k == 0 ? text : k == 1 ? svg : json;

            assert_non_null(strstr(picture, table[i].peak));
            assert_non_null(strstr(picture, "micro-batches on a whole stage"));
        }
        check_xml(svg);
        assert_non_null(strstr(svg, "viewBox=\"0 0 880 "));
        assert_non_null(strstr(svg, "prefers-color-scheme:dark"));
        assert_true(smallest_text(svg) >= 10);
        print_message("%s, %d micro-batches: %d signs, text of %g px and more, in %d bars\n",
                      table[i].schedule, table[i].m, n, smallest_text(svg), check_labels(svg));
        free(text);
        free(svg);
        free(json);
        sp_gantt_destroy(&g);
    }
}

/* Evictions and fetches at one moment are one step of the row, which ends with nothing evicted. */
TEST(evicted)
{
    static const struct sp_gantt_evicted table[] = {{1, 4, 8, 3 << 20}, {0, 2, 6, 1 << 20},
                                                    {0, 1, 4, 2 << 20}, {0, 4, 5, 4 << 20},
                                                    {0, 7, 7, 9 << 20}, {1, 5, 6, 0}};
    static const double at[] = {1, 2, 4, 5, 6};
    static const int mib[] = {2, 3, 5, 1, 0};
    struct sp_bar bar = {.end = 9, .kind = SP_BAR_F, .mb = 0, .label = "0", .name = "F0.0"};
    struct sp_gantt_step *step;
    struct sp_gantt g;
    char *svg, *json;
    int n;

    assert_int_equal(sp_gantt_create(3, &g), 0);
    g.end = 9;
    assert_int_equal(sp_gantt_add(&g, &bar), 0);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_int_equal(sp_gantt_add_evicted(&g, &table[i]), 0);
    step = sp_gantt_evicted_of(&g, 0, &n);
    assert_int_equal(n, 5);
    for (int i = 0; i < n; i++)
        assert_true(step[i].at == at[i] && step[i].bytes == (int64_t)mib[i] << 20);
    free(step);
    assert_null(sp_gantt_evicted_of(&g, 2, &n));
    assert_int_equal(n, 0);
    svg = drawn(&g, 0, false);
    check_xml(svg);
    assert_non_null(strstr(svg, "<title>5.00 MiB away: 4 to 5</title>"));
    assert_non_null(strstr(svg, ">3.00 MiB away<"));
    assert_non_null(strstr(svg, ">0.00 MiB away<"));
    assert_non_null(strstr(svg, ">away: left memory, not yet back<"));
    json = as_json(&g);
    assert_non_null(
        strstr(json, "\"away\":[\n[[1,2],[2,3],[4,5],[5,1],[6,0]],\n[[4,3],[8,0]],\n[]]"));
    free(svg);
    free(json);
    sp_gantt_destroy(&g);
}

/* Text can be read on every bar: WCAG asks for 4.5. */
TEST(contrasts)
{
    double least = 21;

    for (int k = 0; k < SP_BAR_KINDS; k++)
        for (int mb = 0; mb < SP_GANTT_SHADES; mb++) {
            struct sp_color fill = sp_gantt_color((enum sp_bar_kind)k, mb);

            least = fmin(least, sp_color_contrast(fill, sp_gantt_ink(fill)));
        }
    print_message("contrast of %.2f and more\n", least);
    assert_true(least >= 4.5);
}

/* Measured bars: all of the width is used however short the shortest is, and a bar without room for a
 * number beside its fill shows its fill. */
TEST(uneven_bars)
{
    static const struct sp_bar bars[] = {
        {.start = 0, .end = 0.5, .kind = SP_BAR_F, .mb = 3, .label = "3"},
        {.start = 1, .end = 4, .kind = SP_BAR_F, .mb = 4, .label = "4"},
        {.start = 4, .end = 4.01, .kind = SP_BAR_B, .mb = 3, .label = "3"},
        {.start = 6, .end = 10, .kind = SP_BAR_B, .mb = 4, .label = "4"}};
    struct sp_gantt g;
    char *text;

    assert_int_equal(sp_gantt_create(1, &g), 0);
    for (size_t i = 0; i < sizeof bars / sizeof *bars; i++)
        assert_int_equal(sp_gantt_add(&g, &bars[i]), 0);
    g.end = 10;
    g.unit = "ms";
    g.uneven = true;
    text = drawn(&g, 9 + 24 + 20, false);
    assert_non_null(strstr(text, "\nstage 0  -.4-----....4=======\n"));
    free(text);
    sp_gantt_destroy(&g);
}

TEST(ticks)
{
    static const int lead[] = {1, 2, 5};
    int worst = 99;

    assert_true(fabs(sp_gantt_tick(33, 10) - 5) < 1e-12);
    assert_true(fabs(sp_gantt_tick(100, 10) - 10) < 1e-12);
    assert_true(sp_gantt_tick(0, 5) == 1);
    for (double length = 1e-6; length < 1e7; length *= 1.37) {
        double step = sp_gantt_tick(length, 12),
               mantissa = step / pow(10, floor(log10(step) + 1e-9));
        int pieces = (int)ceil(length / step - 1e-9), i = 0;

        while (i < 3 && fabs(mantissa - lead[i]) > 1e-6)
            i++;
        assert_true(i < 3);
        assert_true(pieces <= 12);
        if (pieces < worst)
            worst = pieces;
    }
    print_message("between %d and 12 pieces\n", worst);
    assert_true(worst >= 4);
}
