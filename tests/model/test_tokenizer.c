/*
 * Tokenizers: the ids and the text that the `tokenizers` package has for lines in many scripts
 * (data/tokenizers/make.py), text that is cut or decoded piece by piece, words matched by hand and by PCRE2, and
 * files that are refused.
 */
#include "quotes.h"
#include "support.h"
#include "model/files/input.h"
#include "model/tokenizer/regex.h"
#include "model/tokenizer/stream.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/words.h"
#include "sp_error.h"
#include <jansson.h>

static const char *const forms[] = {"gpt2",        "llama3",  "qwen",    "gpt4o",
                                    "llama2",      "mistral", "unigram", "unigram-bytes",
                                    "unigram-map", "other1",  "other2",  "other3"};
enum { FORMS = sizeof forms / sizeof *forms };

/* Reads a tokenizer.json in single quotes. */
static int parse(const char *json, struct sp_tokenizer **t)
{
    return sp_tokenizer_parse(json_text(json), strlen(json), "t.json", t);
}

struct fixture {
    struct sp_tokenizer *t;
    struct sp_encoder *e;
    json_t *cases;
};

static void fixture_open(struct fixture *f, const char *form)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/tokenizers/%s", SP_TESTDATA, form);
    must(!sp_tokenizer_open(path, &f->t), form);
    f->e = sp_encoder_create(f->t);
    must(f->e != NULL, "sp_encoder_create");
    snprintf(path, sizeof path, "%s/tokenizers/%s/cases.json", SP_TESTDATA, form);
    f->cases = json_load_file(path, JSON_ALLOW_NUL, NULL);
    must(f->cases != NULL, path);
}

static void fixture_close(struct fixture *f)
{
    sp_encoder_destroy(f->e);
    sp_tokenizer_close(f->t);
    json_decref(f->cases);
}

static size_t encode(const struct fixture *f, const char *text, size_t n, unsigned flags,
                     struct sp_ids *ids)
{
    ids->n = 0;
    must(!sp_encode(f->e, text, n, flags, ids), "sp_encode");
    return ids->n;
}

/* Appends the text of all ids; its length. */
static size_t decode(const struct fixture *f, const struct sp_ids *ids, unsigned flags, char *to)
{
    struct sp_decoding d = {.flags = flags};
    struct sp_decode_room room = {0};
    size_t n = 0, len;

    for (size_t i = 0; i < ids->n; i++) {
        must(!sp_decode(f->t, &d, ids->id[i], &room, &len), "sp_decode");
        if (len)
            memcpy(to + n, room.at, len);
        n += len;
    }
    memcpy(to + n, d.waiting, (size_t)d.n_waiting);
    sp_decode_room_free(&room);
    return n + (size_t)d.n_waiting;
}

/* The bytes that the characters of a text in Latin-1 are. */
static size_t bytes_of(const char *text, size_t n, char *to)
{
    const unsigned char *b = (const unsigned char *)text;
    size_t m = 0;

    for (size_t i = 0; i < n; i += b[i] < 0x80 ? 1 : 2)
        to[m++] = (char)(b[i] < 0x80 ? b[i] : (b[i] & 3) << 6 | (b[i + 1] & 63));
    return m;
}

static int check_case(const struct fixture *f, const char *form, const char *kind, const json_t *c)
{
    bool special = !strcmp(kind, "special"), latin1 = !strcmp(kind, "latin1");
    const json_t *line = json_array_get(c, 0), *want = json_array_get(c, 1),
                 *said = json_array_get(c, 2);
    const char *text = json_string_value(line);
    size_t n = json_string_length(line), m;
    struct sp_ids ids = {0};
    char *out = malloc(64 * (n + 64)), *bytes = malloc(n + 1);
    bool same;

    must(out && bytes, "malloc");
    if (latin1) {
        n = bytes_of(text, n, bytes);
        text = bytes;
    }
    encode(f, text, n, special ? SP_ENCODE_SPECIAL : 0, &ids);
    same = ids.n == json_array_size(want);
    for (size_t i = 0; same && i < ids.n; i++)
        same = json_integer_value(json_array_get(want, i)) == ids.id[i];
    m = decode(f, &ids, special ? SP_DECODE_SKIP_SPECIAL : 0, out);
    if (!same)
        print_error("%s, %s: other ids for '%s'\n", form, kind, json_string_value(line));
    if (json_is_string(said) &&
        (m != json_string_length(said) || memcmp(out, json_string_value(said), m))) {
        print_error("%s, %s: '%.*s' for '%s'\n", form, kind, (int)m, out, json_string_value(said));
        same = false;
    }
    sp_ids_free(&ids);
    free(out);
    free(bytes);
    return same ? 0 : 1;
}

