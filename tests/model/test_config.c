/* Presets, config.json in and out, and every refusal with its reason. */
#include "odd_models.h"
#include "quotes.h"
#include "support.h"
#include "model/config_keys.h"
#include "model/files/dir.h"
#include "model/files/input.h"
#include "model/model.h"
#include <errno.h>
#include <sys/stat.h>

#define GPT2_OF(LAYERS, HIDDEN, HEADS, POSITIONS, VOCAB, MORE)                                     \
    "{'model_type': 'gpt2', 'n_layer': " #LAYERS ", 'n_embd': " #HIDDEN ", 'n_head': " #HEADS      \
    ", 'n_positions': " #POSITIONS ", 'vocab_size': " #VOCAB MORE "}"
#define GPT2(MORE) GPT2_OF(3, 20, 5, 17, 101, MORE)
#define LLAMA_OF(TYPE, MLP, VOCAB, MORE)                                                           \
    "{'model_type': '" TYPE "', 'num_hidden_layers': 3, 'hidden_size': 24, "                       \
    "'num_attention_heads': 6, 'intermediate_size': " #MLP ", 'vocab_size': " #VOCAB               \
    ", 'max_position_embeddings': 99" MORE "}"
#define LLAMA(MORE) LLAMA_OF("llama", 37, 101, MORE)
#define RELATIVE(TYPE, MORE) LLAMA_OF(TYPE, 37, 101, ", 'num_key_value_heads': 2" MORE)
#define LLAMA3(LOW, HIGH, MORE)                                                                    \
    ", 'rope_scaling': {'rope_type': 'llama3', 'factor': 8.0, 'low_freq_factor': " LOW             \
    ", 'high_freq_factor': " HIGH ", 'original_max_position_embeddings': 8192" MORE "}"

static int parse(const char *json, struct sp_model *m)
{
    const char *text = json_text(json);

    return sp_model_parse_config(text, strlen(text), "here", m);
}

static void assert_same(const struct sp_model *a, const struct sp_model *b)
{
    const char *field = model_difference(a, b);

    if (field)
        fail_msg("%s differs", field);
}

/* Writes m as the config.json of the scratch directory and loads it. */
static void round_trip(const struct sp_model *m, struct sp_model *back)
{
    assert_int_equal(sp_model_write_config_in(m, NULL, in_scratch("config.json")), 0);
    assert_int_equal(sp_model_load(scratch, back), 0);
}

SCRATCH_TEST(presets_load_and_round_trip)
{
    static const char *const contract[] = {
        "gpt-tiny", "llama-tiny", "gpt2-124m",   "gpt3-1.3b",   "gpt3-3b",     "gpt3-7b",
        "gpt-13b",  "gpt-65b",    "llama-h1024", "llama-h2048", "llama-h4096", "llama3-405b"};
    const char *const *names = sp_model_presets();
    int n = 0;

    for (; names[n]; n++) {
        struct sp_model m, back;

        assert_string_equal(names[n], contract[n]);
        assert_int_equal(sp_model_load(names[n], &m), 0);
        assert_string_equal(m.name, names[n]);
        assert_int_equal(sp_model_check(&m, names[n]), 0);
        round_trip(&m, &back);
        assert_same(&m, &back);
    }
    assert_int_equal(n, sizeof contract / sizeof contract[0]);
    printf("%d presets\n", n);
}

/* Python's NaN and Infinity, which JSON lacks, are accepted in values that nothing reads. */
TEST(numbers_of_python)
{
    static const char *const harmless[] = {"NaN",
                                           "Infinity",
                                           "-Infinity",
                                           "[0.0, Infinity, {'a': -Infinity}, NaN]",
                                           "1000000000000000019884624838656",
                                           "-99999999999999999999",
                                           "1e999",
                                           "-1e400",
                                           "'NaN, Infinity \\' : NaN'",
                                           "9223372036854775807"};
    struct sp_model m, plain;
    char text[1024];

    assert_int_equal(parse(LLAMA(""), &plain), 0);
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
        snprintf(text, sizeof text, LLAMA(", 'best_metric': %s, 'after' : 1"), harmless[i]);
        assert_int_equal(parse(text, &m), 0);
        assert_same(&m, &plain);
    }
}

