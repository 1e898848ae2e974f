/*
 * Included before every file that becomes WebAssembly. There size_t has 32 bits, and the tensors whose
 * bytes are counted have more: our own sizes get 64. The system's functions keep their size_t,
 * so its headers that speak of sizes come first, with all that any file wants of them.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <emscripten/fiber.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define size_t uint64_t
