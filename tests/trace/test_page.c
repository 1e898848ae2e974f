/* The page: its data, read as JSON, must agree with the plan and its times in every op. */
#include "../policies/common.h"
#include "sp_figure.h"
#include "sp_text.h"
#include "trace/escape.h"
#include "trace/gantt.h"
#include "policies/plan_create.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/times.h"
#include <jansson.h>
#include <math.h>

static char *drawn(const struct sp_gantt *g, int n, const struct sp_gantt_fact *facts, int n_facts)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(out);
    sp_gantt_html(g, n, facts, n_facts, out);
    assert_int_equal(ferror(out), 0);
    fclose(out);
    return text;
}

/* Reads the JSON between the tags of the data: there is exactly one such element, closed by the
 * first tag. */
static json_t *data_of(const char *page)
{
    static const char tag[] = "<script type=\"application/json\" id=\"data\">";
    const char *start = strstr(page, tag), *end;
    json_error_t error;
    json_t *data;

    assert_non_null(start);
    start += sizeof tag - 1;
    end = strchr(start, '<');
    assert_non_null(end);
    assert_true(!strncmp(end, "</script>", 9));
    assert_null(strstr(end, tag));
    data = json_loadb(start, (size_t)(end - start), JSON_REJECT_DUPLICATES, &error);
    if (!data)
        fail_msg("%s", error.text);
    return data;
}

static double number(const json_t *array, size_t i)
{
    assert_true(json_is_number(json_array_get(array, i)));
    return json_number_value(json_array_get(array, i));
}

/* Activations of a stage at time t, counted from the ops themselves. */
static int alive(const struct sp_plan *plan, const struct sp_times *t, int s, double now)
{
    int live = 0;

    for (int k = 0; k < plan->programs[s].n; k++) {
        const struct sp_op *op = &plan->programs[s].ops[k];
        int id = plan->family->id(&plan->layout, s, op);

        if (op->pass == SP_F)
            live += t->start[s][k] <= now;
        else if (op->pass == SP_W || (op->pass == SP_B && !(plan->deferred && plan->deferred[id])))
            live -= t->end[s][k] <= now;
    }
    return live;
}

static void check_rows(const json_t *picture, const struct sp_plan *plan, const struct sp_times *t)
{
    const json_t *rows = json_object_get(picture, "rows");
    int sliced = plan->layout.slices > 1;

    assert_int_equal(json_array_size(rows), plan->layout.stages);
    for (int s = 0; s < plan->layout.stages; s++) {
        const json_t *row = json_array_get(rows, (size_t)s);
        int most = 0;

        assert_int_equal(json_array_size(row), plan->programs[s].n);
        for (int k = 0; k < plan->programs[s].n; k++) {
            const json_t *bar = json_array_get(row, (size_t)k);
            const struct sp_op *op = &plan->programs[s].ops[k];
            double start = number(bar, 0), end = number(bar, 1);
            char name[SP_OP_TEXT];

            assert_int_equal(json_array_size(bar), 10);
            assert_true(fabs(start - t->start[s][k]) <= 1e-8 * t->makespan);
            assert_true(fabs(end - t->end[s][k]) <= 1e-8 * t->makespan);
            assert_string_equal(json_string_value(json_array_get(bar, 2)),
                                sp_op_print(op, sliced, name));
            assert_int_equal(number(bar, 3), op->pass);
            assert_int_equal(number(bar, 4), op->mb);
            assert_int_equal(number(bar, 5), op->chunk);
            assert_int_equal(number(bar, 6),
                             alive(plan, t, s, (t->start[s][k] + t->end[s][k]) / 2));
            assert_int_equal(number(bar, 7), alive(plan, t, s, t->end[s][k]) -
                                                 (k + 1 < plan->programs[s].n &&
                                                  plan->programs[s].ops[k + 1].pass == SP_F &&
                                                  t->start[s][k + 1] <= t->end[s][k]));
            assert_int_equal(number(bar, 9), op->overlap);
            most = number(bar, 6) > most ? (int)number(bar, 6) : most;
        }
        assert_int_equal(most, t->peak_live[s]);
        assert_int_equal(number(json_array_get(row, json_array_size(row) - 1), 7), 0);
    }
}

/* The legend's sample of a number in a bar. */
static const char *sample_of(const json_t *picture)
{
    json_t *legend = json_object_get(picture, "legend"), *key;
    size_t i;

    json_array_foreach(legend, i,
                       key) if (!strcmp(json_string_value(json_array_get(key, 0)),
                                        "number")) return json_string_value(json_array_get(key, 2));
    fail_msg("the legend does not say what stands in bars");
    return "";
}

