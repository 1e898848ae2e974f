/*
 * Fuzz target: config.json. An accepted model passes sp_model_check, has sizes that overflow
 * nowhere, is the same when written and read again, and can be edited.
 */
#include "fuzz.h"
#include "odd_models.h"
#include "model/config_keys.h"
#include "model/files/foreign_json.h"
#include "model/params.h"

/* Sizes are counted in products of ints: the sanitizers watch while every block is measured. */
static void measure(const struct sp_model *m)
{
    uint64_t total = 0;

    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++) {
        size_t n = sp_block_elements(m, (enum sp_block_kind)kind);

        if (n > (size_t)1 << 60)
            abort();
        total += n;
    }
    if (total == 0 || sp_model_parameters(m) > UINT64_C(1) << 60)
        abort();
    if (sp_model_q_width(m) < 1 || sp_model_kv_width(m) < 1 || sp_model_up_width(m) < 1)
        abort();
}

/* Writes and reads every 64th model, since the disk is slower than the parser. */
static void round_trip(const struct sp_model *m)
{
    static char dir[] = "/tmp/starpipe-fuzz-XXXXXX";
    static int made, count;
    struct sp_model back;
    char path[64];

    if (count++ % 64)
        return;
    if (!made && !mkdtemp(dir))
        abort();
    made = 1;
    snprintf(path, sizeof path, "%s/config.json", dir);
    if (sp_model_write_config_in(m, NULL, path) || sp_model_load(dir, &back))
        abort();
    if (model_difference(&back, m))
        abort();
    unlink(path);
    rmdir(dir);
    memcpy(dir + sizeof dir - 7, "XXXXXX", 6);
    made = 0;
}

/* A member that is added is there, and all others are what they were. */
static void edit(const char *text, size_t size)
{
    const struct sp_config_edit edits[] = {{"torch_dtype", "\"float32\"", true}, {0}};
    json_error_t err;
    json_t *a = sp_foreign_json(text, size, &err), *b;
    char *edited;
    size_t n;

    if (!a || sp_config_edit(text, size, edits, &edited, &n))
        abort();
    b = sp_foreign_json(edited, n, &err);
    if (json_object_set_new(a, "torch_dtype", json_string("float32")) || !json_equal(a, b))
        abort();
    json_decref(a);
    json_decref(b);
    free(edited);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sp_model m;

    fuzz_silence();
    if (sp_model_parse_config((const char *)data, size, "fuzz", &m))
        return 0;
    fuzz_accepted++;
    if (sp_model_check(&m, "fuzz"))
        abort();
    measure(&m);
    edit((const char *)data, size);
    round_trip(&m);
    return 0;
}

#ifndef SP_LIBFUZZER

static const char gpt2[] =
    "{'model_type':'gpt2','n_layer':3,'n_embd':20,'n_head':5,'n_inner':null,'n_positions':17,"
    "'vocab_size':101,'layer_norm_epsilon':1e-05,'resid_pdrop':0.1,"
    "'activation_function':'gelu_new','tie_word_embeddings':false}";
static const char llama[] =
    "{'model_type':'llama','num_hidden_layers':3,'hidden_size':24,'num_attention_heads':6,"
    "'num_key_value_heads':2,'head_dim':8,'intermediate_size':37,'vocab_size':101,"
    "'max_position_embeddings':99,'rms_norm_eps':1e-06,'rope_theta':500000.0,'hidden_act':'silu',"
    "'attention_bias':false,'rope_scaling':{'rope_type':'default'}}";
static const char mistral[] =
    "{'model_type':'mistral','num_hidden_layers':3,'hidden_size':24,'num_attention_heads':6,"
    "'num_key_value_heads':2,'intermediate_size':37,'vocab_size':101,'max_position_embeddings':99,"
    "'sliding_window':64,'rope_parameters':{'rope_type':'linear','rope_theta':1e6,'factor':2.5}}";
static const char qwen3[] =
    "{'model_type':'qwen3','num_hidden_layers':3,'hidden_size':24,'num_attention_heads':6,"
    "'num_key_value_heads':2,'intermediate_size':37,'vocab_size':101,'max_position_embeddings':99,"
    "'attention_bias':true,'rope_scaling':{'rope_type':'llama3','factor':8.0,"
    "'low_freq_factor':1.0,'high_freq_factor':4.0,'original_max_position_embeddings':8192}}";

int main(int argc, char **argv)
{
    const struct fuzz_seed seeds[] = {fuzz_json(gpt2), fuzz_json(llama), fuzz_json(mistral),
                                      fuzz_json(qwen3)};

    return fuzz_main(argc, argv, seeds, sizeof seeds / sizeof seeds[0], 60000);
}

#endif
