#include "starpipe/op.h"
#include "policies/load/limit.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The letter of a pass, in the order of enum sp_pass, and the one before a part that is not a
 * forward. op.h describes the notation. */
static const char pass_letter[] = "FBWR", pass_prefix[] = " bwr";
/* The letter of a part; a chunk has the letter of its pass. */
static const char part_letter[] = {
    [SP_CHUNK] = ' ', [SP_EMBED] = 'E', [SP_PRE] = 'Q',    [SP_ATTN] = 'A',    [SP_POST] = 'O',
    [SP_HEAD] = 'L',  [SP_BLOCK] = 'P', [SP_UPDATE] = 'U', [SP_UPDATE + 1] = 0};

char *sp_op_print(const struct sp_op *op, int sliced, char *text)
{
    char head[3] = "?", chunk[16] = "", slice[8] = "";
    int known = op->pass < SP_PASSES && op->part <= SP_UPDATE;

    if (known && op->part == SP_CHUNK) {
        head[0] = pass_letter[op->pass];
    } else if (known) {
        char *h = head;

        if (op->pass != SP_F)
            *h++ = pass_prefix[op->pass];
        *h++ = part_letter[op->part];
        *h = 0;
    }
    /* F3s1 names chunk 0, and there is one head: L3 */
    if (op->chunk != 0 || (!sliced && op->part != SP_HEAD))
        snprintf(chunk, sizeof chunk, ".%d", op->chunk);
    if (sliced)
        snprintf(slice, sizeof slice, "s%d", op->slice);
    snprintf(text, SP_OP_TEXT, "%s%d%s%s", head, op->mb, chunk, slice);
    return text;
}

/* Reads digits at *text into *value, and moves *text past them. 0 or -EINVAL. */
static int parse_number(const char **text, long max, long *value)
{
    const char *t = *text;
    long v = 0;

    if (*t < '0' || *t > '9')
        return -EINVAL;
    for (; *t >= '0' && *t <= '9'; t++) {
        v = 10 * v + (*t - '0');
        if (v > max)
            return -EINVAL;
    }
    *text = t;
    *value = v;
    return 0;
}

/* The place of a letter in a list, from `first` on; -1: it is not there. */
static int place_of(const char *list, int first, char letter)
{
    const char *found = letter ? strchr(list + first, letter) : NULL;

    return found ? (int)(found - list) : -1;
}

/* "F", "B", "W", "R" of a chunk, or "A", "bA", ... of a part. */
static int parse_head(const char **text, struct sp_op *op)
{
    int pass = place_of(pass_letter, SP_F, **text), part = SP_CHUNK;

    if (pass < 0) {
        pass = place_of(pass_prefix, SP_B, **text);
        *text += pass >= 0;
        part = place_of(part_letter, SP_EMBED, **text);
    }
    if (part < 0)
        return -EINVAL;
    ++*text;
    op->pass = (unsigned char)(pass < 0 ? SP_F : pass);
    op->part = (unsigned char)part;
    return 0;
}

int sp_op_parse(const char *text, struct sp_op *op)
{
    struct sp_op o = {0};
    long mb, chunk = 0, slice = 0;

    if (parse_head(&text, &o) || parse_number(&text, INT_MAX, &mb))
        return -EINVAL;
    if (*text == '.' && (text++, parse_number(&text, INT_MAX, &chunk)))
        return -EINVAL;
    if (*text == 's' && (text++, parse_number(&text, USHRT_MAX, &slice)))
        return -EINVAL;
    if (*text)
        return -EINVAL;
    o.mb = (int)mb;
    o.chunk = (int)chunk;
    o.slice = (unsigned short)slice;
    *op = o;
    return 0;
}

/* The limit on the program that this thread makes. */
static _Thread_local int most_ops = INT_MAX;
static _Thread_local void (*on_full)(int ops);

void sp_program_limit(int ops, void (*full)(int ops))
{
    most_ops = ops;
    on_full = full;
}

void sp_program_add_op(struct sp_program *prog, struct sp_op op)
{
    if (prog->n >= most_ops && on_full)
        on_full(most_ops);
    if (prog->n == prog->cap) {
        int cap = prog->cap == 0 ? 64 : prog->cap <= INT_MAX / 2 ? 2 * prog->cap : INT_MAX;
        struct sp_op *ops = prog->n < cap ? realloc(prog->ops, (size_t)cap * sizeof *ops) : NULL;

        if (!ops) {
            fprintf(stderr, "starpipe: no memory for a program of %d ops\n", cap);
            abort();
        }
        prog->ops = ops;
        prog->cap = cap;
    }
    prog->ops[prog->n++] = op;
}

void sp_program_add(struct sp_program *prog, enum sp_pass pass, int mb, int chunk)
{
    sp_program_add_op(prog, (struct sp_op){.pass = (unsigned char)pass, .mb = mb, .chunk = chunk});
}

void sp_program_add_pair(struct sp_program *prog, int f_mb, int f_chunk, int b_mb, int b_chunk)
{
    sp_program_add_op(prog,
                      (struct sp_op){.pass = SP_F, .overlap = 1, .mb = f_mb, .chunk = f_chunk});
    sp_program_add(prog, SP_B, b_mb, b_chunk);
}

void sp_program_clear(struct sp_program *prog)
{
    free(prog->ops);
    *prog = (struct sp_program){0};
}
