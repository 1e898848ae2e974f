/*
 * flip_bits STEP N SEED: flips N bits, one at a time, at random places of all files of a
 * checkpoint. Each must be refused with one line that names a file. Only a flip in checksums.json
 * itself may be accepted, such as one of a blank; the values are then unchanged.
 */
#include "model/files/checksums.h"
#include "train/checkpoint/run_state.h"
#include "train/checkpoint/step_dirs.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 16 };

static int files;
static char file[FILES][4400];

static void list(const char *step)
{
    DIR *d = opendir(step);
    struct dirent *e;

    while (d && (e = readdir(d)) && files < FILES)
        if (e->d_name[0] != '.')
            snprintf(file[files++], sizeof file[0], "%s/%s", step, e->d_name);
    if (d)
        closedir(d);
}

/* Checks all that a resumed run checks before it begins; returns 0 if it would begin. */
static int load(const char *path)
{
    static const char *const names[] = {"config.json", "state.json", "optimizer-m.safetensors",
                                        "optimizer-v.safetensors", NULL};
    struct sp_run_state state;
    struct sp_dir step;
    int err = sp_step_open(path, &step);

    if (err)
        return err;
    err = sp_run_state_read(&step, &state);
    if (!err)
        sp_run_state_free(&state);
    for (int share = 0; !err && share < 2; share++)
        err = sp_checksums_verify(&step, names, share, 2);
    sp_dir_close(&step);
    return err;
}

static int flip(const char *path, long at, int bit)
{
    FILE *f = fopen(path, "r+b");
    int c, bad = !f || fseek(f, at, SEEK_SET) || (c = fgetc(f)) == EOF || fseek(f, at, SEEK_SET) ||
                 fputc(c ^ 1 << bit, f) == EOF;

    if (f)
        bad |= fclose(f);
    return bad;
}

int main(int argc, char **argv)
{
    unsigned seed = argc > 3 ? (unsigned)atoi(argv[3]) : 1;
    int n = argc > 2 ? atoi(argv[2]) : 0, refused = 0, same = 0, wrong = 0;

    if (argc < 2)
        return 1;
    list(argv[1]);
    if (!freopen("/dev/null", "w", stderr) || files < 6 || load(argv[1]))
        wrong = 1;
    for (int i = 0; !wrong && i < n; i++) {
        const char *path = file[rand_r(&seed) % files];
        int bit = rand_r(&seed) % 8;
        struct stat st;
        long at;

        stat(path, &st);
        at = (long)((double)rand_r(&seed) / ((double)RAND_MAX + 1) * (double)st.st_size);
        if (flip(path, at, bit))
            wrong++;
        if (load(argv[1]))
            refused++;
        else if (strstr(path, "/" SP_CHECKSUMS_FILE))
            same++;
        else
            wrong += printf("%s, byte %ld, bit %d: loaded\n", path, at, bit) > 0;
        flip(path, at, bit);
    }
    printf("%d bits flipped in %d files: %d refused, %d changed no value\n", n, files, refused,
           same);
    return wrong > 0;
}
