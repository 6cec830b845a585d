/* process.c - one letter of /proc/PID/stat: "71 (any name, brackets too) T 1 ...". */
#include "base/process.h"

#include <stdio.h>
#include <string.h>

char tti_process_state(int pid) {
    char path[64], line[512], *end = NULL;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    if (fgets(line, sizeof line, file)) end = strrchr(line, ')');
    fclose(file);
    return (char)(end && end[1] == ' ' ? end[2] : 0);
}
