/* Reads what a config.json says about rotary positions. */
#include "model/config_keys.h"
#include "sp_error.h"
#include <string.h>

static const char *const types[] = {
    [SP_ROPE_DEFAULT] = "default", [SP_ROPE_LINEAR] = "linear", [SP_ROPE_LLAMA3] = "llama3"};

/* Reads the type under either of its names; without one it stays SP_ROPE_DEFAULT. */
static int parse_type(const struct sp_config *c, const json_t *rope, const char *key,
                      enum sp_rope_type *type)
{
    const json_t *v = sp_config_member(rope, key);
    char text[64];

    if (!v)
        return 0;
    for (size_t i = 0; json_is_string(v) && i < sizeof types / sizeof *types; i++)
        if (!strcmp(json_string_value(v), types[i])) {
            *type = (enum sp_rope_type)i;
            return 0;
        }
    return sp_error(EINVAL, "%s: %s is %s, default, linear and llama3 are supported", c->where, key,
                    sp_config_show(v, text));
}

/* Refuses keys that the type does not read: a scaling without a type would still change the
 * model. */
static int check_keys(const struct sp_config *c, const char *name, const json_t *rope,
                      enum sp_rope_type type)
{
    static const struct {
        const char *key;
        enum sp_rope_type from; /* types from here on read it */
    } known[] = {
        {"rope_type", SP_ROPE_DEFAULT},       {"type", SP_ROPE_DEFAULT},
        {"rope_theta", SP_ROPE_DEFAULT},      {"partial_rotary_factor", SP_ROPE_DEFAULT},
        {"factor", SP_ROPE_LINEAR},           {"low_freq_factor", SP_ROPE_LLAMA3},
        {"high_freq_factor", SP_ROPE_LLAMA3}, {"original_max_position_embeddings", SP_ROPE_LLAMA3}};
    const char *key;
    json_t *v;
    char text[64];

    json_object_foreach((json_t *)rope, key, v)
    {
        bool is_known = json_is_null(v) ||
                        (!strcmp(key, "factor") && json_is_number(v) && json_number_value(v) == 1);

        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is_known = is_known || (type >= known[i].from && !strcmp(key, known[i].key));
        if (!is_known)
            return sp_error(EINVAL, "%s: %s.%.40s is %s, which is not supported for type %s",
                            c->where, name, key, sp_config_show(v, text), types[type]);
    }
    return 0;
}

static int parse_scaling(const struct sp_config *c, const json_t *from, struct sp_rope *rope)
{
    if (rope->type == SP_ROPE_DEFAULT)
        return 0;
    SP_TRY(sp_config_real(c, from, "factor", 0, &rope->factor));
    if (rope->type == SP_ROPE_LINEAR)
        return 0;
    SP_TRY(sp_config_real(c, from, "low_freq_factor", 0, &rope->low));
    SP_TRY(sp_config_real(c, from, "high_freq_factor", 0, &rope->high));
    return sp_config_size(c, from, "original_max_position_embeddings", 0, &rope->original);
}

static int parse_object(const struct sp_config *c, const char *name, struct sp_rope *rope)
{
    const json_t *from = sp_config_member(c->root, name);
    struct sp_rope read = {.theta = rope->theta};
    float partial;
    char text[64];

    if (!from)
        return 0;
    if (!json_is_object(from))
        return sp_error(EINVAL, "%s: %s is %s, it must be an object", c->where, name,
                        sp_config_show(from, text));
    SP_TRY(parse_type(c, from, "type", &read.type));
    SP_TRY(parse_type(c, from, "rope_type", &read.type));
    SP_TRY(sp_config_real(c, from, "partial_rotary_factor", 1, &partial));
    if (partial != 1)
        return sp_error(EINVAL, "%s: partial_rotary_factor is %g, only 1 is supported", c->where,
                        partial);
    SP_TRY(check_keys(c, name, from, read.type));
    SP_TRY(sp_config_real(c, from, "rope_theta", rope->theta, &read.theta));
    if (sp_config_member(c->root, "rope_theta") && read.theta != rope->theta)
        return sp_error(EINVAL, "%s: rope_theta is %g, %s.rope_theta %g", c->where, rope->theta,
                        name, read.theta);
    SP_TRY(parse_scaling(c, from, &read));
    if (rope->type != SP_ROPE_DEFAULT && read.type != rope->type)
        return sp_error(EINVAL, "%s: rope_scaling is of type %s, %s of type %s", c->where,
                        types[rope->type], name, types[read.type]);
    *rope = read;
    return 0;
}

int sp_config_rope(const struct sp_config *c, struct sp_rope *rope)
{
    *rope = (struct sp_rope){0};
    SP_TRY(sp_config_real(c, c->root, "rope_theta", 10000, &rope->theta));
    SP_TRY(parse_object(c, "rope_scaling", rope));
    return parse_object(c, "rope_parameters", rope);
}