TEST(test_golden)
{
    static const char *const kinds[] = {"plain", "special", "latin1"};
    size_t lines = 0, least = FORMS * 150;
    int wrong = 0;

    for (int i = 0; i < FORMS; i++) {
        struct fixture f;

        fixture_open(&f, forms[i]);
        for (int k = 0; k < 3; k++) {
            const json_t *cases = json_object_get(f.cases, kinds[k]);

            for (size_t c = 0; c < json_array_size(cases); c++, lines++)
                wrong += check_case(&f, forms[i], kinds[k], json_array_get(cases, c));
        }
        fixture_close(&f);
    }
    print_message("%zu lines of %d tokenizers, %d differ\n", lines, FORMS, wrong);
    assert_true(lines >= least);
    assert_int_equal(wrong, 0);
}

/* All lines of the cases, with words between them. */
static char *all_lines(const struct fixture *f, size_t *n)
{
    const json_t *cases = json_object_get(f->cases, "plain");
    char *text = malloc(1 << 20);

    must(text != NULL, "malloc");
    *n = 0;
    for (size_t c = 0; c < json_array_size(cases); c++) {
        const json_t *line = json_array_get(json_array_get(cases, c), 0);

        memcpy(text + *n, json_string_value(line), json_string_length(line));
        *n += json_string_length(line);
        *n += (size_t)sprintf(text + *n, "%s", c % 3 ? " of the text\n" : "the\nnext \xff line");
    }
    return text;
}

/* Places between words that white space, which looks ahead, does not reach. */
TEST(test_cut_places)
{
    static const struct {
        const char *text;
        size_t from, place; /* 0: the end of the text */
    } cases[] = {
        {"the cat", 0, 3},         {"the cat", 3, 3},        {"the cat", 4, 0},
        {"the  cat", 4, 0},        {"a\nb", 0, 2},           {"a \nb", 2, 0},
        {"a\n\nb", 0, 0},          {"a\n b", 0, 0},          {"\nb", 0, 0},
        {"\xff\nb", 0, 0},         {"a\n\xff", 0, 0},        {"\xe5\xad\x97\n\xe5\xad\x97", 0, 4},
        {"a\n\xe3\x80\x80", 0, 0}, {"\xe3\x80\x80\na", 0, 0}};
    /* Its spaces become letters before it is cut. */
    static const char joined[] =
        "{'normalizer':{'type':'Replace','pattern':{'String':' '},'content':'b'},"
        "'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':false},"
        "'model':{'vocab':{'a':0,'b':1,'ab':2},'merges':['a b']}}";
    struct sp_tokenizer *t;
    struct fixture f;

    fixture_open(&f, "gpt2");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].text);

        assert_int_equal(sp_tokenizer_cut(f.t, cases[i].text, n, cases[i].from),
                         cases[i].place ? cases[i].place : n);
    }
    fixture_close(&f);
    assert_int_equal(parse(joined, &t), 0);
    assert_int_equal(sp_tokenizer_cut(t, "a b", 3, 0), 3);
    sp_tokenizer_close(t);
}

