#define _GNU_SOURCE /* O_TMPFILE, memfd_create */
#include "train/start/text.h"
#include "model/tokenizer/stream.h"
#include "sp_error.h"
#include <fcntl.h>
#include <inttypes.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* More text than this must be tokenized once, by the command, instead of by each process of each
 * run. */
#define MOST_TEXT_BYTES ((uint64_t)1 << 30)

static int open_tokenizer_in(struct sp_trainer *t, const struct sp_dir *dir)
{
    int err = sp_tokenizer_open_in(dir, &t->tokenizer);

    err = err == -ENOENT ? 0 : err;
    return err ? err : sp_model_load_eos_in(dir, &t->model, &t->eos);
}

int sp_train_open_tokenizer(struct sp_trainer *t)
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

int sp_train_find_separator(struct sp_trainer *t)
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

/* Makes data of the one file of `to`, which another descriptor reads from now on. */
static int take_tokens(const struct tokens *to, const char *names, const struct sp_tokenizing *z,
                       struct sp_data *data)
{
    size_t tokens = (size_t)z->tokens;
    struct sp_data_file *file = calloc(1, sizeof *file);
    char *path = strdup(names);
    int fd = dup(fileno(to->f));

    if (!file || !path || fd < 0) {
        free(file);
        free(path);
        if (fd >= 0)
            close(fd);
        return sp_error(fd < 0 ? errno : ENOMEM, "data %s: no memory or file for its tokens",
                        names);
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
    int fd = open_unnamed(), err;

    z.to = &to;
    to.f = fd < 0 ? NULL : fdopen(fd, "w+b");
    if (!to.f) {
        err = sp_error(errno, "data %s: no temporary file for its tokens: %s", names,
                       strerror(errno));
        if (fd >= 0)
            close(fd);
        return err;
    }
    err = tokenize_files(&to, names, &z);
    if (!err && !z.tokens)
        err = sp_error(EINVAL, "data %s: there is no text in it", names);
    err = err ? err : take_tokens(&to, names, &z, data);
    fclose(to.f);
    return err;
}

int sp_train_open_text(const struct sp_trainer *t, const char *names, struct sp_data *data)
{
    const struct sp_train_config *a = &t->cfg;

    if (t->tokenizer && !a->tokens)
        return open_as_tokens(t, names, data);
    return sp_data_open(names, sp_train_token_bytes(a), t->model.vocab, data);
}
