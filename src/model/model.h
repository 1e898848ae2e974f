/*
 * The architecture of a decoder-only transformer: GPT-2 style (LayerNorm, learned positions,
 * GELU, biases) or Llama style (RMSNorm, RoPE, SwiGLU, grouped-query attention), which Mistral
 * and Qwen 2 and 3 share.
 *
 * Every function that reports an error prints one line to stderr, prefixed "starpipe: ", and
 * returns -errno; outputs are set only on success.
 */
#ifndef SP_MODEL_H
#define SP_MODEL_H

#include "kernels/activation.h"
#include "kernels/rope.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A larger config.json is refused unread: a wrong path must not fill the memory. */
#define SP_CONFIG_MAX_BYTES (16 << 20)

enum sp_arch { SP_ARCH_GPT2, SP_ARCH_LLAMA };

/* Models of Llama style. Their config.json files differ in their keys and in what missing keys
 * mean. */
enum sp_relative { SP_LLAMA, SP_MISTRAL, SP_QWEN2, SP_QWEN3 };

/* An activation by the name that config.json has for it. */
struct sp_activation_name {
    const char *name;
    enum sp_activation kind;
};

/* Rows from 1 on; a row without a name ends them. */
extern const struct sp_activation_name sp_activation_names[];

/* Tokens that mean something to a tokenizer. All zero: none. */
struct sp_token_ids {
    bool list; /* config.json has a list of them */
    int n, id[16];
};

struct sp_model {
    char name[64]; /* preset, or the directory it was read from */
    enum sp_arch arch;
    int layers;    /* L */
    int hidden;    /* h */
    int heads;     /* a, query heads */
    int kv_heads;  /* key/value heads; divides a (== a for GPT-2) */
    int head_dim;  /* d; GPT-2: h/a */
    int mlp;       /* f, MLP width */
    int vocab;     /* V */
    int positions; /* longest sequence (GPT-2: rows of the position table) */
    int planned;   /* longest that may be planned, if beyond the table; 0: positions */
    bool tied;     /* the head shares the token embedding */
    float norm_eps;
    float dropout; /* the largest in config.json, for a warning: nothing is dropped */
    int act; /* of the MLP, Llama style: of its gate; a row of sp_activation_names, 0: the usual one */
    struct sp_token_ids bos, eos, pad; /* of its tokenizer, kept with it */

    /* Llama style only; GPT-2 has all biases. */
    enum sp_relative relative;
    struct sp_rope rope;
    bool qkv_bias, out_bias, mlp_bias;
    bool qk_norm; /* RMS norm of each head of queries and keys, before they are rotated */
    int window;   /* tokens that attention looks back; no sequence may be longer. 0: no limit */
};

static inline enum sp_activation sp_model_act(const struct sp_model *m)
{
    if (m->act)
        return sp_activation_names[m->act].kind;
    return m->arch == SP_ARCH_LLAMA ? SP_SILU : SP_GELU_TANH;
}

/* Elements a token takes in the query, and in the key and value projections together. */
static inline int sp_model_q_width(const struct sp_model *m)
{
    return m->heads * m->head_dim;
}

static inline int sp_model_kv_width(const struct sp_model *m)
{
    return 2 * m->kv_heads * m->head_dim;
}

/* Width of the pre-activation of the MLP: f for GPT-2, 2f (gate, up) for Llama. */
static inline int sp_model_up_width(const struct sp_model *m)
{
    return m->arch == SP_ARCH_LLAMA ? 2 * m->mlp : m->mlp;
}

/*
 * Fills *m from a preset name (see sp_model_presets; "preset:" may stand before it) or, if `what`
 * is a directory, from `what`/config.json in Hugging Face form. -ENOENT: neither; -EEXIST: a preset
 * and a directory with a config.json; -EINVAL: malformed or impossible.
 */
int sp_model_load(const char *what, struct sp_model *m);
/* The same from the config.json of an open directory. */
struct sp_dir;
int sp_model_load_in(const struct sp_dir *dir, struct sp_model *m);

/* Reads the tokens that end a text drawn from the model of a directory, as transformers does: from
 * generation_config.json if there is one, else from config.json. Warns of other settings in that
 * file, which are ignored. Returns 0, or -errno after one line if the file cannot be read. */
int sp_model_load_eos_in(const struct sp_dir *dir, const struct sp_model *m,
                         struct sp_token_ids *eos);

/* True if `what` names a preset, with or without "preset:" before it. */
bool sp_model_is_preset(const char *what);

/* Parses a Hugging Face config.json held in memory; `where` names it in errors. */
int sp_model_parse_config(const char *json, size_t len, const char *where, struct sp_model *m);

/* Writes the config.json that transformers reads back: `name` in `dir`, or a path where that is NULL. */
int sp_model_write_config_in(const struct sp_model *m, const struct sp_dir *dir, const char *name);
/*
 * Writes the config.json of `dir` from the one that `held` holds (sp_dir_hold) and from which `m`
 * was read: all keys keep their order and values, except the type of the weights, which becomes
 * float32, and `architectures`, their class. If `held` has none, or by now one of another model (a
 * warning), writes it as sp_model_write_config_in does.
 */
int sp_model_write_config_as_read(const struct sp_model *m, const struct sp_dir *held,
                                  const struct sp_dir *dir);

/* Checks that the sizes fit together; prints what does not. -EINVAL. */
int sp_model_check(const struct sp_model *m, const char *where);

/* model_type of config.json, "gpt2" or "llama" or a relative. */
const char *sp_model_type(const struct sp_model *m);

/* A step has micro_batches times batch sequences, of seq tokens each. */
struct sp_step_size {
    int seq, batch, micro_batches;
};

/* Refuses sequences longer than the model's positions or its attention window, and steps so large
 * that the bytes of their tensors overflow; `where` begins the line. */
int sp_model_check_step(const struct sp_model *m, const struct sp_step_size *step,
                        const char *where);

/* NULL-terminated names of the presets. */
const char *const *sp_model_presets(void);

#endif