/* Cut wherever it may be, text has the ids of the whole. Tokenizers whose steps depend on more are never cut. */
TEST(test_cut)
{
    for (int i = 0; i < FORMS; i++) {
        bool never = !strncmp(forms[i], "other", 5) || !strcmp(forms[i], "unigram-bytes") ||
                     !strcmp(forms[i], "gpt4o");
        struct sp_ids whole = {0}, part = {0}, parts = {0};
        struct fixture f;
        size_t n, cuts = 0;
        char *text;

        fixture_open(&f, forms[i]);
        text = all_lines(&f, &n);
        encode(&f, text, n, SP_ENCODE_AROUND, &whole);
        for (size_t at = 0, end; at < n; at = end, cuts++) {
            end = at + sp_tokenizer_cut(f.t, text + at, n - at, 1);
            encode(&f, text + at, end - at,
                   SP_ENCODE_AROUND | (at ? SP_ENCODE_CONTINUED : 0) |
                       (end < n ? SP_ENCODE_UNFINISHED : 0),
                   &part);
            for (size_t k = 0; k < part.n; k++)
                sp_ids_add(&parts, part.id[k]);
        }
        print_message("%s: %zu parts\n", forms[i], cuts);
        assert_int_equal(parts.n, whole.n);
        assert_memory_equal(parts.id, whole.id, whole.n * sizeof *whole.id);
        assert_true(never || cuts > 300);
        sp_ids_free(&whole);
        sp_ids_free(&part);
        sp_ids_free(&parts);
        free(text);
        fixture_close(&f);
    }
}

static bool is_utf8(const char *text, size_t n)
{
    json_t *string = json_stringn(n ? text : "", n);
    bool valid = string != NULL;

    json_decref(string);
    return valid;
}

/* Told to, decoding gives whole characters, of text that is valid, and in all the text; every byte of any text comes
 * back where the vocabulary has bytes. */
TEST(test_stream)
{
    static const char line[] =
        "caf\xc3\xa9 \xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd\xe5\xad\x97 \xe0\xb8\xa0";
    static const char *const all[] = {"gpt2", "llama3", "gpt4o", "llama2"};
    char bytes[256 * 3], out[8192];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 167);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct sp_decoding d = {.flags = SP_DECODE_CHARACTERS};
        struct sp_decode_room room = {0};
        struct sp_ids ids = {0};
        struct fixture f;
        size_t n = 0, len;

        fixture_open(&f, all[i]);
        encode(&f, line, sizeof line - 1, 0, &ids);
        for (size_t k = 0; k < ids.n; k++) {
            assert_int_equal(sp_decode(f.t, &d, ids.id[k], &room, &len), 0);
            assert_true(is_utf8(room.at, len));
            if (len)
                memcpy(out + n, room.at, len);
            n += len;
        }
        assert_int_equal(n, sizeof line - 1);
        assert_memory_equal(out, line, n);
        encode(&f, bytes, sizeof bytes, 0, &ids);
        assert_int_equal(decode(&f, &ids, 0, out), sizeof bytes);
        assert_memory_equal(out, bytes, sizeof bytes);
        assert_int_equal(decode(&f, &ids, SP_DECODE_CHARACTERS, out), sizeof bytes);
        assert_memory_equal(out, bytes, sizeof bytes);
        sp_decode_room_free(&room);
        sp_ids_free(&ids);
        fixture_close(&f);
    }
}

/* Many equal letters are no more work a letter than few. */
TEST(test_long_word)
{
    enum { LETTERS = 200000 };
    char *text = malloc(LETTERS), *out = malloc(2 * LETTERS);

    must(text && out, "malloc");
    for (int i = 0; i < FORMS; i++) {
        struct sp_ids ids = {0};
        struct fixture f;

        if (!strncmp(forms[i], "other", 5))
            continue;
        fixture_open(&f, forms[i]);
        memset(text, 'e', LETTERS);
        encode(&f, text, LETTERS, 0, &ids);
        assert_int_equal(decode(&f, &ids, 0, out), LETTERS);
        assert_memory_equal(out, text, LETTERS);
        sp_ids_free(&ids);
        fixture_close(&f);
    }
    free(text);
    free(out);
}

static uint64_t draw(uint64_t *rng, uint64_t below)
{
    *rng = *rng * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (*rng >> 33) % below;
}

