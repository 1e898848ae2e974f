/* Opens the inputs of a run: model, tokenizer, data of the training and of evaluations, weights. */
#define _GNU_SOURCE /* O_TMPFILE, memfd_create */
#include "train/start/phases.h"
#include "model/files/checksums.h"
#include "model/files/weights_dir.h"
#include "model/tokenizer/stream.h"
#include "sp_error.h"
#include "train/run/sample.h"
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* More text than this must be tokenized once, by the command, instead of by each process of each
 * run. */
#define MOST_TEXT_BYTES ((uint64_t)1 << 30)

/* ---- the model ---------------------------------------------------------------------------- */

/* Checks that shard_size makes no more files than a reader takes. */
static int check_shards(const struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    int n = a->save ? sp_weights_shards(&t->params, a->shard_size) : 1;

    if (n <= SP_ST_MAX_SHARDS)
        return 0;
    return sp_error(EINVAL, "train: --shard-size %llu makes %d files, at most %d are possible",
                    (unsigned long long)a->shard_size, n, SP_ST_MAX_SHARDS);
}

int sp_train_load_model(struct sp_trainer *t)
{
    int err = t->cfg.resume ? sp_model_load_in(&t->resumed_dir, &t->model)
                            : sp_model_load(t->cfg.layout.model, &t->model);

    err = err ? err : sp_params_create(&t->model, &t->params);
    return err ? err : check_shards(t);
}

/* ---- the tokenizer ------------------------------------------------------------------------ */

static int open_tokenizer_in(struct sp_trainer *t, const struct sp_dir *dir)
{
    int err = sp_tokenizer_open_in(dir, &t->tokenizer);

    err = err == -ENOENT ? 0 : err;
    return err ? err : sp_model_load_eos_in(dir, &t->model, &t->eos);
}

/* Opens the tokenizer of the model's directory, or of the step to resume, as t->tokenizer, which stays NULL where there
 * is none, and learns t->eos there. */
static int find_tokenizer(struct sp_trainer *t)
{
    const char *model = t->cfg.layout.model;
    struct sp_dir dir;
    int err;

    if (t->cfg.resume)
        return open_tokenizer_in(t, &t->resumed_dir);
    if (sp_model_is_preset(model))
        return 0;
    err = sp_dir_open(model, &dir);
    if (err)
        return sp_error(-err, "%s: %s", model, strerror(-err));
    err = open_tokenizer_in(t, &dir);
    sp_dir_close(&dir);
    return err;
}

/* The token that ends a document, where that is the model's eos. */
static int find_separator(struct sp_trainer *t)
{
    int64_t eos = t->tokenizer     ? sp_tokenizer_special(t->tokenizer, SP_TOKEN_EOS)
                  : t->model.eos.n ? t->model.eos.id[0]
                                   : -1;

    if (!t->cfg.separator_set || t->cfg.separator != SP_TRAIN_EOS)
        return 0;
    if (eos < 0)
        return sp_error(EINVAL, "train: --document-separator eos: %s names no eos token",
                        t->model.name);
    t->cfg.separator = (int)eos;
    return 0;
}

int sp_train_open_tokenizer(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    bool reads = a->data || (a->eval && !a->tokens), writes = a->sample || a->inference;
    bool eos = a->separator_set && a->separator == SP_TRAIN_EOS;
    int err = reads || writes || eos ? find_tokenizer(t) : 0;

    return err ? err : find_separator(t);
}

int sp_train_read_prompt(struct sp_trainer *t)
{
    struct sp_train_config *a = &t->cfg;
    struct sp_ids prompt = {0};
    int err = a->sample ? sp_train_check_prompt(t, a->prompt) : 0;

    if (err || !a->inference)
        return err;
    err = sp_train_encode_prompt(t, a->prompt, false, &prompt);
    if (!err)
        a->layout.seq = prompt.n + (size_t)a->sample < (size_t)t->model.positions
                            ? (int)prompt.n + a->sample
                            : t->model.positions;
    sp_ids_free(&prompt);
    return err;
}

/* ---- text as tokens ----------------------------------------------------------------------- */

/* Writes the tokens of texts into a file without a name. */
struct tokens {
    const struct sp_trainer *t;
    const char *path; /* of the text under way */
    FILE *f;
    int width; /* bytes of a token */
};

