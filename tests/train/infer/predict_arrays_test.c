/* predict_arrays_test.c - predictions of texts in windows: logits, probabilities, loss and the
 * likeliest next characters against a GPT-2 computed in f64 from the parameters of the run, and
 * against `tutti predict`. */
#include "train/infer/predicted.h"

enum { CONTEXT = 8, WIDTH = 12, HEADS = 3, DEPTH = WIDTH / HEADS, STEPS = 25, N_TOKENS = 5 };

static const char alphabet[N_TOKENS + 1] = "\nabcd";         /* of the training text, sorted */
static const char new_text[] = "abcdabca\nbcdabcdabcd\ncba"; /* 3 windows of 8 */
static const char short_text[] = "abcdabca\nbc";             /* the last window has 3 */
static const char *const texts[] = {new_text, short_text, "d"};
static const char *const files[] = {"new/1.txt", "new/2.txt", "new/3.txt"};

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    T_EQ(fputs(text, file) >= 0, 1);
    T_EQ(fclose(file), 0);
}

/* ---- GPT-2 with one layer, in f64 ---- */

/* y [n,WIDTH]: normalized rows of x. */
static void normalize(const char *name, int n, const double x[][WIDTH], double y[][WIDTH]) {
    char text[64];
    snprintf(text, sizeof text, "%s.weight", name);
    float *weight = t_parameter(STEPS, text, WIDTH);
    snprintf(text, sizeof text, "%s.bias", name);
    float *bias = t_parameter(STEPS, text, WIDTH);
    for (int t = 0; t < n; t++) {
        double mean = 0, square = 0;
        for (int i = 0; i < WIDTH; i++) mean += x[t][i] / WIDTH;
        for (int i = 0; i < WIDTH; i++) square += pow(x[t][i] - mean, 2) / WIDTH;
        for (int i = 0; i < WIDTH; i++)
            y[t][i] = (x[t][i] - mean) / sqrt(square + 1e-5) * (double)weight[i] + (double)bias[i];
    }
    free(weight);
    free(bias);
}

/* y [WIDTH] of position t: attention to the positions up to t; qkv [n,3,HEADS,DEPTH]. */
static void attend(int t, const double qkv[][3 * WIDTH], double *y) {
    for (int h = 0; h < HEADS; h++) {
        double score[CONTEXT], sum = 0;
        const double *q = qkv[t] + h * DEPTH;
        for (int s = 0; s <= t; s++) {
            double product = 0;
            for (int i = 0; i < DEPTH; i++) product += q[i] * qkv[s][WIDTH + h * DEPTH + i];
            score[s] = exp(product / sqrt(DEPTH));
            sum += score[s];
        }
        for (int i = 0; i < DEPTH; i++) {
            y[h * DEPTH + i] = 0;
            for (int s = 0; s <= t; s++)
                y[h * DEPTH + i] += score[s] / sum * qkv[s][2 * WIDTH + h * DEPTH + i];
        }
    }
}