/* ---- files of text ----------------------------------------------------------------------------- */

static int keep_ids(void *to, const uint32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sp_ids_add(to, ids[i]);
    return 0;
}

/* Documents that the text is made of, and what is between them. */
static const struct {
    enum sp_documents_by by;
    const char *between;
} divisions[] = {{SP_DOCUMENTS_FILE, NULL},
                 {SP_DOCUMENTS_BLANK_LINE, "\n\n"},
                 {SP_DOCUMENTS_BLANK_LINE, "\r\n \t\r\n"},
                 {SP_DOCUMENTS_EOS, "<|endoftext|>"},
                 {SP_DOCUMENTS_EOS, "<|endoftext|><|endoftext|>"}};

/* A document of some lines of the cases, without what would be between two. */
static size_t make_document(const struct fixture *f, uint64_t *rng, char *to)
{
    const json_t *cases = json_object_get(f->cases, "plain");
    size_t n = 0;

    for (uint64_t k = draw(rng, 9); k; k--) {
        const json_t *line =
            json_array_get(json_array_get(cases, draw(rng, json_array_size(cases))), 0);

        for (size_t i = 0; i < json_string_length(line); i++)
            if (!memchr("\n\r<", json_string_value(line)[i], 3))
                to[n++] = json_string_value(line)[i];
        n += (size_t)sprintf(to + n, " end%s", k > 1 && k % 2 ? "\n" : "");
    }
    return n;
}

/* Files have the ids of their documents, whatever is read and encoded at once. */
TEST(test_files)
{
    uint64_t rng = 5;
    char *text = malloc(1 << 20);
    struct fixture f;

    must(text != NULL, "malloc");
    fixture_open(&f, "llama3");
    for (int round = 0; round < 200; round++) {
        size_t d = (size_t)round % (sizeof divisions / sizeof *divisions), n = 0;
        const char *between = divisions[d].between;
        bool blank = divisions[d].by == SP_DOCUMENTS_BLANK_LINE;
        uint64_t documents = 0;
        struct sp_ids want = {0}, got = {0}, part = {0};
        struct sp_tokenizing z = {.t = f.t,
                                  .flags = SP_ENCODE_AROUND,
                                  .threads = 1 + round % 3,
                                  .by = divisions[d].by,
                                  .separator = round % 2 ? 3 : -1,
                                  .write = keep_ids,
                                  .to = &got,
                                  .chunk_bytes = 1 + draw(&rng, 100),
                                  .window_bytes = 2 + draw(&rng, 400)};
        FILE *file;

        for (uint64_t k = between ? 1 + draw(&rng, 12) : 1; k; k--) {
            size_t at = n;

            n += make_document(&f, &rng, text + n);
            if (n == at)
                continue;
            if (blank) /* which ends the last line of the document too */
                n += (size_t)sprintf(text + n, "%s", *between == '\r' ? "\r\n" : "\n");
            encode(&f, text + at, n - at, SP_ENCODE_AROUND, &part);
            keep_ids(&want, part.id, part.n);
            if (z.separator >= 0)
                sp_ids_add(&want, 3);
            documents++;
            if (between)
                n += (size_t)sprintf(text + n, "%s", blank ? strchr(between, '\n') + 1 : between);
        }
        if (!n)
            continue;
        file = fmemopen(text, n, "rb");
        must(file != NULL, "fmemopen");
        assert_int_equal(sp_tokenize_file(&z, file, "text"), 0);
        fclose(file);
        assert_int_equal(z.bytes, n);
        assert_int_equal(z.documents, documents);
        assert_int_equal(z.tokens, want.n);
        assert_int_equal(got.n, want.n);
        assert_memory_equal(got.id, want.id, want.n * sizeof *want.id);
        sp_ids_free(&want);
        sp_ids_free(&got);
        sp_ids_free(&part);
    }
    free(text);
    fixture_close(&f);
}

/* ---- words ------------------------------------------------------------------------------------- */

