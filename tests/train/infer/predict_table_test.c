/* predict_table_test.c - predictions of tables: logits, probabilities, values and labels against a
 * computation in f64 from the parameters of the run, and against `tutti predict`. */
#include "train/infer/predicted.h"

enum { N_TRAIN = 41, N_NEW = 6, N_FEATURES = 5, HIDDEN = 4, STEPS = 12 };

/* A cell is missing: NAN; the colour is none that the model was trained with: 3. */
typedef struct table_row {
    double a, b;
    int colour;
} table_row;

static const char *const colours[] = {"blue", "green", "red", "pink"};
static const char *const classes[] = {"setosa", "versicolor", "virginica"};
static const char *const labels[] = {"sport", "news", "fun stuff"};
static const char *const targets[] = {"price", "rent"};
static const table_row new_rows[N_NEW] = {{0.5, 3, 0}, {-2, 8.5, 1},  {4, -3, 2},
                                          {1, NAN, 0}, {0.125, 5, 3}, {9, 20, 2}};

static table_row train_row(int i) {
    return (table_row){i % 7 * 0.5 - 0.5 * (i % 4), i * i % 13, i % 3};
}

static int class_of(const table_row *r) { return r->a > 1 ? 2 : r->b > 5 ? 1 : 0; }

static bool has_label(const table_row *r, int k) {
    return k == 0 ? r->a > 0.5 : k == 1 ? r->b > 6 : r->colour == 1;
}

static double target_of(const table_row *r, int k) {
    return k == 0 ? 1000.5 + 300 * r->a - 20 * r->b : 8 * r->a + 3 * r->colour + 0.25;
}

/* The last n columns of the training files hold a class, values, or labels of 0 and 1. */
typedef struct target_kind {
    const char *kind;
    int n;
} target_kind;

static void write_target(FILE *file, const table_row *r, const target_kind *t) {
    for (int k = 0; k < t->n; k++)
        if (strcmp(t->kind, "classes") == 0)
            fprintf(file, ",%s", classes[class_of(r)]);
        else if (strcmp(t->kind, "values") == 0)
            fprintf(file, ",%.17g", target_of(r, k));
        else
            fprintf(file, ",%d", has_label(r, k));
    fprintf(file, "\n");
}

static void write_split(const char *path, int first, int n, const target_kind *t) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "a,b,colour");
    for (int k = 0; k < t->n; k++)
        fprintf(file, ",%s",
                strcmp(t->kind, "classes") == 0  ? "species"
                : strcmp(t->kind, "values") == 0 ? targets[k]
                                                 : labels[k]);
    fprintf(file, "\n");
    for (int i = first; i < first + n; i++) {
        table_row r = train_row(i);
        fprintf(file, "%.17g,%.17g,%s", r.a, r.b, colours[r.colour]);
        write_target(file, &r, t);
    }
    T_EQ(fclose(file), 0);
}

/* Other columns, in another order, without targets. */
static void write_new(void) {
    FILE *file = fopen("new.csv", "w");
    assert_non_null(file);
    fprintf(file, "colour,note,b,a\n");
    for (int i = 0; i < N_NEW; i++) {
        fprintf(file, "%s,n%d,", colours[new_rows[i].colour], i);
        if (!isnan(new_rows[i].b)) fprintf(file, "%.17g", new_rows[i].b);
        fprintf(file, ",%.17g\n", new_rows[i].a);
    }
    T_EQ(fclose(file), 0);
}

static void train(const char *kind, int n, const char *label, const char *loss) {
    const target_kind target = {kind, n};
    T_EQ(mkdir("table", 0777), 0);
    write_split("table/train.csv", 0, N_TRAIN, &target);
    write_split("table/test.csv", N_TRAIN, 9, &target);
    write_new();
    t_train(SMALL_JOB("data.format=csv", "data.dir=table", "data.n_train=0", "data.n_test=0", label,
                      loss, "model.hidden=[4]", "train.steps=12", "optimizer.lr=0.05",
                      "run.progress=false", "run.dir=run"));
    T_EQ(system("rm -r table"), 0); /* no prediction needs it */
}

/* ---- in f64 ---- */

/* Mean and deviation of a number over the training rows. */
static void figures(double (*of)(const table_row *r, int k), int k, double *mean, double *std) {
    double sum = 0, squares = 0;
    for (int i = 0; i < N_TRAIN; i++) sum += of(&(table_row[]){train_row(i)}[0], k);
    *mean = sum / N_TRAIN;
    for (int i = 0; i < N_TRAIN; i++)
        squares += pow(of(&(table_row[]){train_row(i)}[0], k) - *mean, 2);
    *std = sqrt(squares / N_TRAIN);
}

