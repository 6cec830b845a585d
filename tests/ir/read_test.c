/* read_test.c - the text form reads back, and hostile texts are refused with their place. */
#include "ir/toy_ops.h"

static tutti_status read_text(const char *text, tutti_graph **out) {
    return tti_graph_read(text, "g.txt", toy_find, out);
}

static void expect_round_trip(const char *text) {
    tutti_graph *g;
    T_OK(read_text(text, &g));
    T_OK(tti_graph_verify(g));
    tti_str back = {0};
    tti_graph_print(g, &back);
    assert_string_equal(tti_str_text(&back), text);
    tti_str_free(&back);
    tutti_graph_destroy(g);
}

T_CASE(printed_graphs_read_back) {
    T_UNUSED;
    expect_round_trip("graph inference\n");
    expect_round_trip(
        "graph training\n"
        "%0 = feed \"x\" () {dims=[2,3]} : f32[2,3]\n"
        "%1, %2 = halves \"h\" (%0) {} : f32[2,3], f32[2,3]\n"
        "%3 = join \"\" (%2, %1, %0) {} : f32[2,3]\n"
        "%4 = knob \"\" (%3) {n=-9223372036854775808 x=0.10000000000000001 "
        "list=[-1,0,9223372036854775807]} : f32[2,3]\n"
        "%5 = knob \"\" (%4) {x=4.9406564584124654e-324} : f32[2,3]\n"
        "%6 = knob \"\" (%4) {x=-inf} : f32[2,3]\n"
        "output \"a\" %3\n"
        "output \"b b\" %5\n");
    expect_round_trip(
        "graph inference\n"
        "%0 = feed \"a\\\"b\\\\c\\x0a\\x7f\xc3\xa9\" () {dims=[1,2,3,4]} : "
        "f32[1,2,3,4] channels_last\n");
}

T_CASE(layout_of_the_text_does_not_matter) {
    T_UNUSED;
    tutti_graph *g;
    T_OK(
        read_text("graph training # a comment\r\n"
                  "\n"
                  "  # another\n"
                  "\t%70=feed\"x\"(){ dims=[2,3] , }:f32[2,3]#x\n"
                  "%4 = knob \"k\" ( %70 ) {x=5e-1,n=4} : f32[2,3]\r\n"
                  "output \"o\" %4",
                  &g));
    assert_true(tutti_graph_is_training(g));
    T_EQ(g->n_nodes, 2);
    T_EQ(tti_attr_int(g->nodes[1], "n"), 4);
    assert_ptr_equal(tti_graph_output(g, "o"), g->nodes[1]->out[0]);
    T_EQ(tti_graph_output(g, "o")->id, 1); /* numbers in the text are only names */
    tutti_graph_destroy(g);
}

#define G "graph training\n"
#define X G "%0 = feed \"x\" () {dims=[2]} : f32[2]\n"

