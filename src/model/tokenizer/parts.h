/* The parts of a tokenizer, for the files of this folder. */
#ifndef SP_TOKENIZER_PARTS_H
#define SP_TOKENIZER_PARTS_H

#include "model/tokenizer/added.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/decoder.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pretokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/unigram.h"

enum { SP_AROUND = 8 };

struct sp_tokenizer {
    struct sp_vocabulary vocabulary; /* of the model: added tokens may be in it, or not */
    bool is_unigram;
    struct sp_bpe bpe;
    struct sp_unigram unigram;
    struct sp_added added;
    struct sp_normalizer normalizer;
    struct sp_pretokenizer pretokenizer;
    struct sp_decoder decoder;
    const struct sp_words *words; /* all that the pre-tokenizers do; NULL: they do something else */
    struct sp_around {
        uint32_t id[SP_AROUND];
        int n;
    } before, after; /* the post-processor's */
    bool around;     /* there was one */
    uint32_t vocab;
    int64_t special[SP_SPECIAL_TOKENS];
    /* Places where text may be cut: a space behind such a character; behind the only newline between two words. */
    bool cut_at_space[128], cut_at_newline;
};

/* Reads "model", the pre-tokenizers being known. 0 or -errno after one line. */
int sp_model_read(struct sp_tokenizer *t, const json_t *json, const char *where);
/* Reads "post_processor". 0 or -errno after one line. */
int sp_around_read(struct sp_tokenizer *t, const json_t *json, const char *where);
/* When all is read: finds out where text may be cut. 0 or -errno after one line. */
int sp_cut_prepare(struct sp_tokenizer *t);

#endif
