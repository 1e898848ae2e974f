/* Documents in sequences: every token is in one segment, at its position in its document, however
 * sequences are cut. */
#include "odd_models.h"
#include "support.h"
#include "model/documents.h"

enum { SEPARATOR = 3, BATCH = 3, SEQ = 48, ROUNDS = 200 };

/* Finds the beginning of token t's document by looking back. */
static int begins(const int32_t *row, int t)
{
    while (t > 0 && row[t - 1] != SEPARATOR)
        t--;
    return t;
}

/* The rows of a shape, from its runs: token and sequence of each. */
static void rows_of(const struct sp_shape *sh, int *token, int *sequence)
{
    int row = 0;

    for (int i = 0; i < sp_shape_runs(sh); i++) {
        struct sp_tokens_run run = sp_shape_run(sh, i);

        assert_int_equal(run.row, row);
        for (int b = 0; b < sh->batch; b++)
            for (int t = 0; t < run.len; t++, row++) {
                token[row] = run.first + t * sh->stride;
                sequence[row] = b;
            }
    }
    assert_int_equal(row, sh->rows);
}

static void check(const struct sp_shape *sh, const struct sp_documents *d,
                  int32_t tokens[BATCH][SEQ])
{
    int token[BATCH * SEQ], sequence[BATCH * SEQ], seen[BATCH * SEQ] = {0};
    struct sp_segment s = {0};

    rows_of(sh, token, sequence);
    while (sp_segment_next(sh, d, &s)) {
        assert_int_equal(s.sequences, d ? 1 : sh->batch);
        assert_true(s.len > 0);
        for (int i = 0; i < s.sequences * s.len; i++) {
            size_t row = s.row + (size_t)i;
            const int32_t *of = tokens[sequence[row]];
            int begin = d ? begins(of, token[row]) : 0;

            assert_int_equal(seen[row]++, 0);
            assert_int_equal(s.position + i % s.len * sh->stride, token[row] - begin);
            assert_int_equal(s.first + i % s.len * sh->stride, token[row]);
        }
    }
    for (int row = 0; row < sh->rows; row++)
        assert_int_equal(seen[row], 1);
}

/* Checks the parts that members have of a slice: each token is in one. */
static void check_members(const struct sp_shape *slice, const struct sp_documents *d,
                          int32_t tokens[BATCH][SEQ])
{
    int of[SEQ] = {0};

    for (int part = 0; part < slice->context; part++) {
        int token[BATCH * SEQ], sequence[BATCH * SEQ];
        struct sp_shape member;

        sp_shape_member(slice, part, 0, &member);
        check(&member, d, tokens);
        check(&member, NULL, tokens);
        rows_of(&member, token, sequence);
        for (int row = 0; row < member.rows; row++)
            of[token[row]] += sequence[row] == 0;
    }
    for (int t = 0; t < SEQ; t++)
        assert_int_equal(of[t], t >= slice->first && t < slice->first + slice->seq);
}

/* Checks a whole sequence, its slices, and the parts that 1 to 4 members have of those. */
static void check_shapes(const struct sp_documents *d, int32_t tokens[BATCH][SEQ])
{
    const struct sp_model m = LLAMA_MODEL("", 1, 8, 4, 4, 2, 8, 8, SEQ, .tied = false);

    for (int members = 1; members <= 4; members++)
        for (int ulysses = 1; ulysses <= members; ulysses++)
            for (int from = 0; from < SEQ; from += SEQ / 2) {
                struct sp_shape whole, slice;

                if (members % ulysses)
                    continue;
                sp_shape_init(&whole, &m, BATCH, SEQ, 1);
                sp_shape_context(&whole, members, ulysses);
                sp_shape_slice(&whole, from, SEQ / 2, &slice);
                check_members(&slice, d, tokens);
                sp_shape_stripe(&whole);
                sp_shape_slice(&whole, from + members, SEQ / 2 - members, &slice);
                check_members(&slice, d, tokens);
            }
}

TEST(segments)
{
    int32_t tokens[BATCH][SEQ];
    struct sp_documents d;

    assert_int_equal(sp_documents_create(&d, BATCH), 0);
    srand(7);
    for (int round = 0; round < ROUNDS; round++) {
        for (int b = 0; b < BATCH; b++) {
            for (int t = 0; t < SEQ; t++) /* many, few, none */
                tokens[b][t] = rand() % (round % 3 == 0 ? 4 : round % 3 == 1 ? 30 : 3);
            assert_int_equal(sp_documents_read(&d, b, tokens[b], SEQ, SEPARATOR), 0);
        }
        check_shapes(&d, tokens);
    }
    sp_documents_destroy(&d);
}
