/*
 * The models known by name, and sp_model_load, which takes a name or a directory.
 *
 * Sources: GPT-2 (Radford et al. 2019); gpt3-* HelixPipe table 3; gpt-13b and gpt-65b SPPO
 * table 2; llama-h* WeiPipe section 6 (32 layers, 32 heads); llama3-405b the Llama 3 report.
 * Where a paper gives no vocabulary, GPT models take GPT-2's and Llama models Llama 2's; the
 * position tables reach the longest sequence of the paper.
 */
#include "model/model.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* f = 4h, learned positions, tied head. */
#define GPT2(NAME, L, H, A, V, POSITIONS)                                                          \
    {                                                                                              \
        .name = NAME, .arch = SP_ARCH_GPT2, .layers = L, .hidden = H, .heads = A, .kv_heads = A,   \
        .head_dim = (H) / (A), .mlp = 4 * (H), .vocab = V, .positions = POSITIONS, .tied = true,   \
        .norm_eps = 1e-5f                                                                          \
    }

#define LLAMA(NAME, L, H, A, G, F, V, POSITIONS, THETA)                                            \
    {                                                                                              \
        .name = NAME, .arch = SP_ARCH_LLAMA, .layers = L, .hidden = H, .heads = A, .kv_heads = G,  \
        .head_dim = (H) / (A), .mlp = F, .vocab = V, .positions = POSITIONS, .norm_eps = 1e-5f,    \
        .rope_theta = THETA                                                                        \
    }

static const struct sp_model presets[] = {
    GPT2("gpt-tiny", 8, 64, 4, 256, 512),
    LLAMA("llama-tiny", 8, 64, 4, 2, 172, 256, 2048, 10000),
    GPT2("gpt2-124m", 12, 768, 12, 50257, 1024),
    GPT2("gpt3-1.3b", 24, 2048, 16, 50257, 131072),
    GPT2("gpt3-3b", 16, 4096, 32, 50257, 131072),
    GPT2("gpt3-7b", 32, 4096, 32, 50257, 131072),
    GPT2("gpt-13b", 40, 5120, 40, 50257, 4194304),
    GPT2("gpt-65b", 80, 8192, 64, 50257, 4194304),
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

/* More than any real config.json; keeps a wrong path from filling the memory. */
#define CONFIG_MAX_BYTES (16 << 20)

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
    char list[512] = "";
    size_t used = 0;

    for (size_t i = 0; i < PRESETS && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, " %s", presets[i].name);
    return sp_error(ENOENT,
                    "model '%.200s' is neither a preset nor a directory with a config.json; "
                    "presets:%s",
                    what, list);
}

/* Reads a whole file of at most CONFIG_MAX_BYTES into *text, which the caller frees. */
static int read_text(const char *path, char **text, size_t *len)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    char *buf;
    int rc;

    if (!f)
        return sp_error(errno, "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(fileno(f), &st)) {
        rc = sp_error(errno, "%s: %s", path, strerror(errno));
        goto err_close;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = sp_error(EINVAL, "%s: not a regular file", path);
        goto err_close;
    }
    if (st.st_size > CONFIG_MAX_BYTES) {
        rc = sp_error(EINVAL, "%s: %lld bytes, a config has at most %d", path,
                      (long long)st.st_size, CONFIG_MAX_BYTES);
        goto err_close;
    }
    buf = malloc((size_t)st.st_size + 1);
    if (!buf) {
        rc = sp_error(ENOMEM, "%s: no memory for %lld bytes", path, (long long)st.st_size);
        goto err_close;
    }
    *len = fread(buf, 1, (size_t)st.st_size, f);
    if (ferror(f)) {
        rc = sp_error(EIO, "%s: cannot be read", path);
        free(buf);
        goto err_close;
    }
    *text = buf;
    rc = 0;
err_close:
    fclose(f);
    return rc;
}

int sp_model_load(const char *what, struct sp_model *m)
{
    struct sp_model loaded;
    struct stat st;
    char *path, *text = NULL;
    size_t len = 0, n = strlen(what);
    int rc;

    for (size_t i = 0; i < PRESETS; i++) {
        if (!strcmp(what, presets[i].name)) {
            *m = presets[i];
            return 0;
        }
    }
    if (stat(what, &st) || !S_ISDIR(st.st_mode))
        return no_such_model(what);
    path = malloc(n + sizeof "/config.json");
    if (!path)
        return sp_error(ENOMEM, "model: no memory for a path of %zu bytes", n);
    sprintf(path, "%s/config.json", what);
    rc = read_text(path, &text, &len);
    if (!rc) {
        rc = sp_model_parse_config(text, len, path, &loaded);
        free(text);
    }
    if (!rc) {
        /* Of a long path the end tells more than the beginning. */
        snprintf(loaded.name, sizeof loaded.name, "%s",
                 n < sizeof loaded.name ? what : what + n - (sizeof loaded.name - 1));
        *m = loaded;
    }
    free(path);
    return rc;
}