static double gelu(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

static void add_block(int n, double x[][WIDTH]) {
    double y[CONTEXT][WIDTH], qkv[CONTEXT][3 * WIDTH], made[WIDTH], wide[4 * WIDTH];
    normalize("transformer.h.0.ln_1", n, (const double(*)[WIDTH])x, y);
    for (int t = 0; t < n; t++)
        t_layer(STEPS, "transformer.h.0.attn.c_attn", y[t], WIDTH, qkv[t], 3 * WIDTH);
    for (int t = 0; t < n; t++) {
        double out[WIDTH];
        attend(t, (const double(*)[3 * WIDTH]) qkv, made);
        t_layer(STEPS, "transformer.h.0.attn.c_proj", made, WIDTH, out, WIDTH);
        for (int i = 0; i < WIDTH; i++) x[t][i] += out[i];
    }
    normalize("transformer.h.0.ln_2", n, (const double(*)[WIDTH])x, y);
    for (int t = 0; t < n; t++) {
        t_layer(STEPS, "transformer.h.0.mlp.c_fc", y[t], WIDTH, wide, 4 * WIDTH);
        for (int i = 0; i < 4 * WIDTH; i++) wide[i] = gelu(wide[i]);
        t_layer(STEPS, "transformer.h.0.mlp.c_proj", wide, 4 * WIDTH, made, WIDTH);
        for (int i = 0; i < WIDTH; i++) x[t][i] += made[i];
    }
}

static int token_of(char c) { return (int)(strchr(alphabet, c) - alphabet); }

/* logits [n,N_TOKENS] of n characters. */
static void compute(const char *text, int n, double logits[][N_TOKENS]) {
    double x[CONTEXT][WIDTH], y[CONTEXT][WIDTH];
    float *tokens = t_parameter(STEPS, "transformer.wte.weight", (size_t)N_TOKENS * WIDTH);
    float *places = t_parameter(STEPS, "transformer.wpe.weight", (size_t)CONTEXT * WIDTH);
    for (int i = 0; i < n * WIDTH; i++) {
        int t = i / WIDTH, k = i % WIDTH;
        x[t][k] = (double)tokens[token_of(text[t]) * WIDTH + k] + (double)places[i];
    }
    add_block(n, x);
    normalize("transformer.ln_f", n, (const double(*)[WIDTH])x, y);
    for (int i = 0; i < n * N_TOKENS; i++) {
        logits[i / N_TOKENS][i % N_TOKENS] = 0;
        for (int k = 0; k < WIDTH; k++)
            logits[i / N_TOKENS][i % N_TOKENS] +=
                y[i / N_TOKENS][k] * (double)tokens[i % N_TOKENS * WIDTH + k];
    }
    free(tokens);
    free(places);
}

static void check_window(const tutti_prediction *p) {
    static const char *const names[] = {"\n", "a", "b", "c", "d"};
    double logits[CONTEXT][N_TOKENS], loss = 0;
    int f = 0;
    while (f < 3 && strcmp(p->file, files[f]) != 0) f++;
    assert_true(f < 3);
    int n_text = (int)strlen(texts[f]), first = (int)p->index * CONTEXT, n_known = 0;
    int n = n_text - first < CONTEXT ? n_text - first : CONTEXT;
    T_EQ(p->n_in_file, (n_text + CONTEXT - 1) / CONTEXT);
    compute(texts[f] + first, n, logits);
    assert_true(p->is_text);
    t_check_classes(p, logits[n - 1], N_TOKENS, names);
    for (int t = 0; t < n && first + t + 1 < n_text; t++, n_known++) {
        double sum = 0;
        for (int k = 0; k < N_TOKENS; k++) sum += exp(logits[t][k]);
        loss += log(sum) - logits[t][token_of(texts[f][first + t + 1])];
    }
    T_EQ(p->n_tokens, n_known);
    T_NEAR(p->loss, n_known > 0 ? loss / n_known : 0, T_LOGIT_TOLERANCE);
    T_NEAR(p->perplexity, n_known > 0 ? exp(loss / n_known) : 0, T_LOGIT_TOLERANCE);
}

T_CASE(windows_of_texts) {
    T_UNUSED;
    FILE *file = fopen("text.txt", "w");
    assert_non_null(file);
    for (int i = 0; i < 300; i++) fputc(i % 13 == 12 ? '\n' : 'a' + i % 13 % 4, file);
    T_EQ(fclose(file), 0);
    T_EQ(mkdir("new", 0777), 0);
    for (int i = 0; i < 3; i++) write_text(files[i], texts[i]);
    t_train(SMALL_JOB("model.name=gpt2", "model.layers=1", "model.heads=3", "model.width=12",
                      "model.dropout=0", "data.format=text", "data.dir=text.txt",
                      "data.tokenizer=chars", "data.context=8", "data.n_train=0", "data.n_test=0",
                      "train.batch=8", "train.steps=25", "optimizer.lr=0.01", "run.progress=false",
                      "run.dir=run"));
    T_EQ(remove("text.txt"), 0);
    t_predicted all = t_predict("new", check_window);
    T_EQ(all.n, 3 + 2 + 1);
    T_EQ(all.n_notices, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(windows_of_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
