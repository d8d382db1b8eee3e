/* Which block of which head comes next, for both directions. */
#pragma once

#include "hopper.cuh"

#define KEYS 128 /* of a block's tile */

/* Block `index` of all heads' together: a section of heads after the other, and of its heads, whose tensors fit in L2,
 * those with most work first. `place` counts the blocks of a head. */
struct Block {
    int head, place;

    DEVICE Block(int index, int blocks, int heads, int section) {
        int start = index / (section * blocks) * section, inside = index - start * blocks;
        int wide = min(section, heads - start);
        head = start + inside % wide;
        place = inside / wide;
    }
};
