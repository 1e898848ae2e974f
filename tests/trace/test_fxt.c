/* The pieces of `trace fxt`: names of tasks, clocks of ranks, messages of two sides, events in
 * order. */
#include "../policies/common.h"
#include "trace/fxt/paje.h"
#include "trace/fxt/traced_run.h"
#include "sp_error.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TEST(test_names)
{
    static const struct {
        const char *text;
        struct sp_task_name is;
    } names[] = {
        {"F_s2_m5_l3_attn", {'F', 2, 5, -1, 3, "attn"}},
        {"B_s0_m12.3_l-1_head", {'B', 0, 12, 3, -1, "head"}},
        {"U_s10_l7_update", {'U', 10, -1, -1, 7, "update"}},
        {"W_s1_m0_l4_post.w", {'W', 1, 0, -1, 4, "post.w"}},
    };
    static const char *const others[] = {"", "execute_on_all_wrapper", "F_s2", "F_s2_m5_l3",
                                         "_starpu_data_acquire_cb_pre"};
    struct sp_task_name n;
    char kind[SP_TASK_KIND];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_true(sp_task_name_read(names[i].text, &n));
        assert_int_equal(n.pass, names[i].is.pass);
        assert_int_equal(n.stage, names[i].is.stage);
        assert_int_equal(n.micro_batch, names[i].is.micro_batch);
        assert_int_equal(n.slice, names[i].is.slice);
        assert_int_equal(n.layer, names[i].is.layer);
        assert_string_equal(n.part, names[i].is.part);
    }
    assert_true(sp_task_name_read(names[0].text, &n));
    assert_string_equal(sp_task_kind(&n, kind), "F attn");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(sp_task_name_read(others[i], &n));
}

/* A clock that is 5 ms ahead at first and 1 ms at the end, a tenth of a second later; its trace began at 2 s of
 * it, runs 1000 ppm fast, and its marks come up to 50 us late but for one of each end. */
TEST(test_clock)
{
    struct sp_rank_clock c = {.offset = {{2e9, 5e6, 1000}, {2.1e9, 1e6, 1000}}};

    for (int i = 0; i < 5; i++)
        for (int end = 0; end < 2; end++) {
            double local = (end ? 2.1e9 : 2e9) + 1e4 * i;
            double late = i == 3 ? 0 : 1e4 * (5 - i);

            sp_rank_clock_mark(&c, end, (local + late - 2e9) * 1.001 / 1e6, local);
        }
    assert_true(fabs(sp_rank_clock_global(&c, 2e9) - (2e9 - 5e6)) < 1);
    assert_true(fabs(sp_rank_clock_global(&c, 2.05e9) - (2.05e9 - 3e6)) < 1);
    assert_true(fabs(sp_rank_clock_global(&c, 2.1e9) - (2.1e9 - 1e6)) < 1);
    assert_true(fabs(sp_rank_clock_of_trace(&c, 50 * 1.001) - (2.05e9 - 3e6)) < 10);
}

/* Offsets 3 us apart, one known to 5 us and one to 1 us: no drift. The same, both known to 1 us: drift. */
TEST(test_unseen_drift)
{
    struct sp_rank_clock c = {.offset = {{1e9, 7000, 10000}, {2e9, 4000, 2000}}};
    struct sp_rank_clock drifts = {.offset = {{1e9, 7000, 2000}, {2e9, 4000, 2000}}};

    sp_rank_clock_settle(&c);
    assert_true(c.offset[0].offset_ns == 4000 && c.offset[1].offset_ns == 4000);
    assert_true(c.offset[0].local_ns == 1e9);
    sp_rank_clock_settle(&drifts);
    assert_true(drifts.offset[0].offset_ns == 7000 && drifts.offset[1].offset_ns == 4000);
}

/* ---- messages ------------------------------------------------------------------------------------ */

static char dir[] = "/tmp/starpipe-fxt-XXXXXX";

static void write_rank(int rank, int run, int offset_ns, const char *messages)
{
    char path[64];
    FILE *f;

    snprintf(path, sizeof path, "%s/messages_%d.jsonl", dir, rank);
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f,
            "{\"rank\":%d,\"ranks\":2,\"run\":%d,"
            "\"start\":{\"local_ns\":1000,\"offset_ns\":%d,\"round_trip_ns\":10},"
            "\"end\":{\"local_ns\":9000,\"offset_ns\":%d,\"round_trip_ns\":10}}\n%s",
            rank, run, offset_ns, offset_ns, messages);
    fclose(f);
}

#define MESSAGE(peer, number, tag, tensor, handle, start, end)                                     \
    "{\"" peer "\":" number ",\"tag\":" tag ",\"bytes\":64,\"tensor\":\"" tensor                   \
    "\",\"handle\":\"" handle "\",\"start_ns\":" start ",\"end_ns\":" end "}\n"

static const char *const sends = MESSAGE("to", "1", "7", "x0.0", "a0", "2000", "2100")
    MESSAGE("to", "1", "7", "x1.0", "a0", "3000", "3100");

static int read_quietly(struct sp_fxt_messages *m)
{
    bool before = sp_error_quiet(true);
    int err = sp_fxt_messages_read(dir, 2, m);

    sp_error_quiet(before);
    return err;
}

/* Two messages of one tag, received in order on a clock that is 500 ns ahead; the second arrives
 * too early. */
