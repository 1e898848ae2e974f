/* What differs between the model types of config.json, one row each. */
#ifndef SP_MODEL_TYPES_H
#define SP_MODEL_TYPES_H

#include "model/model.h"

struct sp_model_type {
    const char *name;         /* model_type */
    const char *architecture; /* class of transformers */
    enum sp_arch arch;
    enum sp_relative relative;
    bool says_attention_bias, says_mlp_bias; /* keys that give the model biases */
    bool qkv_bias, qk_norm;                  /* what it has whatever the configuration says */
    int head_dim;                            /* where it is not said; 0: h / a */
    int window; /* sliding_window where it is not said; 0: the key has no meaning */
};

extern const struct sp_model_type sp_model_types[];
extern const int sp_model_n_types;

/* The row of a model; NULL: there is none such. */
const struct sp_model_type *sp_model_type_of(const struct sp_model *m);

#endif
