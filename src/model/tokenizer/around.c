/* "post_processor" of tokenizer.json: the tokens around a text, bos and eos. */
#include "model/tokenizer/json.h"
#include "model/tokenizer/parts.h"
#include <string.h>

static int add_id(const struct sp_part *p, struct sp_around *a, const json_t *id)
{
    json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;

    if (value < 0 || value >= SP_TOKENIZER_MAX_IDS || a->n == SP_AROUND)
        return sp_part_refuse(
            p, "%s", a->n == SP_AROUND ? "too many tokens around a text" : "a token without id");
    a->id[a->n++] = (uint32_t)value;
    return 0;
}

static int refuse_second(const struct sp_part *p, struct sp_tokenizer *t)
{
    if (t->around)
        return sp_part_refuse(p, "a second one is not supported");
    t->around = true;
    return 0;
}

/* A token of "single", by its name in "special_tokens". */
static int add_special(const struct sp_part *p, struct sp_around *a, const json_t *piece)
{
    const char *name = json_string_value(json_object_get(piece, "id"));
    const json_t *token =
        name ? json_object_get(json_object_get(p->json, "special_tokens"), name) : NULL;
    const json_t *ids = json_object_get(token, "ids");
    int err = 0;

    if (!json_is_array(ids))
        return sp_part_refuse(p, "the special token '%s' has no ids", name ? name : "");
    for (size_t i = 0; !err && i < json_array_size(ids); i++)
        err = add_id(p, a, json_array_get(ids, i));
    return err;
}

static int read_template(const struct sp_part *p, void *to)
{
    struct sp_tokenizer *t = to;
    const json_t *single = json_object_get(p->json, "single");
    struct sp_around *side = &t->before;
    int err = refuse_second(p, t);

    for (size_t i = 0; !err && i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i);
        const json_t *special = json_object_get(piece, "SpecialToken");

        if (special)
            err = add_special(p, side, special);
        else if (side == &t->before && json_object_get(piece, "Sequence"))
            side = &t->after;
        else
            err = sp_part_refuse(p, "\"single\" is not one text with special tokens around");
    }
    if (!err && side == &t->before)
        err = sp_part_refuse(p, "\"single\" has no text");
    return err;
}

/* "cls": ["<s>", 0] before and "sep": ["</s>", 2] behind. */
static int read_pair(const struct sp_part *p, void *to)
{
    struct sp_tokenizer *t = to;
    int err = refuse_second(p, t);

    err = err ? err : add_id(p, &t->before, json_array_get(json_object_get(p->json, "cls"), 1));
    return err ? err : add_id(p, &t->after, json_array_get(json_object_get(p->json, "sep"), 1));
}

/* It moves offsets, and no ids. */
static int read_byte_level(const struct sp_part *p, void *to)
{
    (void)p;
    (void)to;
    return 0;
}

int sp_around_read(struct sp_tokenizer *t, const json_t *json, const char *where)
{
    static const struct sp_part_type types[] = {{"TemplateProcessing", read_template},
                                                {"RobertaProcessing", read_pair},
                                                {"BertProcessing", read_pair},
                                                {"ByteLevel", read_byte_level},
                                                {NULL, NULL}};
    const struct sp_part p = {json, where, "post_processor", ""};

    return sp_part_read(&p, "processors", types, t);
}
