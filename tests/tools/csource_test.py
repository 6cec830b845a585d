"""What the C scanner of the house tools sees, on sources that are awkward on purpose."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ.get("TUTTI_SOURCE", "."), "tools"))
import csource  # noqa: E402


def found(text):
    return [(f.name, f.n_lines, f.n_params) for f in csource.functions(text)]


class Functions(unittest.TestCase):
    def test_plain(self):
        self.assertEqual(found("int f(void) {\n    return 0;\n}\n"), [("f", 3, 0)])

    def test_one_line_and_parameters(self):
        self.assertEqual(found("static int f(int a, char *b[2], int (*c)(int, int)) { return a; }"),
                         [("f", 1, 3)])

    def test_return_type_on_its_own_line(self):
        self.assertEqual(found("static const char *\nname(int a,\n     ...) {\n}\n"),
                         [("name", 4, 2)])

    def test_braces_in_strings_characters_comments(self):
        text = 'int f(void) {\n    g("}{\\"}", \'}\'); /* } */ // }\n}\nint h(int a) {\n}\n'
        self.assertEqual(found(text), [("f", 3, 0), ("h", 2, 1)])

    def test_not_functions(self):
        for text in ("struct s { int (*f)(int a); };", "int a[] = {1, 2};",
                     "enum { A = (1), B };", "int f(int a);", "typedef struct t { int x; } t;",
                     "static const op ops[] = {{.f = g}, {0}};"):
            self.assertEqual(found(text), [], text)

    def test_after_type_and_table(self):
        text = "struct s {\n    int a;\n};\nstatic int t[] = {1};\nvoid f(struct s *a) {\n}\n"
        self.assertEqual(csource.functions(text)[0], ("f", 5, 2, 1))

    def test_attributes(self):
        text = "__attribute__((format(printf, 1, 2))) static void f(const char *a, ...)\n{\n}\n"
        self.assertEqual(found(text), [("f", 3, 2)])

    def test_nested_blocks_count_once(self):
        self.assertEqual(found("int f(int a) {\n if (a) {\n {\n }\n }\n return 0;\n}"),
                         [("f", 7, 1)])

    def test_extern_c(self):
        self.assertEqual(found('extern "C" {\nint f(void) {\n return 0;\n}\n}\n'), [("f", 3, 0)])

    def test_test_case_macro(self):
        self.assertEqual(found("T_CASE(adds_up) {\n}\n"), [("T_CASE(adds_up)", 2, 1)])

    def test_macro_with_braces_is_no_function(self):
        text = "#define M(x) \\\n    do {   \\\n    } while (0)\nint f(void) {\n}\n"
        self.assertEqual(found(text), [("f", 2, 0)])

    def test_unbalanced(self):
        self.assertFalse(csource.is_balanced("int f(void) {\n#if A\n if (a) {\n#endif\n}\n"))


class Rest(unittest.TestCase):
    def test_includes(self):
        text = '#include "ir/graph.h" /* x */\n// #include "no.h"\n/*\n#include <no.h>\n*/\n' \
               '#  include <math.h>\n'
        self.assertEqual(csource.includes(text),
                         [(1, "quoted", "ir/graph.h"), (6, "system", "math.h")])

    def test_comment_lines(self):
        self.assertEqual(csource.comment_lines('/* a\n b */\nint x; // c\nint y = "/*";\n'),
                         {0, 1, 2})


if __name__ == "__main__":
    unittest.main()