/* Every name of an activation, and what is written back. */
SCRATCH_TEST(activations_by_name)
{
    static const struct {
        const char *name;
        enum sp_activation kind;
    } known[] = {{"gelu", SP_GELU},
                 {"gelu_python", SP_GELU},
                 {"gelu_new", SP_GELU_TANH},
                 {"gelu_fast", SP_GELU_TANH},
                 {"gelu_accurate", SP_GELU_TANH},
                 {"gelu_pytorch_tanh", SP_GELU_TANH},
                 {"quick_gelu", SP_GELU_QUICK},
                 {"silu", SP_SILU},
                 {"swish", SP_SILU}};
    char text[1024];
    struct sp_model m, back;

    assert_int_equal(parse(GPT2(""), &m), 0);
    assert_int_equal(sp_model_act(&m), SP_GELU_TANH);
    assert_int_equal(parse(LLAMA(""), &m), 0);
    assert_int_equal(sp_model_act(&m), SP_SILU);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        for (int llama = 0; llama < 2; llama++) {
            if (llama)
                snprintf(text, sizeof text, LLAMA(", 'hidden_act': '%s'"), known[i].name);
            else
                snprintf(text, sizeof text, GPT2(", 'activation_function': '%s'"), known[i].name);
            assert_int_equal(parse(text, &m), 0);
            assert_int_equal(sp_model_act(&m), known[i].kind);
            round_trip(&m, &back);
            assert_string_equal(sp_activation_names[back.act].name, known[i].name);
        }
}

/* Tokens of the tokenizer are written as they were read, those of another vocabulary are not. */
SCRATCH_TEST(tokens_are_kept)
{
    struct sp_model m, back;

    assert_int_equal(
        parse(LLAMA(", 'bos_token_id': 1, 'eos_token_id': [2, 100, 101], 'pad_token_id': 0"), &m),
        0);
    round_trip(&m, &back);
    assert_true(back.bos.n == 1 && !back.bos.list && back.bos.id[0] == 1);
    assert_true(back.eos.n == 2 && back.eos.list && back.eos.id[1] == 100);
    assert_true(back.pad.n == 1 && back.pad.id[0] == 0);
    assert_int_equal(
        parse(GPT2(", 'bos_token_id': 50256, 'eos_token_id': NaN, 'pad_token_id': -1"), &m), 0);
    assert_true(!m.bos.n && !m.eos.n && !m.pad.n);
    round_trip(&m, &back);
    assert_true(!back.bos.n && !back.eos.n && !back.pad.n);
}

/* Everything but the members that are set keeps its bytes. */
TEST(edits_keep_the_rest)
{
    static const struct sp_config_edit edits[] = {
        {"a", "\"new\"", true}, {"b", "[1]", false}, {"c", "3", true}, {0}};
    static const struct {
        const char *text, *edited; /* NULL: refused */
    } cases[] = {
        {"{'a': 0, 'c': 3}", "{'a': 'new', 'c': 3}"},
        {"{'c':3.0 ,'a':'new'}", "{'c':3 ,'a':'new'}"},
        {"{'b': [1 ], 'c': 3, 'a': '\\u006eew'}", /* the same values */
         "{'b': [1 ], 'c': 3, 'a': '\\u006eew'}"},
        {" {\n  'x': NaN,\n  'b': {'a': ['}', '\\']']}\n}\n",
         " {\n  'x': NaN,\n  'b': [1],\n  'a': 'new',\n  'c': 3\n}\n"},
        {"{'x': 1e-05, '\\u0061': null, 'C': -Infinity, 'y': 18446744073709551616}",
         "{'x': 1e-05, '\\u0061': 'new', 'C': -Infinity, 'y': 18446744073709551616, 'c': 3}"},
        {"{'x': {'a': 1, 'c': [{}, []]}}", "{'x': {'a': 1, 'c': [{}, []]},'a': 'new','c': 3}"},
        {"{}", NULL},
        {"", NULL},
        {"{'a': 1", NULL},
        {"{'a': }", NULL},
        {"{'a'", NULL},
        {"{'a", NULL},
        {"{'a\\", NULL},
        {"[1]", NULL},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *out = NULL;
        size_t n = 0;
        const char *text = json_text(cases[i].text);
        const char *edited = cases[i].edited ? json_text(cases[i].edited) : NULL;
        int err = sp_config_edit(text, strlen(text), edits, &out, &n);

        assert_int_equal(err, edited ? 0 : -EINVAL);
        if (!err && (n != strlen(edited) || memcmp(out, edited, n)))
            fail_msg("%s: %.*s", cases[i].text, (int)n, out);
        free(out);
    }
}

static bool is_config(const char *name, const void *arg)
{
    (void)arg;
    return !strcmp(name, "config.json");
}

/* Reads a model from `json`, replaces the file by `changed`, and returns the config.json then
 * written; to be freed. */