/* Opens a nameless file in TMPDIR or /tmp, or else in memory. A descriptor, or -1 and errno. */
static int open_unnamed(void)
{
    const char *dir = getenv("TMPDIR");
    int fd = open(dir && *dir ? dir : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    return fd >= 0 ? fd : memfd_create("tokens", MFD_CLOEXEC);
}

static int refuse_token(const struct tokens *to, uint32_t id)
{
    size_t n = 0;
    const char *text = sp_tokenizer_text(to->t->tokenizer, id, &n);

    return sp_error(EINVAL,
                    "data %s: token %u ('%.*s') of " SP_TOKENIZER_FILE
                    " is beyond the model's vocabulary of %d",
                    to->path, id, n < 40 ? (int)n : 40, text ? text : "", to->t->model.vocab);
}

static int write_tokens(void *arg, const uint32_t *ids, size_t n)
{
    const struct tokens *to = arg;
    int err;

    for (size_t i = 0; i < n; i++)
        if (ids[i] >= (uint32_t)to->t->model.vocab)
            return refuse_token(to, ids[i]);
    err = sp_tokens_write(to->f, ids, n, to->width);
    return err ? sp_error(-err, "data %s: its tokens cannot be kept in a temporary file: %s",
                          to->path, strerror(-err))
               : 0;
}

static int tokenize_file(struct sp_tokenizing *z, struct tokens *to, const char *path)
{
    struct sp_data_file file;
    FILE *f = NULL;
    int err = sp_data_open_file(path, &file);

    if (err)
        return err;
    if (!file.size)
        err = sp_error(EINVAL, "data %s is empty", path);
    else if (z->bytes + file.size > MOST_TEXT_BYTES)
        err = sp_error(EFBIG,
                       "data %s: more than %" PRIu64 " MiB of text, which each process would "
                       "tokenize: run starpipe tokenize once, and give --tokens",
                       path, MOST_TEXT_BYTES >> 20);
    else if (!(f = fdopen(file.fd, "rb")))
        err = sp_error(errno, "cannot read data %s: %s", path, strerror(errno));
    to->path = path;
    err = err ? err : sp_tokenize_file(z, f, path);
    if (f)
        fclose(f);
    else
        close(file.fd);
    free(file.path);
    return err;
}

/* Tokenizes all files, in order, into to->f. */
static int tokenize_files(struct tokens *to, const char *names, struct sp_tokenizing *z)
{
    char **paths;
    int n, err = sp_data_names(names, &paths, &n);

    if (err)
        return err;
    for (int i = 0; !err && i < n; i++)
        err = tokenize_file(z, to, paths[i]);
    if (!err && fflush(to->f))
        err = sp_error(errno, "data %s: its tokens cannot be kept in a temporary file: %s", names,
                       strerror(errno));
    sp_data_free_names(paths, n);
    return err;
}

/* Makes data of the one file of `to`, which `fd` reads from now on. */
static int take_tokens(const struct tokens *to, int fd, const char *names,
                       const struct sp_tokenizing *z, struct sp_data *data)
{
    size_t tokens = (size_t)z->tokens;
    struct sp_data_file *file = calloc(1, sizeof *file);
    char *path = strdup(names);

    if (!file || !path) {
        free(file);
        free(path);
        return sp_error(ENOMEM, "data %s: no memory for its tokens", names);
    }
    *file = (struct sp_data_file){.path = path,
                                  .fd = fd,
                                  .size = tokens * (size_t)to->width,
                                  .tokens = tokens,
                                  .width = to->width};
    *data = (struct sp_data){.file = file,
                             .files = 1,
                             .tokens = tokens,
                             .text_bytes = z->bytes,
                             .vocab = (uint32_t)to->t->model.vocab};
    return 0;
}

static int open_as_tokens(const struct sp_trainer *t, const char *names, struct sp_data *data)
{
    const struct sp_train_config *a = &t->cfg;
    bool documents = a->separator_set; /* the texts may hold many, each ended by eos */
    int64_t eos = sp_tokenizer_special(t->tokenizer, SP_TOKEN_EOS);
    struct sp_tokenizing z = {.t = t->tokenizer,
                              .threads = omp_get_max_threads(),
                              .separator = a->separator_set ? a->separator : eos,
                              .by = documents && a->separator == eos ? SP_DOCUMENTS_EOS
                                                                     : SP_DOCUMENTS_FILE,
                              .write = write_tokens};
    struct tokens to = {.t = t, .path = names, .width = t->model.vocab <= 65536 ? 2 : 4};
    int fd = open_unnamed(), writer = fd < 0 ? -1 : dup(fd), err;

    z.to = &to;
    to.f = writer < 0 ? NULL : fdopen(writer, "w+b");
    if (to.f) {
        err = tokenize_files(&to, names, &z);
        fclose(to.f);
    } else {
        err = sp_error(errno, "data %s: no temporary file for its tokens: %s", names,
                       strerror(errno));
    }
    if (!err && !z.tokens)
        err = sp_error(EINVAL, "data %s: there is no text in it", names);
    err = err ? err : take_tokens(&to, fd, names, &z, data);
    if (err && fd >= 0)
        close(fd);
    return err;
}

/* Opens what --data or --eval names: tokens, text as tokens of the tokenizer, which makes them here and now, or bytes. */
static int open_text(const struct sp_trainer *t, const char *names, struct sp_data *data)
{
    const struct sp_train_config *a = &t->cfg;

    if (t->tokenizer && !a->tokens)
        return open_as_tokens(t, names, data);
    return sp_data_open(names, sp_train_token_bytes(a), t->model.vocab, data);
}

int sp_train_open_data(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    const char *path = a->tokens ? a->tokens : a->data;
    int err;

    if (!path)
        return 0; /* dry run */
    err = open_text(t, path, &t->data);
    if (err)
        return err;
    t->data.shuffled = a->order == SP_TRAIN_SHUFFLED;
    t->data.seed = t->seed;
    return 0;
}

/* Each token that is asked for is predicted once, so the last step may be shorter. */
int sp_train_open_eval(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    int64_t step = sp_train_step_samples(t), samples;
    size_t asked = (size_t)a->eval_tokens;
    int err;

    if (!a->eval)
        return 0;
    err = open_text(t, a->eval, &t->eval_data);
    if (err)
        return err;
    if (t->eval_data.tokens < 2)
        return sp_error(EINVAL, "--eval %s has one token: there is none to predict from it",
                        a->eval);
    if (asked && t->eval_data.tokens > asked + 1)
        t->eval_data.tokens = asked + 1;
    t->eval_data.once = true;
    samples = ((int64_t)t->eval_data.tokens - 2) / a->layout.seq + 1;
    if ((samples - 1) / step >= INT_MAX)
        return sp_error(EINVAL, "--eval %s takes more than %d steps: give --eval-tokens", a->eval,
                        INT_MAX);
    t->eval_steps = (int)((samples - 1) / step + 1);
    return 0;
}

/* ---- weights ------------------------------------------------------------------------------ */

/* For a model that a run saved: checks that its files are as they were written. In the directory
 * of a run, config.json is a link into the newest step, which has the checksums. */
static int verify_model(const struct sp_trainer *t)
{
    const char *model = t->cfg.layout.model;
    char config[PATH_MAX], *real = NULL;
    struct sp_dir dir;
    struct stat st;
    int err;

    if (!sp_dir_open(model, &dir) && !sp_dir_has(&dir, SP_CHECKSUMS_FILE, &st)) {
        sp_dir_close(&dir);
        snprintf(config, sizeof config, "%s/config.json", model);
        real = realpath(config, NULL);
        if (real)
            *strrchr(real, '/') = '\0';
        if (!real || sp_dir_open(real, &dir))
            dir = SP_DIR_CLOSED;
    }
    free(real);
    if (dir.fd < 0)
        return 0; /* an error is printed when it is read */
    err = sp_checksums_verify_model(&dir, t->world.rank, t->world.size);
    sp_dir_close(&dir);
    return err == -ENOENT ? 0 : err;
}

/* Training may begin with random weights; an inference run refuses a model without weights. */
static int refuse_no_weights(const struct sp_trainer *t)
{
    return t->cfg.inference ? sp_error(ENOENT,
                                       "%s has no weights: text can be drawn from a directory with "
                                       "config.json and " SP_WEIGHTS_FILE,
                                       t->cfg.layout.model)
                            : 0;
}

/* Opens the weights of the model, or of the step to resume, which must have some; otherwise
 * t->weights may stay zero. */
int sp_train_open_weights(struct sp_trainer *t)
{
    const char *model = t->cfg.layout.model;
    int err;

    if (!t->cfg.resume && sp_model_is_preset(model))
        return refuse_no_weights(t);
    err = t->cfg.resume ? sp_weights_open_in(&t->resumed_dir, &t->weights)
                        : sp_weights_open(model, &t->weights);
    if (err)
        return err;
    if (!t->weights.n_shards)
        return t->cfg.resume ? sp_error(ENOENT, "cannot resume: %s has no " SP_WEIGHTS_FILE,
                                        t->resumed_dir.path)
                             : refuse_no_weights(t);
    err = sp_weights_check(&t->weights, &t->params);
    if (err || t->cfg.dry_run)
        return err;
    err = t->cfg.resume ? 0 : verify_model(t); /* sp_train_check_resume checks a step */
    if (err)
        return err;
    return sp_weights_check_values(&t->weights, &t->params, t->world.rank, t->world.size);
}
