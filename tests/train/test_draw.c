/* Draws of the next token against the probabilities that they are drawn by. */
#include "model/support.h"
#include "train/run/draw.h"
#include <errno.h>
#include <math.h>
#include <string.h>

enum { VOCAB = 6, DRAWS = 20000 };

/* In no order, two of them equal. */
static const float logits[VOCAB] = {0.5f, 2.0f, -1.0f, 2.5f, 0.5f, 1.0f};

/* The most that a frequency may be off: five times the deviation of one of DRAWS draws. */
static double tolerance(double p)
{
    return 5 * sqrt(p * (1 - p) / DRAWS) + 1e-9;
}

/* Draws of all that `how` allows have the probabilities p[VOCAB], and tokens with none never come. */
static void check_frequencies(const struct sp_sampling *how, const double *p)
{
    int counts[VOCAB] = {0};
    uint64_t state = 17;
    int32_t room[VOCAB];

    for (int i = 0; i < DRAWS; i++)
        counts[sp_draw(logits, VOCAB, how, &state, room)]++;
    for (int i = 0; i < VOCAB; i++) {
        double f = counts[i] / (double)DRAWS;

        if (fabs(f - p[i]) > tolerance(p[i]) || (p[i] == 0 && counts[i]))
            fail_msg("token %d: %.4f of the draws, not %.4f", i, f, p[i]);
    }
}

/* softmax(logits / temperature) over the tokens that are kept, 0 elsewhere. */
static void expect(double temperature, const bool kept[VOCAB], double p[VOCAB])
{
    double sum = 0;

    for (int i = 0; i < VOCAB; i++)
        sum += p[i] = kept[i] ? exp(logits[i] / temperature) : 0;
    for (int i = 0; i < VOCAB; i++)
        p[i] /= sum;
}

TEST(test_all)
{
    static const double temperatures[] = {0.3, 1, 4};
    const bool kept[VOCAB] = {true, true, true, true, true, true};
    double p[VOCAB];

    for (int i = 0; i < 3; i++) {
        struct sp_sampling how = {.tokens = 1, .temperature = temperatures[i], .top_p = 1};

        expect(temperatures[i], kept, p);
        check_frequencies(&how, p);
        how.top_k = VOCAB + 3;
        check_frequencies(&how, p);
    }
}

TEST(test_top_k)
{
    const bool two[VOCAB] = {[1] = true, [3] = true};
    const bool four[VOCAB] = {
        [0] = true, [1] = true, [3] = true, [5] = true}; /* of equals the first */
    double p[VOCAB];

    expect(0.7, two, p);
    check_frequencies(&(struct sp_sampling){.temperature = 0.7, .top_k = 2, .top_p = 1}, p);
    expect(0.7, four, p);
    check_frequencies(&(struct sp_sampling){.temperature = 0.7, .top_k = 4, .top_p = 1}, p);
}

/* At temperature 1 the tokens have 0.469, 0.285, 0.105, 0.064 twice, 0.014 of the whole... */
TEST(test_top_p)
{
    const bool one[VOCAB] = {[3] = true}, two[VOCAB] = {[1] = true, [3] = true};
    const bool three[VOCAB] = {[1] = true, [3] = true, [5] = true};
    double p[VOCAB];

    expect(1, one, p);
    check_frequencies(&(struct sp_sampling){.temperature = 1, .top_p = 0.4}, p);
    expect(1, two, p);
    check_frequencies(&(struct sp_sampling){.temperature = 1, .top_p = 0.6}, p);
    expect(1, three, p);
    check_frequencies(&(struct sp_sampling){.temperature = 1, .top_p = 0.8}, p);
    /* ... and of the three likeliest 0.547, 0.331, 0.122: it is a share of those */
    expect(1, two, p);
    check_frequencies(&(struct sp_sampling){.temperature = 1, .top_k = 3, .top_p = 0.8}, p);
    expect(1, three, p);
    check_frequencies(&(struct sp_sampling){.temperature = 1, .top_k = 3, .top_p = 0.9}, p);
}

/* The k likeliest by a sort of their own are the tokens that come. */
TEST(test_large)
{
    enum { N = 1000, K = 7 };
    static float large[N];
    static int32_t room[N];
    struct sp_sampling how = {.temperature = 5, .top_k = K, .top_p = 1}, greedy = {.top_p = 1};
    uint64_t at = 3, x = 1;

    for (int i = 0; i < N; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        large[i] = (float)(x >> 40) / 1e6f;
    }
    for (int i = 0; i < 500; i++) {
        int32_t token = sp_draw(large, N, &how, &at, room);
        int above = 0;

        for (int j = 0; j < N; j++)
            above += large[j] > large[token];
        assert_true(above < K);
    }
    how.top_k = 1;
    assert_int_equal(sp_draw(large, N, &how, &at, room), sp_draw(large, N, &greedy, &at, room));
    assert_int_equal(sp_draw(large, 1, &how, &at, room), 0);
}

TEST(test_greedy)
{
    struct sp_sampling how = {.top_p = 1};
    const float equal[4] = {1, 3, 3, 2};
    uint64_t at = 5;
    int32_t room[VOCAB];

    assert_int_equal(sp_draw(logits, VOCAB, &how, &at, room), 3);
    assert_int_equal(sp_draw(equal, 4, &how, &at, room), 1);
    assert_true(at == 5); /* nothing is drawn */
}

/* The draws of a seed stay what they are: the first eight of two seeds. */
TEST(test_seeds)
{
    struct sp_sampling how = {.temperature = 1, .top_p = 1};
    uint64_t at[3] = {1, 1, 2};
    int32_t drawn[3][32], room[VOCAB];

    for (int s = 0; s < 3; s++)
        for (int i = 0; i < 32; i++)
            drawn[s][i] = sp_draw(logits, VOCAB, &how, &at[s], room);
    assert_memory_equal(drawn[0], drawn[1], sizeof drawn[0]);
    assert_memory_not_equal(drawn[0], drawn[2], sizeof drawn[0]);
}

TEST(test_refused)
{
    static const struct {
        struct sp_sampling how;
        const char *word;
    } cases[] = {
        {{.tokens = 0, .temperature = 1, .top_p = 1}, "0 tokens"},
        {{.tokens = 1, .temperature = -1, .top_p = 1}, "temperature of -1"},
        {{.tokens = 1, .temperature = NAN, .top_p = 1}, "temperature of nan"},
        {{.tokens = 1, .temperature = INFINITY, .top_p = 1}, "temperature of inf"},
        {{.tokens = 1, .temperature = 1, .top_k = -1, .top_p = 1}, "top_k of -1"},
        {{.tokens = 1, .temperature = 1, .top_p = 0}, "top_p of 0"},
        {{.tokens = 1, .temperature = 1, .top_p = 1.5}, "top_p of 1.5"},
        {{.tokens = 1, .temperature = 1, .top_p = NAN}, "top_p of nan"},
    };
    const struct sp_sampling fine = SP_SAMPLING_DEFAULT;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct capture c;

        assert_says(&c, sp_sampling_check(&cases[i].how, "here"), -EINVAL, cases[i].word,
                    cases[i].word);
    }
    assert_int_equal(sp_sampling_check(&fine, "here"), 0);
}
