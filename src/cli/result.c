#include "cli/result.h"
#include "model/files/output.h"
#include "sp_error.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The result that is being printed: at most one. */
static struct {
    const char *command, *path;
    int most;
    FILE *kept; /* replaces standard output meanwhile */
    int out;    /* the real standard output, kept here meanwhile */
} result = {.out = -1};

int sp_result_begin(const char *command, const char *output, int most)
{
    FILE *kept;
    int out;

    if (!output)
        return 0;
    fflush(stdout);
    kept = tmpfile();
    if (!kept)
        return sp_error(errno, "%s: cannot make a temporary file for what %s will hold: %s",
                        command, output, strerror(errno));
    out = dup(STDOUT_FILENO);
    if (out < 0 || dup2(fileno(kept), STDOUT_FILENO) < 0) {
        int err = errno;

        fclose(kept);
        return sp_error(err, "%s: cannot redirect standard output: %s", command, strerror(err));
    }
    result.command = command;
    result.path = output;
    result.most = most;
    result.kept = kept;
    result.out = out;
    return 0;
}

static int copy_file(FILE *from, FILE *to)
{
    char some[1 << 16];
    size_t n;

    while ((n = fread(some, 1, sizeof some, from)) > 0)
        if (fwrite(some, 1, n, to) < n)
            return errno;
    if (ferror(from))
        return EIO;
    return fflush(to) ? errno : 0;
}

/* Replaces the file by the complete result; on an error the old file stays as it was. */
static int replace_file(long bytes)
{
    struct sp_output out;
    int err = sp_output_open(result.path, &out);

    if (err)
        return err;
    out.bytes = (uint64_t)bytes;
    err = copy_file(result.kept, out.f);
    if (!err)
        return sp_output_commit(&out);
    err = sp_output_fail(&out, err);
    sp_output_discard(&out);
    return err;
}

/* Only a regular file is replaced; devices, FIFOs and links are written through. */
static bool is_replaced(const char *path)
{
    struct stat st;

    return lstat(path, &st) ? errno == ENOENT : S_ISREG(st.st_mode);
}

static int write_file(void)
{
    FILE *to;
    long bytes;
    int err;

    fseek(result.kept, 0, SEEK_END);
    bytes = ftell(result.kept);
    rewind(result.kept);
    if (is_replaced(result.path))
        return replace_file(bytes);
    to = fopen(result.path, "w");
    err = to ? copy_file(result.kept, to) : errno;
    if (to && fclose(to) && !err)
        err = errno;
    return err ? sp_error(err, "%s: cannot write %s: %s (%ld bytes are wanted)", result.command,
                          result.path, strerror(err), bytes)
               : 0;
}

int sp_result_end(int status)
{
    bool bad;

    if (!result.kept)
        return status;
    bad = fflush(stdout) || ferror(stdout);
    dup2(result.out, STDOUT_FILENO);
    close(result.out);
    if (status <= result.most && bad) {
        sp_error(EIO, "%s: no room in the temporary directory for what %s will hold",
                 result.command, result.path);
        status = 1;
    } else if (status <= result.most && write_file()) {
        status = 1;
    }
    clearerr(stdout);
    fclose(result.kept);
    result.kept = NULL;
    return status;
}