/* Where the reader stops, and what it says. */
static const struct bad_text {
    const char *text, *error;
} bad_texts[] = {
    {"", "g.txt:1:1: error: expected 'graph training' or 'graph inference'"},
    {"graf", "g.txt:1:1: error: expected 'graph training'"},
    {"graph training x", "g.txt:1:16: error: expected the end of the line"},
    {G "nonsense", "g.txt:2:1: error: expected the end of the line"},
    {G "%", "g.txt:2:2: error: expected a value number"},
    {G "%-1", "g.txt:2:2: error: expected a value number"},
    {G "%1048576 = ", "g.txt:2:2: error: value number out of range"},
    {G "%99999999999999999999 = ", "g.txt:2:2: error: value number out of range"},
    {G "%0", "g.txt:2:3: error: expected '='"},
    {G "%0 = ", "g.txt:2:6: error: expected a name of lower-case letters"},
    {G "%0 = Feed", "g.txt:2:6: error: expected a name of lower-case letters"},
    {G "%0 = food \"\"", "g.txt:2:10: error: unknown op"},
    {G "%0 = chain \"\" () {}", "g.txt:2:11: error: fused nodes do not read back"},
    {G "%0, %1 = feed \"\"", "g.txt:2:14: error: the op has another number of outputs"},
    {G "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16 = feed \"\"",
     "error: too many outputs"},
    {G "%0 = feed x", "g.txt:2:11: error: expected '\"'"},
    {G "%0 = feed \"x", "g.txt:2:13: error: bad character or escape"},
    {G "%0 = feed \"x\n\"", "g.txt:2:13: error: bad character or escape"},
    {G "%0 = feed \"\\q\"", "bad character or escape"},
    {G "%0 = feed \"\\x0\"", "bad character or escape"},
    {G "%0 = feed \"\\x00\"", "bad character or escape"},
    {G "%0 = feed \"\\", "bad character or escape"},
    {G "%0 = feed \"x\"", "g.txt:2:14: error: expected '('"},
    {G "%0 = feed \"x\" (", "g.txt:2:16: error: expected '%'"},
    {G "%0 = feed \"x\" ()", "g.txt:2:17: error: expected '{'"},
    {G "%0 = feed \"x\" () {dims", "feed has no attribute 'dims'"},
    {G "%0 = feed \"x\" () {dims}", "feed has no attribute 'dims'"},
    {G "%0 = feed \"x\" () {n=1}", "g.txt:2:19: error: feed has no attribute 'n'"},
    {G "%0 = feed \"x\" () {dims=2}", "attribute 'dims': malformed value"},
    {G "%0 = feed \"x\" () {dims=[}", "attribute 'dims': malformed value"},
    {G "%0 = feed \"x\" () {dims=", "attribute 'dims': malformed value"},
    {G "%0 = feed \"x\" () {dims=[1,2", "attribute 'dims': malformed value"},
    {G "%0 = feed \"x\" () {dims=[1;2]}", "attribute 'dims': malformed value"},
    {G "%0 = feed \"x\" () {dims=[1,1,1,1,1,1,1,1,1]}", "attribute 'dims': malformed value"},
    {G "%0 = feed \"x\" () {dims=[99999999999999999999]}", "attribute 'dims': malformed value"},
    {G "%0 = feed \"x\" () {dims=[1]", "g.txt:2:27: error: expected '}'"},
    {G "%0 = feed \"x\" () {dims=[1]}", "g.txt:2:28: error: expected ':'"},
    {G "%0 = feed \"x\" () {dims=[1]} : f32", "expected '[' after the dtype"},
    {G "%0 = feed \"x\" () {dims=[1]} : f32[2]", "the type is not what the op makes"},
    {G "%0 = feed \"x\" () {dims=[1]} : f64[1]", "the type is not what the op makes"},
    {G "%0 = feed \"x\" () {dims=[1]} : f32[1] channels_last", "channels_last needs 4 dimensions"},
    {G "%0 = feed \"x\" () {dims=[1]} : f32[1] %1", "g.txt:2:38: error: expected the end"},
    {G "%0 = feed \"x\" () {dims=[-1]} : f32[1]", "dimension 0 is negative"},
    {G "%0 = feed \"x\" () {dims=[1099511627777]} : f32[1]", "over 2^40 elements"},
    {G "%0 = feed \"\" () {dims=[1]} : f32[1]", "an input or parameter needs a name of its own"},
    {X "%0 = feed \"y\" () {dims=[2]} : f32[2]", "g.txt:3:28: error: this value is defined twice"},
    {X "%1 = feed \"x\" () {dims=[2]} : f32[2]", "needs a name of its own"},
    {X "%1 = halves \"h\" (%0) {} : f32[2]", "the op has another number of outputs"},
    {X "%1, %1 = halves \"h\" (%0) {} : f32[2], f32[2]", "this value is defined twice"},
    {X "%1, %2 = halves \"h\" (%1) {}", "g.txt:3:24: error: this value is not defined above"},
    {X "%1, %2 = halves \"h\" (%900000) {}", "this value is not defined above"},
    {X "%1, %2 = halves \"h\" (%0 {}", "g.txt:3:25: error: expected ')'"},
    {X "%1, %2 = halves \"h\" (%0,) {}", "g.txt:3:25: error: expected '%'"},
    {X "%1, %2 = halves \"h\" (%0, %0) {}", "halves 'h': 2 inputs, 1 to 1 are allowed"},
    {X "%1, %2 = halves \"h\" () {}", "halves 'h': 0 inputs, 1 to 1 are allowed"},
    {X "%1 = join \"j\" (%0,%0,%0,%0,%0,%0,%0,%0,%0,%0,%0,%0,%0,%0,%0,%0,%0) {}",
     "too many inputs"},
    {X "%1 = knob \"k\" (%0) {n=99999999999999999999} : f32[2]", "'n': malformed value"},
    {X "%1 = knob \"k\" (%0) {n= 4} : f32[2]", "'n': malformed value"},
    {X "%1 = knob \"k\" (%0) {n=4.5} : f32[2]", "knob has no attribute '.5'"},
    {X "%1 = knob \"k\" (%0) {x=} : f32[2]", "'x': malformed value"},
    {X "%1 = knob \"k\" (%0) {x=\n0.25} : f32[2]", "g.txt:3:21: error: attribute 'x': malformed"},
    {X "%1 = knob \"k\" (%0) {n=1 n=1 n=1 n=1 n=1 n=1 n=1 n=1 n=1 n=1 n=1 n=1 n=1 n=1 n=1} : "
       "f32[2]",
     "too many attributes"},
    {X "output o %0", "g.txt:3:8: error: expected '\"'"},
    {X "output \"o\"", "g.txt:3:11: error: expected '%'"},
    {X "output \"o\" %1", "g.txt:3:14: error: this value is not defined above"},
    {X "output \"o\" %0\noutput \"o\" %0", "g.txt:4:14: error: output 'o' is named twice"},
};

