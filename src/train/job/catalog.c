/* catalog.c - prints the tables of the library as text. */
#include "tutti/catalog.h"

#include <string.h>

#include "data/dataset.h"
#include "import/import.h"
#include "ops/op_table.h"
#include "passes/passes.h"
#include "train/job/lr_schedule.h"
#include "train/job/optimizer.h"
#include "tutti/comm.h"
#include "tutti/models.h"

static void row(tti_str *out, const char *name, const char *doc) {
    tti_str_printf(out, "%-26s %s\n", name, doc);
}

static void print_ops(tti_str *out) {
    for (int i = 0; tti_op_at(i); i++) {
        const tti_op *op = tti_op_at(i);
        row(out, op->name, op->doc);
        for (const tti_attr_spec *spec = op->attrs; spec && spec->name; spec++)
            tti_str_printf(out, "    %-22s %s\n", spec->name, spec->doc ? spec->doc : "");
    }
}

static void print_op_table(tti_str *out) {
    tti_str_add(
        out,
        "\n## Ops of Tutti\n\nPlugins, the C API and imported models build graphs of these ops. "
        "`tutti ops` lists\ntheir attributes.\n\n| op | meaning | gradient |\n"
        "|---|---|---|\n");
    for (int i = 0; tti_op_at(i); i++) {
        const tti_op *op = tti_op_at(i);
        tti_str_printf(out, "| `%s` | ", op->name);
        for (const char *p = op->doc; *p; p++)
            tti_str_printf(out, *p == '|' || *p == '*' || *p == '_' || *p == '<' ? "\\%c" : "%c",
                           *p);
        tti_str_printf(out, " | %s |\n", op->grad ? "yes" : op->traits & TTI_SOURCE ? "" : "no");
    }
}

static void print_operators(tti_str *out) {
    tti_str_add(
        out,
        "# Operators\n\nThis page lists the operators that model files may contain "
        "([pytorch.md](pytorch.md)), and the ops of Tutti.\n`tutti operators` writes it. A file "
        "with another operator is refused; the message names all operators that are missing.\n");
    tti_operators_page(out);
    print_op_table(out);
}

static void print_passes(tti_str *out) {
    for (int i = 0; tti_pass_at(i); i++) row(out, tti_pass_at(i)->name, tti_pass_at(i)->doc);
}

static void print_models(tti_str *out) {
    for (int i = 0; tutti_model_at(i); i++)
        row(out, tutti_model_at(i)->name, tutti_model_at(i)->doc);
}

static void print_formats(tti_str *out) {
    for (int i = 0; tti_format_at(i); i++) row(out, tti_format_at(i)->name, tti_format_at(i)->doc);
}

static void print_optimizers(tti_str *out) {
    for (int i = 0; tti_optimizer_at(i); i++)
        row(out, tti_optimizer_at(i)->name, tti_optimizer_at(i)->doc);
}

static void print_schedules(tti_str *out) {
    for (int i = 0; tti_lr_schedule_at(i); i++)
        row(out, tti_lr_schedule_at(i)->name, tti_lr_schedule_at(i)->doc);
}

static void print_algorithms(tti_str *out) {
    row(out, "direct", "each rank reduces one chunk in tree order, then all-gather; exact");
    row(out, "tree", "recursive halving and doubling in tree order; exact");
    row(out, "ring", "reduce-scatter and all-gather around a ring; fast mode only");
}

static void print_transports(tti_str *out) {
    for (int i = 0; tutti_comm_transport_name(i); i++)
        row(out, tutti_comm_transport_name(i), tutti_comm_transport_doc(i));
}

static const struct {
    const char *name;
    void (*print)(tti_str *out);
} tables[] = {
    {"algorithms", print_algorithms}, {"formats", print_formats},
    {"models", print_models},         {"ops", print_ops},
    {"operators", print_operators},   {"optimizers", print_optimizers},
    {"passes", print_passes},         {"schedules", print_schedules},
    {"transports", print_transports},
};

tutti_status tutti_catalog(const char *what, char **text) {
    TTI_TRY(tti_need(what, __func__, "what"));
    TTI_TRY(tti_need(text, __func__, "text"));
    tti_str out = {0};
    *text = NULL;
    for (size_t i = 0; i < TTI_COUNT(tables); i++) {
        if (strcmp(tables[i].name, what) != 0) continue;
        tables[i].print(&out);
        if (out.failed) {
            tti_str_free(&out);
            return tti_fail(TUTTI_E_NOMEM, "catalog: out of memory");
        }
        *text = out.text;
        return TUTTI_OK;
    }
    return tti_fail(TUTTI_E_INVALID, "catalog: no table is called '%s'", what);
}
