/* cmd_list.c - `tutti ops`, `tutti passes` and similar commands: print the tables of the library.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"
#include "tutti/catalog.h"

int tutti_cmd_list(int argc, char **argv) {
    char *text;
    if (argc > 1) {
        bool help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
        fprintf(help ? stdout : stderr,
                "usage: tutti %s\n\nLists the %s of this build, with a description of each.\n",
                argv[0], argv[0]);
        return help ? 0 : 2;
    }
    tutti_status st = tutti_catalog(argv[0], &text);
    if (st != TUTTI_OK) {
        fprintf(stderr, "tutti: error: %s\n", tutti_last_error());
        return tutti_status_exit_code(st);
    }
    fputs(text, stdout);
    free(text);
    return 0;
}
