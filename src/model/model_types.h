/* How the model types of config.json differ, one row each. */
#ifndef SP_MODEL_TYPES_H
#define SP_MODEL_TYPES_H

#include "model/model.h"

struct sp_model_type {
    const char *name;         /* model_type */
    const char *architecture; /* class of transformers */
    enum sp_arch arch;
    enum sp_relative relative;
    bool says_attention_bias, says_mlp_bias; /* keys that give the model biases */
    bool qkv_bias, qk_norm;                  /* these parts are always there */
    int head_dim;                            /* if the configuration gives none; 0: h / a */
    int window; /* sliding_window if none is given; 0: the key is ignored */
};

extern const struct sp_model_type sp_model_types[];
extern const int sp_model_n_types;

/* The row of a model; NULL: no row fits. */
const struct sp_model_type *sp_model_type_of(const struct sp_model *m);

#endif
