#include "policies/families/aligned/slots.h"
#include "policies/refuse.h"
#include <errno.h>
#include <stdio.h>

int sp_slots_check(const struct sp_layout *lay, char *why, size_t n)
{
    struct sp_layout fit = *lay;
    int p = lay->stages, rest = lay->slices % p;

    if (p > SP_SLOT_STAGES) {
        snprintf(why, n, "has at most %d stages, not %d; use --stages %d", SP_SLOT_STAGES, p,
                 SP_SLOT_STAGES);
        return -EINVAL;
    }
    if (lay->chunks == 1 || !rest)
        return 0;
    fit.slices += p - rest;
    return sp_refuse(
        lay, &fit, why, n,
        "with %d chunks per stage takes slices in groups of %d, the stages, which %d are not",
        lay->chunks, p, lay->slices);
}

/* ---- units of a stage ----------------------------------------------------------------------- */

/* Units of a micro-batch on one stage. */
static int units_of_mb(const struct sp_layout *lay)
{
    return lay->slices * lay->chunks;
}

int sp_slots_reach(const struct sp_layout *lay)
{
    return (lay->stages + units_of_mb(lay) - 1) / units_of_mb(lay);
}

static int units(const struct sp_layout *lay)
{
    return lay->micro_batches * units_of_mb(lay);
}

/* Slices that go through a chunk before the next chunk takes them. */
static int group(const struct sp_layout *lay)
{
    return lay->chunks > 1 ? lay->stages : lay->slices;
}

static struct sp_op op_of_unit(const struct sp_layout *lay, enum sp_pass pass, int u)
{
    int each = units_of_mb(lay), size = group(lay), at = u % each;

    if (pass == SP_B)
        at = each - 1 - at;
    return (struct sp_op){.pass = (unsigned char)pass,
                          .mb = u / each,
                          .chunk = at / size % lay->chunks,
                          .slice = (unsigned short)(at / (size * lay->chunks) * size + at % size)};
}

static int unit_of_op(const struct sp_layout *lay, const struct sp_op *op)
{
    int each = units_of_mb(lay), size = group(lay);
    int at = (op->slice / size * lay->chunks + op->chunk) * size + op->slice % size;

    if (op->pass == SP_B)
        at = each - 1 - at;
    return op->mb * each + at;
}

/* ---- slots ---------------------------------------------------------------------------------- */

/* Slots of each pass. */
static int of_pass(const struct sp_layout *lay)
{
    return units(lay) + lay->stages - 1;
}

/* The slot of the first backward; all slots before it are for forwards. */
static int first_backward(const struct sp_layout *lay)
{
    return units_of_mb(lay) + lay->stages - 1;
}

int sp_slots(const struct sp_layout *lay)
{
    return first_backward(lay) + 2 * of_pass(lay) - 1;
}

static enum sp_pass pass_of(const struct sp_layout *lay, int slot)
{
    int later = slot - first_backward(lay);

    return later >= 0 && later % 2 == 0 ? SP_B : SP_F;
}

/* The number of a slot among those of its pass. */
static int number_of(const struct sp_layout *lay, int slot)
{
    int first = first_backward(lay), later = slot - first;

    if (later < 0)
        return slot;
    return later % 2 ? first + later / 2 : later / 2;
}

static int slot_of(const struct sp_layout *lay, enum sp_pass pass, int number)
{
    int first = first_backward(lay);

    if (pass == SP_B)
        return first + 2 * number;
    return number < first ? number : 2 * number - first + 1;
}

int sp_slot_of(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    int late = op->pass == SP_B ? lay->stages - 1 - stage : stage;

    return slot_of(lay, (enum sp_pass)op->pass, unit_of_op(lay, op) + late);
}

int sp_slot_beside(const struct sp_layout *lay, int slot, int way)
{
    int number = number_of(lay, slot) + way;

    return number < 0 || number >= of_pass(lay) ? -1 : slot_of(lay, pass_of(lay, slot), number);
}

bool sp_slot_op(const struct sp_layout *lay, int stage, int slot, struct sp_op *op)
{
    enum sp_pass pass = pass_of(lay, slot);
    int u = number_of(lay, slot) - (pass == SP_B ? lay->stages - 1 - stage : stage);

    if (u < 0 || u >= units(lay))
        return false;
    *op = op_of_unit(lay, pass, u);
    return true;
}

void sp_slots_emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    struct sp_op op;

    for (int slot = 0; slot < sp_slots(lay); slot++)
        if (sp_slot_op(lay, stage, slot, &op))
            sp_program_add_op(prog, op);
}
