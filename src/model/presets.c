/*
 * The models known by name, and sp_model_load, which takes a name or a directory.
 *
 * Sources: GPT-2 (Radford et al. 2019); gpt3-* HelixPipe table 3; gpt-13b and gpt-65b SPPO table 2;
 * llama-h* WeiPipe section 6 (32 layers, 32 heads); llama3-405b the Llama 3 report. If a paper
 * gives no vocabulary, GPT models take GPT-2's and Llama models Llama 2's. Position tables reach
 * the longest sequence of HelixPipe, which counts them as parameters. SPPO counts none, so its 4 M
 * tokens can be planned without a table of that length.
 */
#include "model/files/input.h"
#include "model/model.h"
#include "sp_error.h"
#include "sp_suggest.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* f = 4h, learned positions, tied head. */
#define GPT2(NAME, L, H, A, V, POSITIONS, PLANNED)                                                 \
    {                                                                                              \
        .name = NAME, .arch = SP_ARCH_GPT2, .layers = L, .hidden = H, .heads = A, .kv_heads = A,   \
        .head_dim = (H) / (A), .mlp = 4 * (H), .vocab = V, .positions = POSITIONS, .tied = true,   \
        .norm_eps = 1e-5f, .planned = PLANNED                                                      \
    }

#define LLAMA(NAME, L, H, A, G, F, V, POSITIONS, THETA)                                            \
    {                                                                                              \
        .name = NAME, .arch = SP_ARCH_LLAMA, .layers = L, .hidden = H, .heads = A, .kv_heads = G,  \
        .head_dim = (H) / (A), .mlp = F, .vocab = V, .positions = POSITIONS, .norm_eps = 1e-5f,    \
        .rope.theta = THETA                                                                        \
    }

static const struct sp_model presets[] = {
    GPT2("gpt-tiny", 8, 64, 4, 256, 512, 0),
    LLAMA("llama-tiny", 8, 64, 4, 2, 172, 256, 2048, 10000),
    GPT2("gpt2-124m", 12, 768, 12, 50257, 1024, 0),
    GPT2("gpt3-1.3b", 24, 2048, 16, 50257, 131072, 0),
    GPT2("gpt3-3b", 16, 4096, 32, 50257, 131072, 0),
    GPT2("gpt3-7b", 32, 4096, 32, 50257, 131072, 4194304),
    GPT2("gpt-13b", 40, 5120, 40, 50257, 2048, 4194304),
    GPT2("gpt-65b", 80, 8192, 64, 50257, 2048, 4194304),
    /*
     * WeiPipe counts 12h^2 weights a layer, 4h^2 of them in attention. SwiGLU has three matrices,
     * so 3hf = 8h^2: f = 8h/3, to the nearest multiple of 64 (within 0.6 % of 12h^2).
     */
    LLAMA("llama-h1024", 32, 1024, 32, 32, 2752, 32000, 131072, 10000),
    LLAMA("llama-h2048", 32, 2048, 32, 32, 5440, 32000, 131072, 10000),
    LLAMA("llama-h4096", 32, 4096, 32, 32, 10944, 32000, 131072, 10000),
    LLAMA("llama3-405b", 126, 16384, 128, 8, 53248, 128256, 131072, 500000),
};

#define PRESETS (sizeof presets / sizeof presets[0])

/* Before the name of a preset where a directory has the same name. */
#define PREFIX "preset:"

static const char *names[PRESETS + 1];

/* Runs before main, so that sp_model_presets is a plain read from any thread. */
__attribute__((constructor)) static void fill_names(void)
{
    for (size_t i = 0; i < PRESETS; i++)
        names[i] = presets[i].name;
}

const char *const *sp_model_presets(void)
{
    return names;
}

static int no_such_model(const char *what)
{
    struct sp_suggestion suggestion = {.typed = what};
    char list[512] = "", meant[128];
    size_t used = 0;

    for (size_t i = 0; i < PRESETS && used < sizeof list; i++) {
        used += (size_t)snprintf(list + used, sizeof list - used, " %s", presets[i].name);
        sp_suggest(&suggestion, presets[i].name, (int)strlen(presets[i].name));
    }
    sp_suggest_text(&suggestion, "", meant, sizeof meant);
    return sp_error(ENOENT,
                    "model '%.200s' is neither a preset nor a directory with a config.json%s %s:%s",
                    what, *meant ? meant : ";", *meant ? "Presets" : "presets", list);
}

/* The preset that `what` names, "preset:" before it or not; NULL: none. */
static const struct sp_model *find_preset(const char *what)
{
    size_t prefix = strncmp(what, PREFIX, strlen(PREFIX)) ? 0 : strlen(PREFIX);

    for (size_t i = 0; i < PRESETS; i++)
        if (!strcmp(what + prefix, presets[i].name))
            return &presets[i];
    return NULL;
}

bool sp_model_is_preset(const char *what)
{
    return find_preset(what) != NULL;
}

/* A directory with a configuration, named like a preset: one of the two would be ignored. */
static int check_preset_alone(const char *what)
{
    char path[80];
    struct stat st;

    snprintf(path, sizeof path, "%s/config.json", what); /* names of presets are short */
    if (lstat(path, &st))
        return 0;
    return sp_error(
        EEXIST,
        "model '%s' is a preset and a directory here: say ./%s for the directory, " PREFIX
        "%s for the preset",
        what, what, what);
}

int sp_model_load_in(const struct sp_dir *dir, struct sp_model *m)
{
    char *path = sp_dir_join(dir, "config.json"), *text = NULL;
    size_t len = 0, n = strlen(dir->path);
    struct sp_model loaded;
    int rc;

    if (!path)
        return sp_error(ENOMEM, "model: no memory for a path of %zu bytes", n);
    rc = sp_input_read_in(dir, "config.json", SP_CONFIG_MAX_BYTES, "a config", &text, &len);
    if (!rc) {
        rc = sp_model_parse_config(text, len, path, &loaded);
        free(text);
    }
    if (!rc) {
        /* A long path is cut at its beginning, since its end tells more. */
        snprintf(loaded.name, sizeof loaded.name, "%s",
                 n < sizeof loaded.name ? dir->path : dir->path + n - (sizeof loaded.name - 1));
        *m = loaded;
    }
    free(path);
    return rc;
}

int sp_model_load(const char *what, struct sp_model *m)
{
    const struct sp_model *preset = find_preset(what);
    struct sp_dir dir;
    int rc;

    if (preset) {
        rc = strcmp(what, preset->name) ? 0 : check_preset_alone(what);
        if (!rc)
            *m = *preset;
        return rc;
    }
    if (sp_dir_open(what, &dir))
        return no_such_model(what);
    rc = sp_model_load_in(&dir, m);
    sp_dir_close(&dir);
    return rc;
}