TEST(pages_of_schedules)
{
    static const struct sp_costs c = {.f = 6, .b = 9, .w = 3, .comm = 0.5};
    static const struct {
        const char *schedule;
        int p, m, chunks;
        double share;
    } table[] = {{"1f1b", 4, 8, 1, 1},
                 {"gpipe", 1, 1, 1, 1},
                 {"1f1b", 17, 111, 1, 1},
                 {"csv:" SP_TESTDATA "/schedules/torch_interleavedzb_p4_m8_v2.csv", 4, 8, 2, 0.5},
                 {"csv:" SP_TESTDATA "/schedules/torch_dualpipev_p4_m8_v2.csv", 4, 8, 2, 0.5}};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sp_layout lay = layout(table[i].p, table[i].m);
        struct sp_plan plan;
        struct sp_times t;
        struct sp_gantt g;
        char *page, why[256] = "";
        json_t *data, *picture;

        lay.chunks = table[i].chunks;
        assert_int_equal(sp_plan_create(table[i].schedule, &lay, &plan), 0);
        assert_int_equal(sp_listsim(&plan, &c, SP_UNBOUNDED, &t, why, sizeof why), 0);
        assert_int_equal(sp_gantt_from_times(&plan, &t, &g), 0);
        page = drawn(&g, 1, NULL, 0);
        data = data_of(page);
        assert_int_equal(json_array_size(json_object_get(data, "pictures")), 1);
        picture = json_array_get(json_object_get(data, "pictures"), 0);
        assert_true(json_number_value(json_object_get(picture, "share")) == table[i].share);
        assert_string_equal(sample_of(picture), table[i].chunks > 1 ? "3.1" : "3");
        assert_true(fabs(json_number_value(json_object_get(picture, "end")) - t.makespan) <
                    1e-8 * t.makespan);
        assert_int_equal(json_array_size(json_object_get(picture, "idle")), table[i].p);
        assert_int_equal(json_array_size(json_object_get(picture, "note")), table[i].p);
        check_rows(picture, &plan, &t);
        print_message("%s p=%d m=%d: %zu bytes, %d bars\n", plan.options[0] ? plan.options : "",
                      table[i].p, table[i].m, strlen(page), g.n);
        json_decref(data);
        free(page);
        sp_gantt_destroy(&g);
        sp_times_destroy(&t);
        sp_plan_destroy(&plan);
    }
}

/* A page refers to nothing outside: it works without a network and sends nothing. */
TEST(stands_alone)
{
    static const char *const outside[] = {
        "http:",  "https:",         "src=",      "href=",  "@import",   "url(",
        "fetch(", "XMLHttpRequest", "WebSocket", "@DATA@", "innerHTML", "eval("};
    struct sp_gantt g;
    char *page;

    assert_int_equal(sp_gantt_create(1, &g), 0);
    page = drawn(&g, 1, NULL, 0);
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        if (strstr(page, outside[i]))
            fail_msg("the page has '%s'", outside[i]);
    }
    assert_true(!strncmp(page, "<!DOCTYPE html>", 15));
    assert_non_null(strstr(page, "prefers-color-scheme: dark"));
    assert_string_equal(page + strlen(page) - 8, "</html>\n");
    print_message("%zu bytes without bars\n", strlen(page));
    free(page);
    sp_gantt_destroy(&g);
}

/* The text for a terminal. */
TEST(shows)
{
    static const char *const as_it_is[] = {"", "m \xc3\xa9 \xf0\x9f\x98\x80 \\x1b", "~"};
    static const struct {
        const char *text, *shown;
    } other[] = {{"\x1b[2J", "\\x1b[2J"},
                 {"a\nb\tc\x7f", "a\\x0ab\\x09c\\x7f"},
                 {"\xc2\x9b", "\\xc2\\x9b"},
                 {"a\xff", "a\\xff"},
                 {"\xe2\x80\xae", "\\xe2\\x80\\xae"},
                 {"a\xe2\x82", "a\\xe2\\x82"}};
    char out[64];

    for (size_t i = 0; i < sizeof as_it_is / sizeof *as_it_is; i++) {
        assert_true(sp_text_is_plain(as_it_is[i]));
        assert_string_equal(sp_text_show(as_it_is[i], out, sizeof out), as_it_is[i]);
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        assert_false(sp_text_is_plain(other[i].text));
        assert_string_equal(sp_text_show(other[i].text, out, sizeof out), other[i].shown);
    }
    assert_string_equal(sp_text_show("ab\xc3\xa9", out, 4), "ab");
    assert_string_equal(sp_text_show("ab\n", out, 6), "ab");
}