/* Words that are matched by hand end where PCRE2 says. */
TEST(test_words)
{
    static const char *const patterns[] = {
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
        "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
        "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"};
    char listed[] =
        " | |  |\n|\r\n|\t|\xc2\xa0|\xe3\x80\x80|\xc2\x85|a|Z|st|\xc3\xa9|\xe5\xad\x97|"
        "\xcc\x81|1|22|\xd9\xa3|\xc2\xbd|'|'s|'S|'\xc5\xbf|'ll|'LL|'re|'vE|'M|'d|'T|!|--|"
        "\xe2\x80\x94|\xf0\x9f\x98\x80|\xe2\x80\x8d|_";
    char *parts[36], *rest = listed;
    struct sp_matcher *m = sp_matcher_create();
    uint64_t rng = 1;
    size_t words = 0;
    char text[512];

    must(m != NULL, "sp_matcher_create");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        parts[i] = strsep(&rest, "|");
    assert_null(rest);
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        const struct sp_words *w = sp_words_of(patterns[p]);
        struct sp_regex *re;

        assert_non_null(w);
        assert_int_equal(sp_regex_create(patterns[p], strlen(patterns[p]), "test", &re), 0);
        for (int round = 0; round < 20000 / test_every(4); round++) {
            size_t n = 0, at = 0, match[2];

            for (uint64_t k = 1 + draw(&rng, 24); k; k--)
                n += (size_t)sprintf(text + n, "%s",
                                     parts[draw(&rng, sizeof parts / sizeof *parts)]);
            for (; at < n; at = match[1], words++) {
                assert_int_equal(sp_regex_find(re, m, text, n, at, match), 1);
                if (match[0] != at || match[1] != sp_word_end(w, text, n, at))
                    fail_msg("pattern %zu, '%s': the word at %zu ends at %zu, not at %zu", p, text,
                             at, match[1], sp_word_end(w, text, n, at));
            }
        }
        sp_regex_destroy(re);
    }
    assert_null(sp_words_of("\\p{L}+"));
    sp_matcher_destroy(m);
    print_message("%zu words\n", words);
}

/* Checks the first match of a pattern. */
static void find_one(const char *pattern, const char *text, size_t from, size_t to)
{
    struct sp_matcher *m = sp_matcher_create();
    struct sp_regex *re;
    size_t match[2] = {0, 0};

    must(m && !sp_regex_create(pattern, strlen(pattern), "test", &re), pattern);
    assert_int_equal(sp_regex_find(re, m, text, strlen(text), 0, match), to > from);
    assert_int_equal(match[0], from);
    assert_int_equal(match[1], to);
    sp_regex_destroy(re);
    sp_matcher_destroy(m);
}

/* Patterns that Oniguruma writes in another way, or means something else by. */
TEST(test_regex)
{
    static const char *const refused[] = {
        "[a&&b]", "[a[bc]]", "\\bx",        "(?<n>x)", "a{1,2}+",       "\\K", "(*ACCEPT)",
        "\\1",    "[]a]",    "[[:alpha:]]", "(?x: a)", "\\p{Nonsense}", "(",   "x\\"};
    struct sp_regex *re = NULL;
    struct capture c;

    find_one("\\s", "\xe1\xa0\x8e\xe3\x80\x80", 3, 6); /* U+180E is no white space */
    find_one("\\h+", "x19aFg", 1, 5);
    find_one("a{,2}b", "aaab", 1, 4);
    find_one("\\u0041", "xA", 1, 2);
    find_one("\\x{1f600}|\\x41", "\xf0\x9f\x98\x80", 0, 4);
    find_one("^b$", "a\nb\nc", 2, 3);
    find_one("[^\\S\\n]+", "a\n \tb", 2, 4);
    find_one("\\p{^Lu}", "Aa", 1, 2);
    find_one("\\P{Han}", "\xe5\xad\x97-", 3, 4);
    find_one("(?i:K)", "\xe2\x84\xaa", 0, 3);
    find_one("x", "y", 0, 0);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_says(&c, sp_regex_create(refused[i], strlen(refused[i]), "test", &re), -EINVAL,
                    "regular expression", refused[i]);
    }
}

