/* starpipe tokenize: files of text to one file of tokens, as train --tokens reads it. */
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/print.h"
#include "model/files/output.h"
#include "model/tokenizer/stream.h"
#include "sp_error.h"
#include "train/start/outputs.h"
#include <inttypes.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILES = 65536, NPY_HEADER = 128 };

struct args {
    const char *file[FILES + 1];
    const char *model, *output, *separator;
    int by, threads;
    bool by_set, special, around;
};

/* The file that is written. */
struct tokens {
    struct sp_output out;
    int width;       /* bytes of a token */
    bool npy;        /* it has a header of NumPy */
    uint64_t tokens; /* in it so far */
};

static int parse_options(int argc, char **argv, struct args *a)
{
    const struct sp_option options[] = {
        SP_OPTION("FILE...", OPERAND, a->file,
                  .help = "text; bytes that are no UTF-8 become tokens as well", .arg = "FILE...",
                  .max = FILES),
        SP_OPTION("model", STRING, a->model,
                  .help = "a model in Hugging Face form, whose tokenizer.json is taken",
                  .arg = "DIR"),
        SP_OPTION(
            "output", OUTPUT, a->output,
            .help =
                "file to write: tokens of two bytes, of four where the vocabulary has more than "
                "65536; with a header if its name ends in .npy",
            .arg = "FILE"),
        SP_OPTION(
            "documents", CHOICE, a->by,
            .help =
                "what a document is: a file; what is between blank lines; what is between texts of "
                "eos (default with --document-separator eos)",
            .choices = "file|blank-line|eos", .given = &a->by_set),
        SP_OPTION("document-separator", STRING, a->separator,
                  .help = "token behind every document (default: eos, where the model has one)",
                  .arg = "TOKEN|eos|none"),
        SP_OPTION(
            "special-tokens", FLAG, a->special,
            .help = "special tokens in the text, '<|endoftext|>', are tokens, where they are text "
                    "otherwise"),
        SP_OPTION("around", FLAG, a->around,
                  .help = "put around every document what tokenizer.json has for it: bos, or eos"),
        SP_OPTION("threads", INT, a->threads,
                  .help = "threads that encode; the tokens do not depend on them",
                  .choices = "N|auto", .max = 1024),
        {0},
    };

    return sp_options_parse(options, "Turns text into the tokens of a model.", argc, argv);
}

/* ---- what the options ask for */

/* --document-separator: the number of a token, -1: none. */
static int find_separator(const struct args *a, const struct sp_tokenizer *t, int64_t *separator)
{
    int64_t eos = sp_tokenizer_special(t, SP_TOKEN_EOS);
    bool default_eos = !a->separator;
    size_t n;
    char *end;

    *separator = -1;
    if (default_eos || !strcmp(a->separator, "eos")) {
        *separator = eos;
        return eos >= 0 || default_eos
                   ? 0
                   : sp_error(EINVAL, "tokenize: --document-separator eos: %s names no eos",
                              a->model);
    }
    if (!strcmp(a->separator, "none"))
        return 0;
    errno = 0;
    *separator = strtoll(a->separator, &end, 10);
    if (errno || *end || *separator < 0 || *separator > UINT32_MAX ||
        !sp_tokenizer_text(t, (uint32_t)*separator, &n))
        return sp_error(EINVAL,
                        "tokenize: --document-separator %s: want eos, none or a token of %s, 0 to "
                        "%u",
                        a->separator, a->model, (unsigned)sp_tokenizer_vocab(t) - 1);
    return 0;
}

/* --documents; who names eos as the separator has it in the text, where there are several
 * documents. */
static enum sp_documents_by documents_by(const struct args *a)
{
    bool eos = a->separator && !strcmp(a->separator, "eos");

    return a->by_set || !eos ? (enum sp_documents_by)a->by : SP_DOCUMENTS_EOS;
}

/* Are the files there, and is none of them written? */
static int check_files(const struct args *a)
{
    struct sp_files files = {0};
    struct stat st;
    int err = 0;

    for (int i = 0; !err && a->file[i]; i++)
        err = sp_files_add(&files, SP_FILE_READ, "FILE", a->file[i]);
    err = err ? err : sp_files_add_model(&files, "--model", a->model);
    err = err ? err : sp_files_add(&files, SP_FILE_REPLACED, "--output", a->output);
    err = err ? err : sp_files_check(&files, "tokenize");
    sp_files_free(&files);
    if (!err && !stat(a->output, &st) && !S_ISREG(st.st_mode))
        err = sp_error(EINVAL, "tokenize: --output %s: not a regular file", a->output);
    for (int i = 0; !err && a->file[i]; i++) {
        if (stat(a->file[i], &st))
            err = sp_error(errno, "tokenize: %s: %s", a->file[i], strerror(errno));
        else if (S_ISDIR(st.st_mode))
            err = sp_error(EISDIR, "tokenize: %s is a directory", a->file[i]);
    }
    return err;
}