static double number(const table_row *r, int k) { return k == 0 ? r->a : r->b; }

/* Half of the training rows have a lower b, half a higher one. */
static double median_of_b(void) {
    for (int i = 0;; i++) {
        int n_below = 0, n_equal = 0;
        double b = train_row(i).b;
        for (int k = 0; k < N_TRAIN; k++) {
            n_below += train_row(k).b < b;
            n_equal += train_row(k).b == b;
        }
        if (n_below <= N_TRAIN / 2 && N_TRAIN / 2 < n_below + n_equal) return b;
    }
}

static void logits_of(const tutti_prediction *p, double *logits, int n) {
    double x[N_FEATURES] = {0}, mean, std;
    table_row r = new_rows[p->index];
    T_EQ(p->n_in_file, N_NEW);
    assert_string_equal(p->file, "new.csv");
    if (isnan(r.b)) r.b = median_of_b();
    for (int k = 0; k < 2; k++) {
        figures(number, k, &mean, &std);
        x[k] = (number(&r, k) - mean) / std;
    }
    if (r.colour < 3) x[2 + r.colour] = 1;
    t_mlp(STEPS, x, N_FEATURES, HIDDEN, logits, n);
}

static void check_class(const tutti_prediction *p) {
    double logits[3];
    logits_of(p, logits, 3);
    t_check_classes(p, logits, 3, classes);
    assert_null(p->values);
}

static void check_values(const tutti_prediction *p, int n) {
    double logits[2], mean, std;
    logits_of(p, logits, n);
    t_check_logits(p, logits, n);
    assert_true(p->is_value);
    assert_false(p->is_labels);
    assert_null(p->probabilities);
    T_EQ(p->n_top, 0);
    T_EQ(p->n_values, n);
    for (int k = 0; k < n; k++) {
        figures(target_of, k, &mean, &std);
        T_NEAR((p->values[k] - mean) / std, logits[k], T_LOGIT_TOLERANCE);
        assert_string_equal(p->names[k], targets[k]);
    }
}

static void check_value(const tutti_prediction *p) { check_values(p, 1); }

static void check_two_values(const tutti_prediction *p) { check_values(p, 2); }

static void check_labels(const tutti_prediction *p, int n) {
    double logits[3];
    logits_of(p, logits, n);
    t_check_logits(p, logits, n);
    assert_true(p->is_labels);
    assert_false(p->is_value);
    T_EQ(p->n_top, 0);
    T_EQ(p->n_values, 0);
    for (int k = 0; k < n; k++) {
        T_NEAR(p->probabilities[k], 1 / (1 + exp(-logits[k])), T_LOGIT_TOLERANCE);
        assert_string_equal(p->names[k], labels[k]);
    }
}

static void check_label(const tutti_prediction *p) { check_labels(p, 1); }

static void check_three_labels(const tutti_prediction *p) { check_labels(p, 3); }

/* ---- cases ---- */

static void predict(void (*check)(const tutti_prediction *p)) {
    t_predicted all = t_predict("new.csv", check);
    T_EQ(all.n, N_NEW);
    T_EQ(all.n_notices, 3); /* a column is not read, a cell is filled, a category is unknown */
}

T_CASE(classes_of_rows) {
    T_UNUSED;
    train("classes", 1, "data.label=species", "train.loss=cross-entropy");
    predict(check_class);
}

T_CASE(a_value_of_rows) {
    T_UNUSED;
    train("values", 1, "data.label=price", "train.loss=mse");
    predict(check_value);
}

T_CASE(two_values_of_rows) {
    T_UNUSED;
    train("values", 2, "data.label=[price, rent]", "train.loss=huber");
    predict(check_two_values);
}

T_CASE(a_label_of_rows) {
    T_UNUSED;
    train("labels", 1, "data.label=[sport]", "train.loss=bce");
    predict(check_label);
}

T_CASE(three_labels_of_rows) {
    T_UNUSED;
    train("labels", 3, "data.label=[sport, news, fun stuff]", "train.loss=bce");
    predict(check_three_labels);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(classes_of_rows), IN_FOLDER(a_value_of_rows),      IN_FOLDER(two_values_of_rows),
        IN_FOLDER(a_label_of_rows), IN_FOLDER(three_labels_of_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