static char *written_as_read(const char *json, const char *changed, const char **said)
{
    static struct capture c;
    const char *path = put_text("config.json", json_text(json)), *to = in_scratch("to");
    struct sp_dir held, out;
    struct sp_model m;
    char *text;
    size_t n = 0;

    mkdir(to, 0755); /* once */
    must(!sp_dir_open(scratch, &held) && !sp_dir_open(to, &out), "directories");
    assert_int_equal(sp_dir_hold(&held, is_config, NULL), 0);
    assert_int_equal(sp_model_load_in(&held, &m), 0);
    if (changed)
        put_text("config.json", json_text(changed));
    else
        unlink(path); /* and is held */
    capture_begin(&c);
    assert_int_equal(sp_model_write_config_as_read(&m, &held, &out), 0);
    *said = capture_end(&c);
    assert_int_equal(sp_input_read_in(&out, "config.json", 1 << 20, "a config", &text, &n), 0);
    text[n] = '\0';
    sp_dir_close(&held);
    sp_dir_close(&out);
    return text;
}

#define KEPT(CLASS, TYPE)                                                                          \
    GPT2(", 'bos_token_id': 50256, '_name_or_path': 'x', 'initializer_range': "                    \
         "0.020000000000000001, 'resid_pdrop': 0.0, 'big': 123456789012345678901, 'nan': "         \
         "[NaN, -Infinity], 'task_specific_params': {'dtype': 1}, 'architectures': ['" CLASS       \
         "'], 'torch_dtype': '" TYPE "'")

/* Saving sets the type of the weights and the class of the model; all other keys, known or not,
 * stay as read. */
SCRATCH_TEST(config_is_kept)
{
    static const struct {
        const char *json, *written;
    } cases[] = {
        {KEPT("GPT2Model", "bfloat16"), KEPT("GPT2LMHeadModel", "float32")},
        {LLAMA(", 'architectures': ['LlamaForCausalLM'], 'dtype': 'float16', 'eos_token_id': [2, "
               "128009]"),
         LLAMA(", 'architectures': ['LlamaForCausalLM'], 'dtype': 'float32', 'eos_token_id': [2, "
               "128009]")},
        {LLAMA(", 'torch_dtype': null, 'dtype': 'float32'"),
         LLAMA(", 'torch_dtype': 'float32', 'dtype': 'float32', 'architectures': "
               "['LlamaForCausalLM']")},
        {RELATIVE("qwen3", ""),
         RELATIVE("qwen3", ", 'architectures': ['Qwen3ForCausalLM'], 'torch_dtype': 'float32'")},
    };
    static const char gpt2[] = GPT2(", 'kept': 1"), *said;
    char *text, *as_ever;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        text = written_as_read(cases[i].json, NULL, &said);
        assert_string_equal(said, "");
        assert_string_equal(text, json_text(cases[i].written));
        free(text);
    }
    /* rewritten in place: a configuration of another model is not saved with the weights */
    text = written_as_read(gpt2, GPT2(", 'kept': 2"), &said);
    assert_string_equal(said, "");
    assert_non_null(strstr(text, json_text("'kept': 2")));
    free(text);
    text = written_as_read(gpt2, LLAMA(""), &said);
    assert_said(said, "config.json has changed since the run began", "another model");
    assert_non_null(strstr(text, "GPT2LMHeadModel"));
    assert_null(strstr(text, "kept"));
    as_ever = written_as_read(gpt2, "{'model_type': 'gpt", &said);
    assert_said(said, "config.json has changed since the run began", "torn");
    assert_string_equal(as_ever, text);
    free(text);
    free(as_ever);
}

SCRATCH_TEST(every_field_is_read)
{
    struct sp_model m, back, g = GPT2_MODEL("", 3, 20, 5, 4, 80, 101, 17, .tied = true);
    struct sp_model l = LLAMA_MODEL("", 3, 24, 6, 6, 4, 37, 101, 99, .tied = false);

    assert_int_equal(parse(GPT2(""), &m), 0);
    assert_same(&m, &g);
    assert_string_equal(m.name, "here");
    assert_int_equal(parse(GPT2(", 'n_inner': null, 'activation_function': null"), &m), 0);
    assert_same(&m, &g);
    assert_int_equal(
        parse(GPT2(", 'n_inner': 7, 'layer_norm_epsilon': 0.03125, 'tie_word_embeddings': false, "
                   "'scale_attn_weights': true, 'activation_function': 'gelu_pytorch_tanh'"),
              &m),
        0);
    g.mlp = 7;
    g.norm_eps = 0.03125f;
    g.tied = false;
    assert_same(&m, &g);
    round_trip(&m, &back);
    assert_same(&back, &g);

    l.norm_eps = 1e-6f;
    assert_int_equal(parse(LLAMA(""), &m), 0);
    assert_same(&m, &l);
    assert_int_equal(
        parse(LLAMA(", 'num_key_value_heads': 2, 'head_dim': 10, 'rms_norm_eps': 1, 'rope_theta': "
                    "12345.678, 'tie_word_embeddings': true, 'hidden_act': 'silu', 'rope_scaling': "
                    "null, 'attention_bias': false"),
              &m),
        0);
    l.kv_heads = 2;
    l.head_dim = 10;
    l.norm_eps = 1;
    l.rope.theta = 12345.678f;
    l.tied = true;
    assert_same(&m, &l);
    round_trip(&m, &back);
    assert_same(&back, &l);
    assert_non_null(strstr(scratch, back.name)); /* its end, when the path is long */
    l.norm_eps = 1.0000001e-6f;                  /* a float of nine digits survives */
    round_trip(&l, &back);
    assert_same(&back, &l);

    /* rope_parameters of transformers 5 */
    assert_int_equal(
        parse(LLAMA(", 'rope_parameters': {'rope_type': 'default', 'rope_theta': 77}"), &m), 0);
    assert_true(m.rope.theta == 77);
}

