/* The tokenizer of the model, and text as its tokens. */
#ifndef SP_TRAIN_TEXT_H
#define SP_TRAIN_TEXT_H

#include "train/trainer.h"

/* Opens the tokenizer of the model's directory, or of the step to resume, as t->tokenizer, which stays NULL where there
 * is none, and learns t->eos there. 0 or -errno after one line. */
int sp_train_open_tokenizer(struct sp_trainer *t);

/* Sets the token that ends a document, where that is the model's eos. 0, or -EINVAL after one line: it has none. */
int sp_train_find_separator(struct sp_trainer *t);

/*
 * Opens what --data or --eval names: tokens, text as tokens of the tokenizer, or, without one, bytes. Text is
 * tokenized as `starpipe tokenize` does it, here and now. 0 or -errno after one line.
 */
int sp_train_open_text(const struct sp_trainer *t, const char *names, struct sp_data *data);

#endif
