/* graph_text_fuzz.c - any bytes as the text form of a graph: an answer, never a crash; and a graph
 * that is accepted holds every invariant and prints to a text that reads back to the same text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/graph.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void require(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "graph_text_fuzz: %s: %s\n", what, tutti_last_error());
    abort();
}

static char *read_back(const char *text) {
    tutti_graph *g;
    require(tutti_graph_parse(text, "printed", &g) == TUTTI_OK, "read back");
    char *again = tutti_graph_print(g);
    require(again, "print");
    tutti_graph_destroy(g);
    return again;
}

/* A graph that was read has its values numbered from 0 on, as a printed one has. */
static void check_round_trip(const tutti_graph *g) {
    require(tti_graph_verify(g) == TUTTI_OK, "verify");
    char *first = tutti_graph_print(g);
    require(first, "print");
    char *second = read_back(first);
    require(strcmp(first, second) == 0, "the same text");
    free(first);
    free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    char *text = malloc(n_bytes + 1);
    require(text, "malloc");
    if (n_bytes) memcpy(text, data, n_bytes);
    text[n_bytes] = '\0';
    tutti_graph *g = NULL;
    tutti_status st = tutti_graph_parse(text, "fuzz", &g);
    require((st == TUTTI_OK) == (g != NULL), "a graph or a failure");
    require(st == TUTTI_OK || st == TUTTI_E_INVALID, "status");
    require(st == TUTTI_OK || strstr(tutti_last_error(), "fuzz:"), "a message with its place");
    if (g) check_round_trip(g);
    tutti_graph_destroy(g);
    free(text);
    return 0;
}