T_CASE(bad_texts_are_refused_with_their_place) {
    T_UNUSED;
    int n_wrong = 0;
    for (size_t i = 0; i < TTI_COUNT(bad_texts); i++) {
        tutti_graph *g = (tutti_graph *)&n_wrong; /* must be overwritten */
        tutti_status st = read_text(bad_texts[i].text, &g);
        assert_null(g);
        if (st == TUTTI_E_INVALID && strstr(tutti_last_error(), bad_texts[i].error)) continue;
        n_wrong++;
        print_error("<<%s>>: got '%s', want '%s'\n", bad_texts[i].text,
                    st ? tutti_last_error() : "ok", bad_texts[i].error);
    }
    T_EQ(n_wrong, 0);
}

/* Every text cut short at every byte, and with every byte changed, gets an answer. */
T_CASE(damaged_texts_get_an_answer) {
    T_UNUSED;
    tutti_graph *g = toy_graph(), *back;
    tti_str text = {0};
    tti_graph_print(g, &text);
    tutti_graph_destroy(g);
    static const char bytes[] = "\n\"%{[(:=9# "; /* and the 0 at its end */
    char damaged[1024];
    assert_true(text.n_bytes < sizeof damaged);
    for (size_t at = 0; at < text.n_bytes; at++)
        for (size_t c = 0; c < sizeof bytes; c++) {
            memcpy(damaged, tti_str_text(&text), text.n_bytes + 1);
            damaged[at] = bytes[c];
            if (read_text(damaged, &back) == TUTTI_OK) {
                T_OK(tti_graph_verify(back));
                tutti_graph_destroy(back);
            }
        }
    tti_str_free(&text);
}

T_CASE(names_have_a_limit) {
    T_UNUSED;
    char text[1200] = G "%0 = feed \"";
    size_t start = strlen(text);
    memset(text + start, 'n', 600);
    memcpy(text + start + 600, "\" () {}", 8);
    tutti_graph *g;
    T_FAILS(read_text(text, &g), TUTTI_E_INVALID, "a name is too long");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printed_graphs_read_back),
        cmocka_unit_test(layout_of_the_text_does_not_matter),
        cmocka_unit_test(bad_texts_are_refused_with_their_place),
        cmocka_unit_test(damaged_texts_get_an_answer),
        cmocka_unit_test(names_have_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
