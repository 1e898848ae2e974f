/* Text that follows a prompt, token by token. */
#ifndef SP_TRAIN_SAMPLE_H
#define SP_TRAIN_SAMPLE_H

#include "model/tokenizer/tokenizer.h"
#include "train/trainer.h"

/* Checks that the prompt can be tokens of the model. 0, or -EINVAL after one line. */
int sp_train_check_prompt(const struct sp_trainer *t, const char *prompt);

/* Appends the tokens of a text that begins with the prompt: bos if the tokenizer puts it there,
 * and the prompt's tokens. There is at least one. 0, or -errno after one line. */
int sp_train_encode_prompt(const struct sp_trainer *t, const char *prompt, bool special_tokens,
                           struct sp_ids *ids);

/* True if this token ends a text. */
bool sp_train_is_eos(const struct sp_trainer *t, int32_t id);

struct sp_sample_times;

/* Receives every token on rank 0, also the last eos, with the bytes that it adds to the text; a
 * result other than 0 ends the text. `id` is -1 at the end, for bytes of a character that was
 * never completed. */
struct sp_sample_sink {
    int (*token)(void *arg, int32_t id, const char *text, size_t n);
    void *arg;
    struct sp_sample_times *times; /* set on rank 0; NULL: not wanted */
};

/* Tokens that went through the model, and how long that took. */
struct sp_sample_times {
    int prompt, drawn; /* of the prompt, up to a full window; of those drawn all but the last */
    double prompt_us, drawn_us;
};

/* All processes call it. 0 or -errno after one line. */
int sp_train_sample(struct sp_trainer *t, const struct sp_ids *prompt,
                    const struct sp_sampling *how, const struct sp_sample_sink *to);

#endif