/* Keys that relatives of Llama and scaled positions have or leave out; the models are written and
 * read again. */
SCRATCH_TEST(relatives_are_read)
{
    enum { QKV_BIAS = 1, OUT_BIAS = 2, MLP_BIAS = 4, QK_NORM = 8 };
    static const struct {
        const char *json, *type;
        int head_dim, window, has;
        struct sp_rope rope; /* {0}: without scaling, of base 1e4 */
    } good[] = {
        {RELATIVE("llama", ", 'attention_bias': true"), "llama", 4, .has = QKV_BIAS | OUT_BIAS},
        {RELATIVE("llama", ", 'mlp_bias': true" LLAMA3("1.0", "4.0", "")), "llama", 4,
         .has = MLP_BIAS, .rope = {1e4f, SP_ROPE_LLAMA3, 8, 1, 4, 8192}},
        {RELATIVE("llama",
                  ", 'rope_parameters': {'rope_type': 'linear', 'factor': 2.5, 'rope_theta': 5e5}"),
         "llama", 4, .rope = {5e5f, SP_ROPE_LINEAR, 2.5f}},
        {RELATIVE("llama", ", 'rope_scaling': {'type': 'linear', 'factor': 2}"), "llama", 4,
         .rope = {1e4f, SP_ROPE_LINEAR, 2}},
        {RELATIVE("mistral", ""), "mistral", 4, .window = 4096},
        {RELATIVE("mistral", ", 'sliding_window': null, 'head_dim': 8"), "mistral", 8, .window = 0},
        {RELATIVE("mistral", ", 'sliding_window': 50"), "mistral", 4, .window = 50},
        {RELATIVE("qwen2", ", 'use_sliding_window': false, 'sliding_window': 5"), "qwen2", 4,
         .has = QKV_BIAS},
        {RELATIVE("qwen2", ", 'sliding_window': 5, 'rope_theta': 1e6"), "qwen2", 4, .has = QKV_BIAS,
         .rope = {1e6f}},
        {RELATIVE("qwen3", ""), "qwen3", 128, .has = QK_NORM},
        {RELATIVE("qwen3", ", 'head_dim': 10, 'attention_bias': true"), "qwen3", 10,
         .has = QKV_BIAS | OUT_BIAS | QK_NORM},
    };

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct sp_rope rope = good[i].rope;
        struct sp_model m, back;

        rope.theta = rope.theta > 0 ? rope.theta : 1e4f;
        if (parse(good[i].json, &m))
            fail_msg("refused: %s", good[i].json);
        assert_string_equal(sp_model_type(&m), good[i].type);
        assert_int_equal(m.kv_heads, 2);
        assert_int_equal(m.head_dim, good[i].head_dim);
        assert_int_equal(m.window, good[i].window);
        assert_int_equal(m.qkv_bias * QKV_BIAS | m.out_bias * OUT_BIAS | m.mlp_bias * MLP_BIAS |
                             m.qk_norm * QK_NORM,
                         good[i].has);
        assert_memory_equal(&m.rope, &rope, sizeof m.rope);
        round_trip(&m, &back);
        assert_same(&m, &back);
    }
}

/* Attention that would not see a whole sequence is refused, one that would is not. */
TEST(windows_limit_sequences)
{
    struct sp_model m;
    struct capture c;

    assert_int_equal(parse(RELATIVE("mistral", ", 'sliding_window': 50"), &m), 0);
    assert_int_equal(sp_model_check_step(&m, &(struct sp_step_size){50, 1, 1}, ""), 0);
    assert_says(&c, sp_model_check_step(&m, &(struct sp_step_size){51, 1, 1}, "show: "), -EINVAL,
                "show: sequences of 51 tokens, but attention of here looks back 50", "window");
    m.window = 0;
    assert_int_equal(sp_model_check_step(&m, &(struct sp_step_size){99, 1, 1}, ""), 0);
    assert_says(&c, sp_model_check_step(&m, &(struct sp_step_size){100, 1, 1}, ""), -EINVAL,
                "sequences of 100 tokens, but here has 99 positions", "positions");

    /* steps whose bytes would overflow */
    m.mlp = 1 << 29;
    assert_int_equal(sp_model_check_step(&m, &(struct sp_step_size){99, 1, 1}, ""), 0);
    assert_says(&c, sp_model_check_step(&m, &(struct sp_step_size){99, 1 << 20, 65536}, ""),
                -EINVAL, "65536 micro-batches of 1048576 x 99 tokens", "size");
}