TEST(test_messages)
{
    struct sp_fxt_messages m;

    write_rank(0, 1, 0, sends);
    write_rank(1, 1, 500,
               MESSAGE("from", "0", "7", "", "b0", "3000", "3400")
                   MESSAGE("from", "0", "7", "", "b1", "1500", "2900"));
    assert_int_equal(read_quietly(&m), 0);
    assert_int_equal(m.n, 2);
    assert_string_equal(m.message[0].tensor, "x0.0");
    assert_int_equal(m.message[0].handle[1], 0xb1);
    assert_true(m.message[0].end_ns == 2400);
    assert_int_equal(m.message[1].handle[1], 0xb0);
    assert_true(m.message[1].end_ns == 3000); /* 2900, and it was sent at 3000 */
    assert_int_equal(m.turned, 1);
    assert_true(m.turned_ns == 100);
    sp_fxt_messages_destroy(&m);
}

TEST(test_refused_messages)
{
    static const struct {
        int run;
        const char *messages;
    } bad[] = {
        {2, MESSAGE("from", "0", "7", "", "b1", "1500", "2900")}, /* of another run */
        {1, ""},                                                  /* never received */
        {1, MESSAGE("from", "5", "7", "", "b1", "1500", "2900")}, /* of no rank */
        {1, "{\"from\":0"},
    };
    struct sp_fxt_messages m;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_rank(1, bad[i].run, 0, bad[i].messages);
        assert_int_not_equal(read_quietly(&m), 0);
        sp_fxt_messages_destroy(&m);
    }
}

/* ---- dependencies -------------------------------------------------------------------------------- */

/* Task a writes buffer 1 and sends it. The receiver's buffer 2 is read by c, after d has read its
 * previous value. b never ran, so e, which waited for b, depends on a. */
TEST(test_dependencies)
{
    struct sp_fxt_task t[] = {
        {.job = "a", .handles = "1", .modes = "W", .after = "", .start_ns = 10, .end_ns = 20},
        {.job = "b", .handles = "", .modes = "", .after = "a"},
        {.job = "c",
         .handles = "2 3",
         .modes = "R W",
         .after = "",
         .rank = 1,
         .start_ns = 50,
         .end_ns = 60},
        {.job = "d",
         .handles = "2",
         .modes = "R",
         .after = "",
         .rank = 1,
         .start_ns = 10,
         .end_ns = 20},
        {.job = "e", .handles = "", .modes = "", .after = "b", .start_ns = 70, .end_ns = 80},
    };
    struct sp_fxt_message m = {.src = 0,
                               .dst = 1,
                               .tensor = "x0.0",
                               .handle = {1, 2},
                               .start_ns = 22,
                               .sent_ns = 30,
                               .posted_ns = 25,
                               .end_ns = 40};
    const struct sp_fxt_tasks tasks = {5, t};
    const struct sp_fxt_messages messages = {.ranks = 2, .n = 1, .message = &m};
    struct sp_fxt_dependencies d;

    sp_fxt_dependencies_of_messages(&tasks, &messages, &d);
    assert_int_equal(d.n, 2);
    assert_ptr_equal(d.at[0].after, &t[0]);
    assert_int_equal(d.at[0].message, 0);
    assert_ptr_equal(d.at[1].task, &t[2]);
    assert_int_equal(d.at[1].after_message, 0);
    sp_fxt_dependencies_of_tasks(&tasks, &d);
    assert_int_equal(d.n, 3);
    assert_ptr_equal(d.at[2].task, &t[4]);
    assert_ptr_equal(d.at[2].after, &t[0]);
    sp_fxt_dependencies_destroy(&d);
}

/* ---- events -------------------------------------------------------------------------------------- */

TEST(test_order)
{
    static const char *const order[] = {"late value", "first",    "second", "zero",
                                        "one",        "also one", "two"};
    struct sp_paje p = {0};

    sp_paje_add(&p, SP_PAJE_SET_STATE, 2, "two");
    sp_paje_add(&p, SP_PAJE_CREATE, 5, "first");
    sp_paje_add(&p, SP_PAJE_SET_STATE, 1, "one");
    sp_paje_add(&p, SP_PAJE_SET_STATE, 1, "also one");
    sp_paje_add(&p, SP_PAJE_CREATE, 1, "second");
    sp_paje_add(&p, SP_PAJE_SET_STATE, 0, "zero");
    sp_paje_add(&p, SP_PAJE_DEFINE_VALUE, 0, "late value");
    sp_paje_sort(&p);
    for (size_t i = 0; i < p.n; i++)
        assert_string_equal(p.events[i].rest, order[i]);
    sp_paje_destroy(&p);
}

TEST(test_words)
{
    struct sp_paje_words w = {0};
    char *text;

    sp_paje_split("0_w0\tWS \"F s0 m0 l0 attn\"  12 \"\"", &w);
    assert_int_equal(w.n, 5);
    assert_string_equal(w.at[2], "F s0 m0 l0 attn");
    assert_string_equal(w.at[4], "");
    text = sp_paje_join(&w, 3);
    assert_string_equal(text, "0_w0\tWS\t\"F s0 m0 l0 attn\"\t\"-\"");
    free(text);
    sp_paje_words_free(&w);
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    char path[64];

    (void)state;
    for (int r = 0; r < 2; r++) {
        snprintf(path, sizeof path, "%s/messages_%d.jsonl", dir, r);
        unlink(path);
    }
    return rmdir(dir);
}

TEST_FIXTURE(make_dir, remove_dir)
