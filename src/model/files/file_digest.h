/* A short word for the contents of a file, to tell whether two processes read the same. */
#ifndef SP_FILE_DIGEST_H
#define SP_FILE_DIGEST_H

#include <stdint.h>

/*
 * Size, and a hash (XXH3) of at most 256 pages of 4 KiB spread evenly over the file, the first and
 * the last included: quick for files of any size, and blind to a change between the pages. 0, or
 * -errno after one line with `path`.
 */
int sp_file_digest(int fd, const char *path, uint64_t *bytes, uint64_t *digest);

#endif
