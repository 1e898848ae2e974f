/* The tokenizer of the model, and text read as its tokens. */
#ifndef SP_TRAIN_TEXT_H
#define SP_TRAIN_TEXT_H

#include "train/trainer.h"

/* Opens the tokenizer in the model's directory, or of the step to resume, as t->tokenizer, and
 * reads t->eos there. It stays NULL if there is none. 0 or -errno after one line. */
int sp_train_open_tokenizer(struct sp_trainer *t);

/* Sets the token that ends a document, if that is to be the model's eos. 0, or -EINVAL after one
 * line: the model has none. */
int sp_train_find_separator(struct sp_trainer *t);

/*
 * Opens the data that --data or --eval names: tokens; text as tokens of the tokenizer; or bytes, if
 * there is no tokenizer. Text is tokenized here and now, as `starpipe tokenize` does it. 0 or
 * -errno after one line.
 */
int sp_train_open_text(const struct sp_trainer *t, const char *names, struct sp_data *data);

#endif