TEST(counts)
{
    static const struct {
        double seconds;
        const char *text;
    } durations[] = {{0, "0:00"},    {-3, "0:00"},    {NAN, "0:00"},          {59.9, "0:59"},
                     {725, "12:05"}, {3599, "59:59"}, {3600 + 15, "1:00:15"}, {90061, "25:01:01"}};
    char text[64];

    for (size_t i = 0; i < sizeof durations / sizeof *durations; i++)
        assert_string_equal(sp_text_duration(durations[i].seconds, text), durations[i].text);
    assert_string_equal(SP_COUNT(1, "stage"), "1 stage");
    assert_string_equal(SP_COUNT(0, "stage"), "0 stages");
    assert_string_equal(SP_COUNT(8, "micro-batch"), "8 micro-batches");
    assert_string_equal(SP_COUNT(2, "process"), "2 processes");
    snprintf(text, sizeof text, "%.3f %.2f %.2f %g", sp_figure(-4e-4, 3), sp_figure(-0.0, 2),
             sp_figure(-0.006, 2), sp_figure(-9e-14, 9));
    assert_string_equal(text, "0.000 0.00 -0.01 0");
}

/* Whatever a name holds, the data ends where it should, and has the name unchanged. */
TEST(escapes)
{
    static const char nasty[] = "</script><!-- & \"quoted\" \\ \x01\n\t' \xc2\xb7 \xf0\x9f\x98\x80";
    static const char *const broken[] = {
        "\xff", "a\xc2", "\xe2\x82", "\xed\xa0\x80", "\xc0\xaf", "\xf5\x80\x80\x80", "\x80"};
    struct sp_gantt_fact fact = {.name = "<b>"};
    struct sp_bar bar = {.end = 4, .label = "<&\">", .name = "a<b&\"c", .mb = -1};
    struct sp_gantt g;
    json_t *data, *picture;
    char *page;

    assert_int_equal(sp_gantt_create(1, &g), 0);
    snprintf(g.title, sizeof g.title, "%s", nasty);
    snprintf(fact.value, sizeof fact.value, "%s", nasty);
    snprintf(g.note[0], sizeof g.note[0], "x<y");
    g.end = 4;
    assert_int_equal(sp_gantt_add(&g, &bar), 0);
    page = drawn(&g, 1, &fact, 1);
    data = data_of(page);
    picture = json_array_get(json_object_get(data, "pictures"), 0);
    assert_string_equal(json_string_value(json_object_get(picture, "title")), nasty);
    assert_string_equal(
        json_string_value(json_array_get(json_array_get(json_object_get(data, "facts"), 0), 1)),
        nasty);
    assert_string_equal(
        json_string_value(json_array_get(
            json_array_get(json_array_get(json_object_get(picture, "rows"), 0), 0), 2)),
        "a<b&\"c");
    json_decref(data);
    free(page);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        snprintf(g.title, sizeof g.title, "x%sy", broken[i]);
        page = drawn(&g, 1, NULL, 0);
        data = data_of(page);
        picture = json_array_get(json_object_get(data, "pictures"), 0);
        assert_non_null(strchr(json_string_value(json_object_get(picture, "title")), '?'));
        json_decref(data);
        free(page);
    }
    sp_gantt_destroy(&g);
}

/* Two bars of a unit that ran at the same time share the row. */
TEST(lanes)
{
    struct sp_bar f = {.end = 4, .name = "F1.0", .joined = true};
    struct sp_bar b = {.start = 1, .end = 5, .kind = SP_BAR_B, .name = "B0.0"};
    struct sp_gantt g[2];
    json_t *data, *pictures;
    char *page;

    assert_int_equal(sp_gantt_create(1, &g[0]), 0);
    assert_int_equal(sp_gantt_create(1, &g[1]), 0);
    assert_int_equal(sp_gantt_add(&g[0], &f), 0);
    assert_int_equal(sp_gantt_add(&g[0], &b), 0);
    b.start = 4;
    assert_int_equal(sp_gantt_add(&g[1], &f), 0);
    assert_int_equal(sp_gantt_add(&g[1], &b), 0);
    page = drawn(g, 2, NULL, 0);
    data = data_of(page);
    pictures = json_object_get(data, "pictures");
    assert_int_equal(json_array_size(pictures), 2);
    for (size_t i = 0; i < 2; i++) {
        json_t *row = json_array_get(json_object_get(json_array_get(pictures, i), "rows"), 0);

        assert_int_equal(number(json_array_get(row, 0), 8), i == 0 ? 1 : 0);
        assert_int_equal(number(json_array_get(row, 1), 8), i == 0 ? 2 : 0);
    }
    json_decref(data);
    free(page);
    sp_gantt_destroy(&g[0]);
    sp_gantt_destroy(&g[1]);
}