static const struct {
    const char *json, *word;
} bad[] = {
    {"", "JSON"},
    {"{", "JSON"},
    {"[1]", "object"},
    {"3", "JSON"},
    {"{}", "model_type is missing"},
    {"{'model_type': 3}", "model_type is 3"},
    {"{'model_type': 'falcon'}", "'falcon', gpt2, llama, mistral, qwen2 or qwen3 would do"},
    {"{'model_type': 'mistral'}", "num_hidden_layers is missing"},
    {RELATIVE("mistral", ", 'sliding_window': 0"), "sliding_window is 0"},
    {RELATIVE("mistral", ", 'attention_bias': true"), "attention_bias is true"},
    {RELATIVE("mistral", ", 'use_sliding_window': true"), "use_sliding_window is true"},
    {RELATIVE("qwen2", ", 'use_sliding_window': true, 'sliding_window': 50"),
     "use_sliding_window is true"},
    {RELATIVE("qwen2", ", 'mlp_bias': true"), "mlp_bias is true"},
    {RELATIVE("qwen3", ", 'mlp_bias': true"), "mlp_bias is true"},
    {RELATIVE("qwen3", ", 'head_dim': 7"), "head size is 7"},
    {LLAMA_OF("qwen2", 3, 101, ""), "num_key_value_heads is missing"},
    {"{'model_type': 'a\\nb'}", "'a\\x0ab'"},
    {"{'model_type': 'gpt2'}", "n_layer is missing"},
    {"{'model_type': 'gpt2', 'n_layer': 1, 'n_layer': 1}", "JSON"},
    {GPT2(", 'n_inner': 'wide'"), "n_inner is 'wide'"},
    {GPT2(", 'n_inner': 3.5"), "n_inner is 3.5"},
    {GPT2(", 'n_inner': 0"), "n_inner is 0"},
    {GPT2(", 'n_inner': -4"), "n_inner is -4"},
    {GPT2(", 'n_inner': 2147483648"), "n_inner is 2147483648"},
    {GPT2(", 'n_inner': 99999999999999999999"), "n_inner is 1e+20, it must be an integer"},
    {GPT2(", 'n_inner': [1]"), "n_inner is a list"},
    {GPT2(", 'n_inner': {}"), "n_inner is an object"},
    {GPT2(", 'n_inner': true"), "n_inner is true"},
    {GPT2(", 'layer_norm_epsilon': '1e-5'"), "layer_norm_epsilon is '1e-5'"},
    {GPT2(", 'layer_norm_epsilon': 0"), "epsilon is 0"},
    {GPT2(", 'layer_norm_epsilon': -1e-5"), "epsilon is -1e-05"},
    {GPT2(", 'layer_norm_epsilon': 1e300"), "epsilon is inf"},
    {GPT2(", 'tie_word_embeddings': 1"), "tie_word_embeddings is 1"},
    {GPT2(", 'activation_function': 'relu'"), "activation_function is 'relu'"},
    {GPT2(", 'activation_function': 'gelu_10'"), "gelu_new, gelu_pytorch_tanh, gelu_fast"},
    {GPT2(", 'activation_function': 2"), "activation_function is 2"},
    {GPT2(", 'scale_attn_weights': false"), "scale_attn_weights is false"},
    {GPT2(", 'scale_attn_by_inverse_layer_idx': true"), "scale_attn_by_inverse_layer_idx"},
    {GPT2(", 'reorder_and_upcast_attn': true"), "reorder_and_upcast_attn"},
    {GPT2(", 'add_cross_attention': true"), "add_cross_attention"},
    {GPT2(", 'resid_pdrop': 'x'"), "resid_pdrop"},
    {GPT2_OF(1, 20, 3, 17, 101, ""), "20 is not a multiple of 3 heads"},
    {GPT2_OF(1, 2000000000, 1, 17, 101, ""), "too large"},
    {GPT2_OF(2147483647, 1, 1, 17, 101, ""), "2147483647 layers"},
    {GPT2_OF(1000, 300000000, 1, 17, 101, ""), "parameters"},
    {GPT2_OF(1, 536870911, 1, 2147483647, 1073741824, ""), "parameters"},
    {LLAMA(", 'num_key_value_heads': 4"), "6 heads are not a multiple of 4 kv heads"},
    {LLAMA(", 'num_key_value_heads': 12"), "12 kv heads"},
    {LLAMA(", 'num_key_value_heads': 0"), "num_key_value_heads is 0"},
    {LLAMA(", 'head_dim': 5"), "head size is 5"},
    {LLAMA(", 'head_dim': 2147483646"), "heads of size 2147483646"},
    {LLAMA(", 'head_dim': false"), "head_dim is false"},
    {LLAMA(", 'rope_theta': 0"), "rope_theta is 0"},
    {LLAMA(", 'rope_theta': -1"), "rope_theta is -1"},
    {LLAMA(", 'rope_theta': 'big'"), "rope_theta is 'big'"},
    {LLAMA(", 'rope_scaling': {'rope_type': 'llama3'}"),
     "original_max_position_embeddings is missing"},
    {LLAMA(LLAMA3("4.0", "1.0", "")), "low_freq_factor 4 and high_freq_factor 1"},
    {LLAMA(LLAMA3("null", "1.0", "")), "low_freq_factor 0 and high_freq_factor 1"},
    {LLAMA(LLAMA3("1.0", "4.0", ", 'beta_slow': 1")), "rope_scaling.beta_slow is 1"},
    {LLAMA(LLAMA3("1.0", "4.0", "") ", 'rope_parameters': {'rope_type': 'default'}"),
     "rope_scaling is of type llama3, rope_parameters of type default"},
    {LLAMA(", 'rope_scaling': {'type': 'linear'}"), "factor of rope_scaling is 0"},
    {LLAMA(", 'rope_scaling': {'type': 'linear', 'factor': 0.5}"), "is 0.5"},
    {LLAMA(", 'rope_scaling': {'type': 'linear', 'factor': 2, 'low_freq_factor': 1}"),
     "rope_scaling.low_freq_factor is 1"},
    {LLAMA(", 'rope_scaling': {'type': 'dynamic', 'factor': 2}"),
     "type is 'dynamic', default, linear and llama3 are supported"},
    {LLAMA(", 'rope_scaling': 2"), "rope_scaling is 2"},
    {LLAMA(", 'rope_parameters': {'rope_type': 'yarn'}"), "rope_type is 'yarn'"},
    {LLAMA(", 'rope_parameters': {'partial_rotary_factor': 0.5}"), "partial_rotary_factor"},
    {LLAMA(", 'partial_rotary_factor': 0.25"), "partial_rotary_factor is 0.25, only 1"},
    {LLAMA(", 'rope_scaling': {'factor': 4.0}"), "rope_scaling.factor is 4"},
    {LLAMA(", 'rope_scaling': {'rope_type': 'default', 'beta_fast': 32}"),
     "rope_scaling.beta_fast is 32"},
    {LLAMA(", 'rope_parameters': {'full_attention': {}}"),
     "rope_parameters.full_attention is an object"},
    {LLAMA(", 'quantization_config': {'bits': 4}"), "quantization_config is an object"},
    {GPT2(", 'quantization_config': {'bits': 4}"), "quantization_config is an object"},
    {LLAMA(", 'sliding_window': 98"), "sliding_window is 98, only null"},
    {LLAMA(", 'use_sliding_window': true"), "use_sliding_window is true"},
    {LLAMA(", 'layer_types': ['full_attention', 'sliding_attention']"),
     "layer 1 in layer_types is 'sliding_attention'"},
    {LLAMA(", 'layer_types': 3"), "layer_types is 3, it must be a list"},
    {LLAMA(", 'pretraining_tp': 2"), "pretraining_tp is 2, only 1"},
    {LLAMA(", 'num_local_experts': 8"), "num_local_experts is 8"},
    {LLAMA(", 'mlp_only_layers': [1]"), "mlp_only_layers is a list"},
    {LLAMA(", 'attn_logit_softcapping': 50.0"), "attn_logit_softcapping is 50"},
    {LLAMA(", 'embedding_multiplier': 12.0"), "embedding_multiplier is 12, only 1"},
    {LLAMA(", 'rope_interleaved': true"), "rope_interleaved is true"},
    {LLAMA(", 'is_causal': false"), "is_causal is false, only true"},
    {LLAMA(", 'auto_map': {'AutoModelForCausalLM': 'a.B'}"), "code of its own"},
    {LLAMA(", 'layer_norm_epsilon': 1e-5"), "layer_norm_epsilon is 1e-05, but rms_norm_eps is"},
    {LLAMA(", 'rotary_emb_base': 1000000"), "rotary_emb_base is 1000000, but rope_theta is"},
    {GPT2(", 'layer_norm_eps': 1e-6"), "layer_norm_eps is 1e-06, but layer_norm_epsilon is"},
    {GPT2(", 'n_ctx': 16"), "n_ctx is 16, but n_positions is 17"},
    {GPT2(", 'max_position_embeddings': 18"), "max_position_embeddings is 18, but n_positions"},
    {GPT2(", 'num_attention_heads': 4"), "num_attention_heads is 4, but n_head is 5"},
    {GPT2(", 'hidden_size': 40"), "hidden_size is 40, but n_embd is 20"},
    {GPT2(", 'num_hidden_layers': '3'"), "num_hidden_layers is '3', but n_layer is 3"},
    {GPT2(", 'head_dim': 8"), "head_dim is 8"},
    {GPT2(", 'pruned_heads': {'0': [1]}"), "pruned_heads is an object"},
    {LLAMA(", 'rope_theta': 3, 'rope_parameters': {'rope_theta': 4}"), "rope_theta is 3"},
    {LLAMA(", 'hidden_act': 'relu'"), "hidden_act is 'relu', gelu_new"},
    {LLAMA_OF("llama", 2, 2147483647, ""),
     "vocabulary is 2147483647, it must be at most 1073741824"},
    {LLAMA(", 'rms_norm_eps': NaN"), "rms_norm_eps is 'NaN', it must be a number"},
    {LLAMA(", 'rope_theta': Infinity"), "rope_theta is 'Infinity', it must be a number"},
    {LLAMA(", 'rope_theta': 1e999"), "rope_theta is 'Infinity', it must be a number"},
    {LLAMA(", 'attn_logit_softcapping': -Infinity"), "is '-Infinity', only null"},
    {LLAMA(", NaN: 1"), "JSON"},
    {LLAMA(", 'x': NaNs"), "JSON"},
    {LLAMA(", 'x': --1"), "JSON"},
    {LLAMA(", 'attention_bias': 1"), "attention_bias is 1"},
    {LLAMA(", 'mlp_bias': 'yes'"), "mlp_bias is 'yes'"},
    {LLAMA(", 'rms_norm_eps': null, 'tie_word_embeddings': 'no'"), "tie_word_embeddings"},
    {LLAMA_OF("llama", 2000000000, 101, ""), "MLP width of 2000000000"},
    {"{'model_type': 'llama', 'num_hidden_layers': 1, 'hidden_size': 24}",
     "num_attention_heads is missing"},
};

