#include "policies/families/multiplexed/multiplex.h"

int sp_is_multiplexed(const struct sp_layout *lay)
{
    return sp_layout_flag(lay, "multiplex");
}

enum sp_phase sp_slice_phase(const struct sp_layout *lay, int global, int slice)
{
    if (slice < lay->stages - 1 - global)
        return SP_LEFT;
    return slice < lay->slices - global ? SP_STEADY : SP_RIGHT;
}

void sp_slice_stages(const struct sp_layout *lay, int global, int slice, int *first, int *last)
{
    enum sp_phase phase = sp_slice_phase(lay, global, slice);

    *first = phase == SP_RIGHT ? 0 : global;
    *last = phase == SP_LEFT ? lay->stages - 1 : global;
}

/* Left slices come first, in p-g parts each; right ones come last, in g+1 parts each. */
int sp_first_part(const struct sp_layout *lay, int global, int slice)
{
    int left = lay->stages - 1 - global, right = lay->slices - global;
    int l = slice < left ? slice : left, r = slice > right ? slice - right : 0;

    return l * (lay->stages - global) + (slice - l - r) + r * (global + 1);
}

int sp_parts_of(const struct sp_layout *lay, int global)
{
    return sp_first_part(lay, global, lay->slices);
}

static struct sp_slice_part part_at(const struct sp_layout *lay, int global, int number)
{
    int left = lay->stages - 1 - global, right = lay->slices - global;
    int steady = left * (lay->stages - global), ends = steady + right - left;
    struct sp_slice_part at;
    int first, last;

    at.slice = number < steady ? number / (lay->stages - global)
               : number < ends ? left + number - steady
                               : right + (number - ends) / (global + 1);
    sp_slice_stages(lay, global, at.slice, &first, &last);
    at.of = last - first + 1;
    at.part = number - sp_first_part(lay, global, at.slice);
    at.stage = first + at.part;
    return at;
}

struct sp_slice_part sp_part_at(const struct sp_layout *lay, int global, int number)
{
    const struct sp_multiplex_cut *known = lay->map ? lay->map->state : NULL;

    return known && known->part ? known->part[global * sp_part_stride(lay) + number]
                                : part_at(lay, global, number);
}

int sp_part_of_stage(const struct sp_layout *lay, int global, int slice, int stage)
{
    int first, last;

    sp_slice_stages(lay, global, slice, &first, &last);
    return sp_first_part(lay, global, slice) + stage - first;
}

void sp_multiplex_table(const struct sp_layout *lay, struct sp_slice_part *part)
{
    for (int g = 0; g < lay->stages; g++)
        for (int k = 0; k < sp_parts_of(lay, g); k++)
            part[g * sp_part_stride(lay) + k] = part_at(lay, g, k);
}

void sp_parts_overlapping(int part, int in, int of, int *first, int *last)
{
    *first = part * of / in;
    *last = ((part + 1) * of + in - 1) / in - 1;
}

void sp_multiplexed_overlap(const struct sp_layout *lay, int from, int part, int to, int *first,
                            int *last)
{
    struct sp_slice_part mine = sp_part_at(lay, from, part);
    int begin = sp_first_part(lay, to, mine.slice);

    sp_parts_overlapping(mine.part, mine.of, sp_part_at(lay, to, begin).of, first, last);
    *first += begin;
    *last += begin;
}
