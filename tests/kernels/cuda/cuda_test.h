/* Shared by the tests of the CUDA kernels, which compare them with the CPU's in f32 on the same, rounded, inputs. */
#ifndef SP_TESTS_CUDA_TEST_H
#define SP_TESTS_CUDA_TEST_H

#include "../typed.h"
#include "emulated.h"

/* Results must not depend on the order of blocks and threads; so many orders are tried. */
enum { ORDERS = 3 };

#endif
