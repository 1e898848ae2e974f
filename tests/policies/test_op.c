/* The notation of ops, programs, and the options of a layout. */
#include "policies/common.h"

TEST(prints_and_parses_back)
{
    int n = 0;

    for (int pass = 0; pass < SP_PASSES; pass++) {
        for (int part = 0; part <= SP_UPDATE; part++) {
            for (int sliced = 0; sliced < 2; sliced++) {
                for (int i = 0; i < 50; i++) {
                    struct sp_op op = {.pass = (unsigned char)pass,
                                       .part = (unsigned char)part,
                                       .slice = (unsigned short)(sliced ? i * 37 : 0),
                                       .mb = i * 1709,
                                       .chunk = i % 7 * 11};
                    struct sp_op back;
                    char text[SP_OP_TEXT];

                    sp_op_print(&op, sliced, text);
                    assert_int_equal(sp_op_parse(text, &back), 0);
                    assert_int_equal(back.pass, op.pass);
                    assert_int_equal(back.part, op.part);
                    assert_int_equal(back.slice, op.slice);
                    assert_int_equal(back.mb, op.mb);
                    assert_int_equal(back.chunk, op.chunk);
                    n++;
                }
            }
        }
    }
    print_message("%d ops printed and parsed back\n", n);
}

TEST(prints_the_notation)
{
    static const struct {
        struct sp_op op;
        int sliced;
        const char *text;
    } table[] = {
        {{.pass = SP_F, .mb = 3}, 0, "F3.0"},
        {{.pass = SP_W, .mb = 12, .chunk = 2}, 0, "W12.2"},
        {{.pass = SP_B, .mb = 3, .slice = 1}, 1, "B3s1"},
        {{.pass = SP_R, .mb = 3, .chunk = 1, .slice = 4}, 1, "R3.1s4"},
        {{.pass = SP_F, .part = SP_ATTN, .mb = 5, .chunk = 9}, 0, "A5.9"},
        {{.pass = SP_B, .part = SP_ATTN, .mb = 5, .chunk = 0}, 0, "bA5.0"},
        {{.pass = SP_B, .part = SP_BLOCK, .mb = 0, .chunk = 4}, 0, "bP0.4"},
        {{.pass = SP_F, .part = SP_HEAD, .mb = 6}, 0, "L6"},
        {{.pass = SP_B, .mb = 2147483647, .chunk = 2147483647, .slice = 65535},
         1,
         "B2147483647.2147483647s65535"},
    };
    char text[SP_OP_TEXT];

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_string_equal(sp_op_print(&table[i].op, table[i].sliced, text), table[i].text);
}

TEST(refuses_what_is_no_op)
{
    static const char *const bad[] = {"",       "F",    "3",     "F.0",   "F3.",           "F3.0x",
                                      "F3s",    "G3.0", "F-1.0", "F+1.0", "F3.0s65536",    "F 3.0",
                                      "f3.0",   "bF3",  "b3",    "bb3",   "F2147483648.0", "F3..0",
                                      "F3s1.0", "L",    "rw1"};
    struct sp_op op = {.mb = 77};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (sp_op_parse(bad[i], &op) != -EINVAL)
            fail_msg("'%s' was accepted", bad[i]);
    }
    assert_int_equal(op.mb, 77); /* set only on success */
}

TEST(programs_grow)
{
    struct sp_program prog = {0};

    for (int i = 0; i < 1000; i++)
        sp_program_add(&prog, i % 3 ? SP_F : SP_W, i, i % 5);
    assert_int_equal(prog.n, 1000);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(prog.ops[i].pass, i % 3 ? SP_F : SP_W);
        assert_int_equal(prog.ops[i].part, SP_CHUNK);
        assert_int_equal(prog.ops[i].mb, i);
        assert_int_equal(prog.ops[i].chunk, i % 5);
    }
    sp_program_clear(&prog);
    assert_null(prog.ops);
    assert_int_equal(prog.n, 0);
}

TEST(reads_layout_options)
{
    struct sp_layout lay = {.options = "group=12,fold=-3,name=long,no=4x,big=99999999999,e="};
    char text[8] = "before", tiny[3];
    int ok = 1;

    assert_int_equal(sp_layout_option_int(&lay, "group", 5, &ok), 12);
    assert_int_equal(sp_layout_option_int(&lay, "fold", 5, &ok), -3);
    assert_int_equal(sp_layout_option_int(&lay, "absent", 5, &ok), 5);
    assert_int_equal(sp_layout_option_int(&lay, "roup", 6, &ok), 6); /* not the tail of a key */
    assert_int_equal(ok, 1);
    assert_int_equal(sp_layout_option_int(&lay, "no", 7, &ok), 7);
    assert_int_equal(ok, 0);
    ok = 1;
    sp_layout_option_int(&lay, "big", 7, &ok);
    assert_int_equal(ok, 0);
    ok = 1;
    sp_layout_option_int(&lay, "e", 7, &ok);
    assert_int_equal(ok, 0);
    assert_int_equal(sp_layout_option(&lay, "absent", text, sizeof text), 0);
    assert_string_equal(text, "before");
    assert_int_equal(sp_layout_option(&lay, "name", text, sizeof text), 1);
    assert_string_equal(text, "long");
    assert_int_equal(sp_layout_option(&lay, "name", tiny, sizeof tiny), 1);
    assert_string_equal(tiny, "lo");
}