/* ---- the file */

static int write_tokens(void *to, const uint32_t *ids, size_t n)
{
    struct tokens *f = to;
    int err = sp_tokens_write(f->out.f, ids, n, f->width);

    f->tokens += n;
    return err ? sp_output_fail(&f->out, -err) : 0;
}

/* The header of numpy.save, version 1, for the tokens that are in the file. */
static int write_header(struct tokens *f)
{
    char header[NPY_HEADER + 1];
    int n;

    if (!f->npy)
        return 0;
    n = snprintf(header, sizeof header,
                 "\x93NUMPY\x01%c%c%c{'descr': '<u%d', 'fortran_order': False, 'shape': (%" PRIu64
                 ",), }",
                 0, NPY_HEADER - 10, 0, f->width, f->tokens);
    memset(header + n, ' ', NPY_HEADER - 1 - (size_t)n);
    header[NPY_HEADER - 1] = '\n';
    if (fseeko(f->out.f, 0, SEEK_SET) || fwrite(header, 1, NPY_HEADER, f->out.f) != NPY_HEADER)
        return sp_output_fail(&f->out, errno);
    return 0;
}

static int tokenize_files(const struct args *a, struct sp_tokenizing *z)
{
    int err = 0;

    for (int i = 0; !err && a->file[i]; i++) {
        FILE *f = fopen(a->file[i], "rb");

        if (!f)
            return sp_error(errno, "tokenize: %s: %s", a->file[i], strerror(errno));
        err = sp_tokenize_file(z, f, a->file[i]);
        fclose(f);
    }
    return err;
}

static int write_output(const struct args *a, struct sp_tokenizing *z, struct tokens *f)
{
    char *target = realpath(a->output, NULL);
    size_t n = strlen(a->output);
    int err;

    f->npy = n > 4 && !strcmp(a->output + n - 4, ".npy");
    f->width = sp_tokenizer_vocab(z->t) <= 65536 ? 2 : 4;
    err = sp_output_open(target ? target : a->output, &f->out); /* a link stays one */
    free(target);
    if (err)
        return err;
    z->write = write_tokens;
    z->to = f;
    err = write_header(f); /* its room */
    err = err ? err : tokenize_files(a, z);
    if (!err && !f->tokens)
        err = sp_error(EINVAL, "tokenize: there is no text, so there are no tokens to write");
    err = err ? err : write_header(f);
    if (err) {
        sp_output_discard(&f->out);
        return err;
    }
    return sp_output_commit(&f->out);
}

static int tokenize_and_tell(const struct args *a, const struct sp_tokenizer *t)
{
    struct sp_tokenizing z = {.t = t,
                              .flags = (a->special ? SP_ENCODE_SPECIAL : 0) |
                                       (a->around ? SP_ENCODE_AROUND : 0),
                              .threads = a->threads ? a->threads : omp_get_num_procs(),
                              .by = documents_by(a)};
    struct tokens f = {0};
    double begun = sp_clock_s(), s;
    int err = find_separator(a, t, &z.separator);

    err = err ? err : write_output(a, &z, &f);
    if (err)
        return err;
    s = sp_clock_s() - begun;
    printf("%" PRIu64 " tokens of %d bytes, %.2f bytes of text each; %" PRIu64 " document%s; "
           "%.1f MB/s on %d thread%s\n",
           z.tokens, f.width, (double)z.bytes / (double)z.tokens, z.documents,
           z.documents == 1 ? "" : "s", (double)z.bytes / 1e6 / (s > 1e-9 ? s : 1e-9), z.threads,
           z.threads == 1 ? "" : "s");
    printf("starpipe train --model %s --tokens %s%s", a->model, a->output,
           f.npy || f.width == 2 ? "" : " --token-bytes 4");
    if (z.separator >= 0)
        printf(" --document-separator %" PRId64, z.separator);
    printf("\n");
    return 0;
}

int sp_cmd_tokenize(int argc, char **argv)
{
    struct args *a = calloc(1, sizeof *a);
    struct sp_tokenizer *t = NULL;
    int ret, status = 2;

    if (!a) {
        sp_error(ENOMEM, "tokenize: no memory");
        return 1;
    }
    ret = parse_options(argc, argv, a);
    if (ret)
        status = SP_OPTIONS_EXIT(ret);
    else if (!a->model || !a->output)
        sp_error(EINVAL, "tokenize: --%s is missing", a->model ? "output FILE" : "model DIR");
    else if (!check_files(a) && !sp_tokenizer_open(a->model, &t))
        status = tokenize_and_tell(a, t) ? 1 : 0;
    sp_tokenizer_close(t);
    free(a);
    return status;
}
