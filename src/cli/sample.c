/* starpipe sample: text that a saved model draws. */
#include "cli/commands.h"
#include "cli/result.h"
#include "cli/print.h"
#include "sp_error.h"
#include "sp_utf8.h"
#include "train/config.h"
#include "train/run/draw.h"
#include "train/run/sample.h"
#include "train/start/agree.h"
#include "train/start/outputs.h"
#include "train/start/start.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct args {
    const char *dir, *prompt;
    struct sp_sampling how;
    int stages, threads, device, dtype;
    struct sp_result result;
};

enum { TEXT, JSON };

static int parse_options(int argc, char **argv, struct args *a)
{
    const struct sp_option options[] = {
        SP_OPTION("DIR", OPERAND, a->dir,
                  .help =
                      "a model in Hugging Face form, a directory of train --save, or a step in it",
                  .arg = "DIR"),
        SP_OPTION("prompt", TEXT, a->prompt,
                  .help = "what the text begins with (default: bos, or a line break)",
                  .arg = "TEXT"),
        SP_OPTION("tokens", INT, a->how.tokens,
                  .help = "most tokens to follow, if eos does not come before", .arg = "N",
                  .min = 1, .max = 1000000),
        SP_OPTION("temperature", DOUBLE, a->how.temperature,
                  .help = "divides the logits; 0: always the likeliest token", .arg = "T",
                  .max = 1e6),
        SP_OPTION("top-k", INT, a->how.top_k, .help = "draw from so many likeliest tokens",
                  .choices = "K|all", .max = INT_MAX),
        SP_OPTION("top-p", DOUBLE, a->how.top_p,
                  .help = "and of these from the fewest that have this share of the whole",
                  .arg = "P", .min = 1e-9, .max = 1),
        SP_OPTION("seed", INT, a->how.seed, .help = "the same draws the same text", .arg = "N",
                  .max = INT_MAX),
        SP_OPTION(
            "special-tokens", FLAG, a->how.special_tokens,
            .help =
                "special tokens in the prompt, '<|endoftext|>', are tokens, where they are text "
                "otherwise"),
        SP_OPTION("stages", INT, a->stages,
                  .help = "stages that divide the layers, each with its weights, keys and values; "
                          "with it or --slices, tokens a second go to stderr",
                  .arg = "P", .min = 1, .max = 4096),
        SP_OPTION("slices", INT, a->how.slices,
                  .help =
                      "slices of the prompt: a stage works on one while the stage before it has "
                      "the next (auto: four a stage, of 64 tokens or more)",
                  .choices = "N|auto", .max = 4096),
        SP_OPTION("dtype", CHOICE, a->dtype, .help = "weights and activations in products",
                  .choices = SP_DTYPES_CHOICES),
        SP_OPTION("device", CHOICE, a->device, .help = "where to compute",
                  .choices = SP_TRAIN_DEVICES),
        SP_OPTION("threads", INT, a->threads, .help = "threads to compute with", .choices = "N|all",
                  .max = 4096),
        SP_RESULT_OPTIONS(a->result, "text|json"),
        {0},
    };

    return sp_options_parse(options, "Draws text from a saved model.", argc, argv);
}

/* ---- what is printed */

/* The text as it comes, or all of it at once. */
struct output {
    struct sp_utf8_printer printer;
    json_t *tokens; /* that followed; NULL: text is printed */
    int32_t last;
};

static int take_token(void *arg, int32_t id, const char *text, size_t n)
{
    struct output *o = arg;

    sp_utf8_print(&o->printer, text, n);
    if (id >= 0)
        o->last = id;
    if (o->tokens)
        return id >= 0 && json_array_append_new(o->tokens, json_integer(id));
    return fflush(o->printer.to) || ferror(o->printer.to);
}

static json_t *ids_json(const struct sp_ids *ids)
{
    json_t *list = json_array();

    for (size_t i = 0; i < ids->n; i++)
        json_array_append_new(list, json_integer(ids->id[i]));
    return list;
}

static int print_text(struct sp_trainer *t, const struct args *a, const struct sp_ids *prompt,
                      struct sp_sample_times *times)
{
    struct output o = {.printer = {.to = stdout, .plain = isatty(STDOUT_FILENO) == 1}};
    const struct sp_sample_sink to = {take_token, &o, times};
    int err;

    sp_utf8_print(&o.printer, a->prompt, strlen(a->prompt));
    err = sp_train_sample(t, prompt, &a->how, &to);
    sp_utf8_print_end(&o.printer);
    printf("\n");
    return err;
}

static int print_json(struct sp_trainer *t, const struct args *a, const struct sp_ids *prompt,
                      struct sp_sample_times *times)
{
    char *text = NULL;
    size_t n = 0;
    struct output o = {.printer = {.to = open_memstream(&text, &n)}, .tokens = json_array()};
    const struct sp_sample_sink to = {take_token, &o, times};
    json_t *root;
    int err = o.printer.to && o.tokens ? sp_train_sample(t, prompt, &a->how, &to)
                                       : sp_error(ENOMEM, "no memory for a sample");

