# What the tests of this folder share; they begin by sourcing it.
. "$(dirname "$0")/../common.sh" || exit 1

# models: those that are no presets, beside the text that all train on. The head of the heavy one is worth
# several layers; the long one has positions for long sequences; the third has all that relatives of Llama
# may have.
models()
{
    make_text 20011 > text
    mkdir heavy long qwen
    cat > heavy/config.json << 'END'
{"model_type": "llama", "num_hidden_layers": 8, "hidden_size": 32, "num_attention_heads": 4,
 "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 8192,
 "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
 "tie_word_embeddings": true, "hidden_act": "silu"}
END
    cat > qwen/config.json << 'END'
{"model_type": "qwen3", "num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 4,
 "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 48, "vocab_size": 256,
 "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
 "rope_scaling": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                  "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
 "tie_word_embeddings": false, "hidden_act": "silu", "attention_bias": true}
END
    cat > long/config.json << 'END'
{"model_type": "gpt2", "n_layer": 4, "n_embd": 64, "n_head": 4, "vocab_size": 256,
 "n_positions": 1024, "n_inner": 256, "layer_norm_epsilon": 1e-5,
 "activation_function": "gelu_new", "tie_word_embeddings": true}
END
}

# parity GROUP PROCESSES...: the cases of a group in one process, which leaves behind what the others are
# compared with, and in as many as are named; N:starpu has messages go through StarPU-MPI.
parity()
{
    local group=$1 n through

    shift
    cd "$work" && models || exit 1
    timeout -k 5 600 "$builddir/tests/parity/parity" "$group" || fail "$group in one process"
    have_mpi || return
    for n; do
        through=${n#"${n%:*}"}
        timeout -k 5 600 $MPIRUN -np "${n%:*}" "$builddir/tests/parity/parity" "$group" ${through#:} ||
            fail "$group in $n processes"
    done
}