/* ---- files ------------------------------------------------------------------------------------- */

/* A tokenizer of two letters, in which something is replaced. */
#define LETTERS(before, model)                                                                     \
    "{'version':'1.0'," before                                                                     \
    "'model':{'type':'BPE','vocab':{'a':0,'b':1,'ab':2},'merges':['a b']" model "}}"

TEST(test_refused)
{
    static const struct {
        const char *json, *said;
    } refused[] = {
        {"", "line"},
        {"[]", "no JSON object"},
        {"{}", "model"},
        {"{'model':{'type':'WordPiece','vocab':{'a':0}}}", "WordPiece"},
        {LETTERS("'something':1,", ""), "something"},
        {LETTERS("", ",'dropout':0.1"), "dropout"},
        {LETTERS("", ",'end_of_word_suffix':'</w>'"), "end_of_word_suffix"},
        {LETTERS("", ",'continuing_subword_prefix':'##'"), "continuing_subword_prefix"},
        {LETTERS("", ",'unk_token':'<unk>'"), "<unk>"},
        {LETTERS("", ",'fuse_unk':3"), "fuse_unk"},
        {LETTERS("", ",'nonsense':null"), "nonsense"},
        {LETTERS("'normalizer':{'type':'BertNormalizer'},", ""), "BertNormalizer"},
        {LETTERS("'normalizer':{'type':'Precompiled','precompiled_charsmap':'AAA*'},", ""),
         "damaged"},
        {LETTERS("'normalizer':{'type':'Precompiled','precompiled_charsmap':'/wAAAAAAAAA='},", ""),
         "damaged"},
        {LETTERS("'normalizer':{'type':'Sequence','normalizers':[{'type':'Nmt'}]},", ""), "Nmt"},
        {LETTERS("'normalizer':{'type':'Replace','pattern':{'Regex':'('},'content':''},", ""),
         "'('"},
        {LETTERS("'normalizer':{'type':'Replace','pattern':'x','content':''},", ""), "pattern"},
        {LETTERS("'normalizer':{},", ""), "type"},
        {LETTERS("'pre_tokenizer':{'type':'UnicodeScripts'},", ""), "UnicodeScripts"},
        {LETTERS("'pre_tokenizer':{'type':'Split','pattern':{'String':'x'},'behavior':'Sideways'},",
                 ""),
         "Sideways"},
        {LETTERS("'pre_tokenizer':{'type':'Metaspace','prepend_scheme':'sometimes'},", ""),
         "sometimes"},
        {LETTERS("'decoder':{'type':'WordPiece'},", ""), "WordPiece"},
        {LETTERS("'post_processor':{'type':'TemplateProcessing','single':[{'Sequence':{'id':'A'}},{"
                 "'SpecialToken':{'id':'<s>'}}],'special_tokens':{}},",
                 ""),
         "<s>"},
        {LETTERS("'added_tokens':[{'id':1,'content':'c'}],", ""), "id 1"},
        {LETTERS("'added_tokens':[{'id':5,'content':'a'}],", ""), "id 5"},
        {LETTERS("'added_tokens':[{'id':5,'content':'c'},{'id':5,'content':'d'}],", ""), "id 5"},
        {LETTERS("'added_tokens':[{'id':4294967296,'content':'c'}],", ""), "4294967296"},
        {LETTERS("'added_tokens':[{'id':5}],", ""), "content"},
        {"{'model':{'vocab':{'a':0,'b':0},'merges':[]}}", "id 0"},
        {"{'model':{'vocab':{'a':-1},'merges':[]}}", "'a'"},
        {"{'model':{'vocab':{'a':4194304},'merges':[]}}", "'a'"},
        {"{'model':{'vocab':{},'merges':[]}}", "vocab"},
        {"{'model':{'vocab':{'a':0,'b':1},'merges':['a b']}}", "merge 0"},
        {"{'model':{'vocab':{'a':0,'b':1,'ab':2},'merges':['a b','ab c']}}", "'c'"},
        {"{'model':{'vocab':{'a':0,'aa':1},'merges':['a a a']}}", "merge 0"},
        {"{'model':{'vocab':{'a':0,'':1},'merges':[['','a']]}}", "merge 0"},
        {"{'model':{'vocab':{'a':0,'a':1},'merges':[]}}", "line"},
        {"{'model':{'type':'Unigram','unk_id':2,'vocab':[['a',0]]}}", "unk_id"},
        {"{'model':{'type':'Unigram','vocab':[['a','b']]}}", "token 0"},
        {"{'model':{'type':'Unigram','vocab':[]}}", "vocab"},
    };
    struct sp_tokenizer *t = NULL;
    struct capture c;

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        capture_begin(&c);
        if (!parse(refused[i].json, &t))
            fail_msg("accepted: %s", refused[i].json);
        assert_said(capture_end(&c), refused[i].said, refused[i].json);
        assert_null(t);
    }
    assert_int_equal(parse(LETTERS("", ""), &t), 0);
    sp_tokenizer_close(t);
}

