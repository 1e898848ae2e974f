/* Apart from companions.c, which hashes: commands that only look at names need not. */
#include "model/files/companions.h"
#include <string.h>

bool sp_companions_is_known(const char *name)
{
    static const char *const begin[] = {"tokenizer",     "special_tokens_map",
                                        "added_tokens",  "generation_config.",
                                        "chat_template", "vocab.",
                                        "merges."};

    for (size_t i = 0; i < sizeof begin / sizeof *begin; i++)
        if (!strncmp(name, begin[i], strlen(begin[i])))
            return true;
    return false;
}