    if (o.printer.to) {
        sp_utf8_print_end(&o.printer);
        fclose(o.printer.to);
    }
    if (!err) {
        root = json_pack("{s:o,s:o,s:o,s:o,s:o,s:s}", "model", sp_utf8_json(a->dir), "prompt",
                         sp_utf8_json(a->prompt), "prompt_tokens", ids_json(prompt), "tokens",
                         json_incref(o.tokens), "text", json_stringn(text, n), "ended_by",
                         sp_train_is_eos(t, o.last) ? "eos" : "tokens");
        if (!root || json_dumpf(root, stdout, JSON_COMPACT))
            err = sp_error(ENOMEM, "no memory for a sample");
        printf("\n");
        json_decref(root);
    }
    json_decref(o.tokens);
    free(text);
    return err;
}

/* For those who have asked how the text is computed. */
static void print_times(const struct args *a, const struct sp_sample_times *s)
{
    const double second = 1e6;

    if (a->stages == 1 && !a->how.slices)
        return;
    fprintf(stderr, "prompt: %d tokens in %.3f s, %.1f a second", s->prompt, s->prompt_us / second,
            s->prompt * second / s->prompt_us);
    if (s->drawn)
        fprintf(stderr, "; text: %d in %.3f s, %.1f a second", s->drawn, s->drawn_us / second,
                s->drawn * second / s->drawn_us);
    fprintf(stderr, "\n");
}

/* ---- the model */

/* 0, or -errno after one line. */
static int open_model(const struct args *a, struct sp_trainer **t)
{
    struct sp_train_config cfg;
    int err = sp_train_config_init(&cfg);

    if (err)
        return err;
    cfg.inference = true;
    cfg.layout.model = a->dir;
    cfg.layout.micro_batches = 1;
    cfg.layout.stages = a->stages;
    cfg.prompt = a->prompt;
    cfg.sample = a->how.tokens;
    cfg.dtype = a->dtype;
    cfg.device = a->device;
    cfg.threads = a->threads;
    return sp_train_prepare(&cfg, t);
}

/* Is the file that is written none of the model's? */
static int check_files(const struct args *a)
{
    struct sp_files files = {0};
    int err = sp_files_add_model(&files, "DIR", a->dir);

    if (!err && a->result.output)
        err = sp_files_add(&files, SP_FILE_REPLACED, "--output", a->result.output);
    err = err ? err : sp_files_check(&files, "sample");
    sp_files_free(&files);
    return err;
}

static void warn(const struct sp_trainer *t, const struct args *a, const struct sp_ids *prompt)
{
    if (!t->tokenizer && t->model.vocab != 256)
        sp_warn(
            "%s has no tokenizer.json: of its vocabulary of %d, the text is the tokens below 256, "
            "as bytes",
            a->dir, t->model.vocab);
    if (prompt->n > (size_t)t->cfg.layout.seq)
        sp_warn("the prompt has %zu tokens, and %s knows %d positions: its last tokens count",
                prompt->n, a->dir, t->cfg.layout.seq);
}

/* Draws the text, after all was accepted. Returns the exit status. */
static int sample(struct sp_trainer *t, const struct args *a, const struct sp_ids *prompt)
{
    struct sp_sample_times times = {0};
    int err;

    if (t->world.rank == 0)
        warn(t, a, prompt);
    err = t->world.rank ? 0 : sp_result_begin("sample", a->result.output, 0);
    if (sp_train_disagree(t->world.rank, err) || sp_train_start(t))
        return 1;
    if (t->world.rank)
        return sp_train_sample(t, prompt, &a->how, &(struct sp_sample_sink){0}) ? 1 : 0;
    err = (a->result.format == JSON ? print_json : print_text)(t, a, prompt, &times);
    if (!err)
        print_times(a, &times);
    return err ? 1 : 0;
}

/* Options, and what of them is checked without the model. 0, -errno, or > 0 after help. */
static int read_options(int argc, char **argv, struct args *a)
{
    int err = parse_options(argc, argv, a);

    err = err ? err : sp_sampling_check(&a->how, "sample");
    return err ? err : check_files(a);
}

int sp_cmd_sample(int argc, char **argv)
{
    struct args a = {.prompt = "", .how = SP_SAMPLING_DEFAULT, .stages = 1};
    struct sp_trainer *t = NULL;
    struct sp_ids prompt = {0};
    struct sp_world world;
    int err, status = 2;

    if (sp_train_join(&argc, &argv, &world))
        return 2;
    sp_options_of_rank(world.rank);
    err = read_options(argc, argv, &a);
    if (sp_train_disagree(world.rank, err)) {
        sp_train_leave();
        return SP_OPTIONS_EXIT(err);
    }
    if (open_model(&a, &t))
        return 2;
    sp_error_hold(world.rank);
    err = sp_train_encode_prompt(t, a.prompt, a.how.special_tokens, &prompt);
    if (!sp_train_disagree(world.rank, err)) {
        sp_error_release(false);
        status = sample(t, &a, &prompt);
    }
    sp_ids_free(&prompt);
    if (sp_trainer_close(t) && !status)
        status = 1;
    return status;
}