TEST(bad_configs_are_refused)
{
    struct sp_model untouched;

    memset(&untouched, 0x5a, sizeof untouched);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct sp_model m = untouched;
        struct capture c;
        int rc;

        capture_begin(&c);
        rc = parse(bad[i].json, &m);
        assert_said(capture_end(&c), bad[i].word, bad[i].json);
        assert_non_null(strstr(c.text, "here: "));
        assert_int_equal(rc, -EINVAL);
        assert_memory_equal(&m, &untouched, sizeof m);
    }
    printf("%zu bad configs refused\n", sizeof bad / sizeof bad[0]);
}

/* Keys of relatives with values that change nothing. */
TEST(neutral_keys_are_accepted)
{
    static const char *const good[] = {
        LLAMA(", 'pretraining_tp': 1, 'rope_scaling': {'factor': 1.0}, 'partial_rotary_factor': "
              "1.0, 'quantization_config': null"),
        LLAMA(", 'sliding_window': 4096"), /* longer than the longest sequence, 99 */
        LLAMA(", 'sliding_window': 16, 'use_sliding_window': false"),
        LLAMA(", 'sliding_window': null, 'layer_types': ['full_attention']"),
        LLAMA(", 'mlp_only_layers': [], 'num_local_experts': 0, 'pruned_heads': {}"),
        LLAMA(", 'rope_interleaved': false, 'attn_logit_softcapping': null"),
        LLAMA(", 'rms_norm_eps': 1e-05, 'layer_norm_eps': 0.00001"),
        LLAMA(", 'auto_map': {'AutoConfig': 'a.B'}, 'pad_token_id': 0"),
        GPT2(", 'n_ctx': 17, 'hidden_size': 20, 'num_attention_heads': 5"),
        GPT2(", 'n_inner': null, 'intermediate_size': 80, 'is_causal': true"),
    };

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct sp_model m;

        if (parse(good[i], &m))
            fail_msg("refused: %s", good[i]);
    }
}

