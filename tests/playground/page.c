/*
 * page WORDS...: what the page of the playground does with a command, on this machine: calls sp_playground, and
 * prints the files that it left. Exit status as the command's.
 */
#include "playground/playground.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print(const char *path, int to)
{
    char bytes[1 << 16];
    FILE *f = fopen(path, "rb");
    size_t n;

    while (f && (n = fread(bytes, 1, sizeof bytes, f)) > 0)
        if (write(to, bytes, n) != (ssize_t)n)
            exit(3);
    if (f)
        fclose(f);
}

int main(int argc, char **argv)
{
    char words[4096] = "";
    int out = dup(STDOUT_FILENO), errors = dup(STDERR_FILENO), status;

    for (int i = 1; i < argc; i++) {
        if (strlen(words) + strlen(argv[i]) + 2 > sizeof words)
            return 3;
        strcat(words, i > 1 ? "\n" : "");
        strcat(words, argv[i]);
    }
    status = sp_playground(words);
    print("output", out);
    print("errors", errors);
    return status;
}