/* Unigram without unk has nothing for a character that is in no token. */
TEST(test_unknown)
{
    static const char unigram[] = "{'model':{'type':'Unigram','vocab':[['a',0]]}}";
    struct sp_tokenizer *t;
    struct sp_ids ids = {0};
    struct sp_encoder *e;
    struct capture c;

    assert_int_equal(parse(unigram, &t), 0);
    e = sp_encoder_create(t);
    assert_non_null(e);
    assert_int_equal(sp_encode(e, "aa", 2, 0, &ids), 0);
    assert_int_equal(ids.n, 2);
    assert_says(&c, sp_encode(e, "ab", 2, 0, &ids), -ENOENT, "no unk", "an unknown character");
    sp_encoder_destroy(e);
    sp_tokenizer_close(t);
    sp_ids_free(&ids);
}

/* Special tokens by their content, or by their ids; a vocabulary as large as the model's; what is not there. */
SCRATCH_TEST(test_directory)
{
    struct sp_tokenizer *t = NULL;
    struct capture c;

    assert_says(&c, sp_tokenizer_open(scratch, &t), -ENOENT, "has no tokenizer.json",
                "an empty directory");
    put_text("tokenizer.json",
             json_text(LETTERS("'added_tokens':[{'id':7,'content':'<s>','special':true}],", "")));
    assert_int_equal(sp_tokenizer_open(scratch, &t), 0);
    assert_int_equal(sp_tokenizer_vocab(t), 8);
    assert_int_equal(sp_tokenizer_special(t, SP_TOKEN_BOS), -1);
    assert_int_equal(sp_tokenizer_id(t, "ab", 2), 2);
    assert_int_equal(sp_tokenizer_id(t, "<s>", 3), 7);
    assert_int_equal(sp_tokenizer_id(t, "x", 1), -1);
    sp_tokenizer_close(t);
    put_text("tokenizer_config.json", json_text("{'bos_token':{'content':'<s>'},'eos_token':'a'}"));
    put_text("config.json",
             json_text("{'vocab_size':12,'bos_token_id':0,'pad_token_id':3,'eos_token_id':[1,2]}"));
    assert_int_equal(sp_tokenizer_open(scratch, &t), 0);
    assert_int_equal(sp_tokenizer_vocab(t), 12);
    assert_int_equal(sp_tokenizer_special(t, SP_TOKEN_BOS), 7);
    assert_int_equal(sp_tokenizer_special(t, SP_TOKEN_EOS), 0);
    assert_int_equal(sp_tokenizer_special(t, SP_TOKEN_PAD), 3);
    sp_tokenizer_close(t);
    put_text("generation_config.json", json_text("{"));
    assert_says(&c, sp_tokenizer_open(scratch, &t), -EINVAL, "generation_config.json",
                "a damaged file");
    must(!truncate(in_scratch("tokenizer.json"), (off_t)SP_TOKENIZER_MAX_BYTES + 1), "truncate");
    assert_says(&c, sp_tokenizer_open(scratch, &t), -EINVAL, "at most", "a large file");
}