TEST(check_refuses_what_no_config_can_say)
{
    struct sp_model good, m;
    struct capture c;

    assert_int_equal(sp_model_load("gpt-tiny", &good), 0);
#define REFUSED(FIELD, VALUE, WORD)                                                                \
    m = good;                                                                                      \
    m.FIELD = VALUE;                                                                               \
    capture_begin(&c);                                                                             \
    assert_int_equal(sp_model_check(&m, "m"), -EINVAL);                                            \
    assert_said(capture_end(&c), WORD, #FIELD)
    REFUSED(arch, (enum sp_arch)7, "architecture 7");
    REFUSED(layers, 0, "layers is 0");
    REFUSED(vocab, -1, "vocabulary is -1");
    REFUSED(kv_heads, 2, "2 kv heads");
    REFUSED(head_dim, 15, "4 heads of size 15");
    REFUSED(hidden, 65, "hidden size of 65");
    REFUSED(positions, 0, "positions is 0");
    REFUSED(mlp, -8, "MLP width is -8");
#undef REFUSED
}

/* A run warns of the largest dropout. */
TEST(dropout_is_noted)
{
    struct sp_model m;

    assert_int_equal(parse(GPT2(", 'resid_pdrop': 0.125, 'embd_pdrop': 0.0"), &m), 0);
    assert_true(m.dropout == 0.125f);
    assert_int_equal(parse(GPT2(", 'attn_pdrop': 0.0, 'resid_pdrop': 0"), &m), 0);
    assert_true(m.dropout == 0);
}

/* A path longer than sp_model.name keeps its end. */
SCRATCH_TEST(long_directory)
{
    static const char long_name[] =
        "a-directory-whose-name-alone-has-more-than-sixty-three-bytes-in-it";
    struct sp_model m, back;
    struct sp_dir dir;

    assert_int_equal(mkdir(in_scratch(long_name), 0755), 0);
    must(!sp_dir_open(in_scratch(long_name), &dir), "sp_dir_open");
    assert_int_equal(sp_model_load("llama-tiny", &m), 0);
    assert_int_equal(sp_model_write_config_in(&m, &dir, "config.json"), 0);
    assert_int_equal(sp_model_load(dir.path, &back), 0);
    assert_same(&m, &back);
    assert_string_equal(back.name, long_name + sizeof long_name - sizeof back.name);
    sp_dir_close(&dir);
}

SCRATCH_TEST(load_says_what_is_there)
{
    const char *path = in_scratch("config.json");
    struct sp_model m;
    struct capture c;

    assert_says(&c, sp_model_load("gpt-huge", &m), -ENOENT, "'gpt-huge' is neither a preset",
                "gpt-huge");
    assert_non_null(strstr(c.text, "llama3-405b"));

    assert_says(&c, sp_model_load(scratch, &m), -ENOENT, "config.json: cannot be opened",
                "empty directory");

    mkdir(path, 0755);
    assert_says(&c, sp_model_load(scratch, &m), -EINVAL, "not a regular file", "directory");
    rmdir(path);

    mkfifo(path, 0644); /* nobody writes to it: it must not be waited for */
    assert_says(&c, sp_model_load(scratch, &m), -EINVAL, "not a regular file", "pipe");
    unlink(path);

    put_text("config.json", "{\"model_type\"");
    assert_says(&c, sp_model_load(scratch, &m), -EINVAL, path, "cut short");
}

/* If a preset and a directory have one name, the user must say which is meant. */
SCRATCH_TEST(directory_named_like_a_preset)
{
    char cwd[4096];
    struct sp_model tiny, m;
    struct capture c;

    assert_int_equal(sp_model_load("preset:llama-tiny", &tiny), 0);
    assert_string_equal(tiny.name, "llama-tiny");
    assert_true(sp_model_is_preset("llama-tiny") && sp_model_is_preset("preset:llama-tiny"));
    assert_false(sp_model_is_preset("./llama-tiny") || sp_model_is_preset("preset:"));
    must(getcwd(cwd, sizeof cwd) && !chdir(scratch) && !mkdir("gpt-tiny", 0755), "chdir");
    assert_int_equal(sp_model_load("gpt-tiny", &m), 0); /* nothing in it: no model */
    assert_int_equal(m.arch, SP_ARCH_GPT2);
    assert_int_equal(sp_model_write_config_in(&tiny, NULL, "gpt-tiny/config.json"), 0);
    assert_says(&c, sp_model_load("gpt-tiny", &m), -EEXIST,
                "say ./gpt-tiny for the directory, preset:gpt-tiny for", "both");
    assert_int_equal(sp_model_load("preset:gpt-tiny", &m), 0);
    assert_int_equal(m.arch, SP_ARCH_GPT2);
    assert_int_equal(sp_model_load("./gpt-tiny", &m), 0);
    assert_int_equal(m.arch, SP_ARCH_LLAMA);
    must(!chdir(cwd), "chdir");
}
