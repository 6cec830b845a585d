/* consumer.c - a stranger's program: builds a graph with the installed library alone. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/graph.h>

int main(void) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(32, 784));
    tutti_output(g, "y", x);
    if (tutti_graph_check(g) != TUTTI_OK) {
        fprintf(stderr, "%s\n", tutti_last_error());
        return 1;
    }
    char *text = tutti_graph_print(g);
    if (text) printf("%s", text);
    free(text);
    tutti_graph_destroy(g);
    return text ? 0 : 1;
}
