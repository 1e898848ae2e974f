#include "policies/families/op_classes.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Two ops of a stage are in the same class exactly if their keys are equal. */
struct key {
    uint64_t op;
    int kind;
};

struct table {
    unsigned mask;
    int *class_of; /* [mask + 1] -1: free */
    struct key *key;
};

static struct key key_of(const struct sp_op_source *from, int stage, const struct sp_op *op)
{
    int id = from->deferred ? from->family->id(from->lay, stage, op) : -1;
    uint64_t deferred = id >= 0 && from->deferred[id];

    return (struct key){.op = (uint64_t)(uint32_t)op->chunk << 32 | (uint64_t)op->slice << 16 |
                              (uint64_t)op->pass << 8 | (uint64_t)(op->part & 127) << 1 | deferred,
                        .kind = from->family->kind ? from->family->kind(from->lay, stage, op) : 0};
}

static uint64_t mixed(struct key key)
{
    return (key.op ^ (uint64_t)(unsigned)key.kind << 20) * 0x9e3779b97f4a7c15u;
}

uint64_t sp_op_class_number(const struct sp_op_source *source, int stage, const struct sp_op *op)
{
    return mixed(key_of(source, stage, op)) + (uint64_t)stage;
}

/* The place in the table at which a key is, or would be inserted. */
static unsigned place_of(const struct table *t, struct key key)
{
    unsigned at = (unsigned)(mixed(key) >> 32) & t->mask;

    while (t->class_of[at] >= 0 && (t->key[at].op != key.op || t->key[at].kind != key.kind))
        at = (at + 1) & t->mask;
    return at;
}

static int create_table(const struct sp_op_source *from, struct table *t)
{
    size_t room = 16;
    int most = 0;

    for (int s = 0; s < from->lay->stages; s++)
        most = from->programs[s].n > most ? from->programs[s].n : most;
    while (room < 2 * (size_t)most)
        room *= 2;
    t->mask = (unsigned)room - 1;
    t->class_of = malloc(room * sizeof *t->class_of);
    t->key = malloc(room * sizeof *t->key);
    return t->class_of && t->key ? 0 : -ENOMEM;
}

static void classify(const struct sp_op_source *from, int stage, struct table *t,
                     struct sp_op_classes *c)
{
    const struct sp_program *prog = &from->programs[stage];
    int n = c->first[stage], *of = c->of + c->first_op[stage];

    memset(t->class_of, -1, ((size_t)t->mask + 1) * sizeof *t->class_of);
    for (int k = 0; k < prog->n; k++) {
        struct key key = key_of(from, stage, &prog->ops[k]);
        unsigned at = place_of(t, key);

        if (t->class_of[at] < 0) {
            t->key[at] = key;
            t->class_of[at] = n;
            c->example[n++] = k;
        }
        of[k] = t->class_of[at];
    }
    c->first[stage + 1] = n;
    c->first_op[stage + 1] = c->first_op[stage] + prog->n;
}

int sp_op_classes_create(const struct sp_op_source *source, struct sp_op_classes *classes)
{
    size_t stages = (size_t)source->lay->stages, ops = 0;
    struct table table = {0};
    int err = create_table(source, &table);

    for (size_t s = 0; s < stages; s++)
        ops += (size_t)source->programs[s].n;
    *classes = (struct sp_op_classes){.of = malloc((ops + 1) * sizeof *classes->of),
                                      .first_op = calloc(stages + 1, sizeof *classes->first_op),
                                      .first = calloc(stages + 1, sizeof *classes->first),
                                      .example = malloc((ops + 1) * sizeof *classes->example)};
    if (!classes->of || !classes->first_op || !classes->first || !classes->example)
        err = -ENOMEM;
    for (int s = 0; !err && s < source->lay->stages; s++)
        classify(source, s, &table, classes);
    free(table.class_of);
    free(table.key);
    if (err)
        sp_op_classes_destroy(classes);
    return err;
}

void sp_op_classes_destroy(struct sp_op_classes *classes)
{
    free(classes->of);
    free(classes->first_op);
    free(classes->first);
    free(classes->example);
    *classes = (struct sp_op_classes){0};
}
