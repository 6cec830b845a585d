/* job.h - what to train: a job file, overrides, and the model.
 *
 * A job starts with the defaults, then takes a YAML file and `key=value` assignments; later values
 * win.  tutti_job_check reports all problems at once, one per line, in the form
 * "job.yaml:12:7: error: optimizer.lrr: unknown key (did you mean "lr"?)".  Problems that depend on
 * the data, the model or the machine are reported in the same form by the call that finds them.
 *
 * Threads: one job is used by one thread at a time; different jobs are independent.
 */
#ifndef TUTTI_JOB_H
#define TUTTI_JOB_H

#include "tutti/data.h"
#include "tutti/graph.h"

typedef struct tutti_job tutti_job;

/* Builds a model: x [N, ...] -> logits [N, n_classes].  Called once per graph, with user as given
 * to tutti_job_set_model.  Shapes are those of one shard. */
typedef tutti_value *(*tutti_model_fn)(tutti_graph *g, tutti_value *x, const void *user);

/* A metric of a step or an evaluation (train.metrics, model.metrics; tutti/losses.h). */
typedef struct tutti_metric_result {
    const char *name;   /* borrowed                                                    */
    double value;       /* NAN: undefined, such as auc if all targets are equal        */
    int64_t n_each;     /* classes or columns whose mean is value; 0: no values for each         */
    const double *each; /* [n_each]; NAN: undefined                                              */
} tutti_metric_result;

TUTTI_EXTERN_C_BEGIN

/* Creates a job with all defaults.  On success *out is owned by the caller; on failure it is NULL.
 */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_job_create(tutti_job **out);

/* Frees the job.  NULL is a no-op. */
TUTTI_API void tutti_job_destroy(tutti_job *job);

/* Reads a YAML job file.  Fails only if it cannot be read at all or is not YAML; problems with
 * keys and values are kept for tutti_job_check. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_job_load(tutti_job *job, const char *path);

/* Calls tutti_job_load for run_dir/job.yaml.  A run folder may come from another person, and its
 * model.plugin is code: it is refused unless tutti_job_allow_plugin is called or model.plugin is
 * set again.  The same holds for tutti_job_load of a file in a run folder. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_job_load_run(tutti_job *job, const char *run_dir);

/* Allows the code that model.plugin of a run folder names to be loaded. */
TUTTI_API void tutti_job_allow_plugin(tutti_job *job);

/* Takes one assignment such as "optimizer.lr=3e-4" or "model.hidden=[512,512]"; "key=null" goes
 * back to the default.  origin names the source in messages, such as "command line". */
TUTTI_API void tutti_job_set(tutti_job *job, const char *assignment, const char *origin);

/* TUTTI_OK, or TUTTI_E_CONFIG with every problem so far in tutti_last_error(). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_job_check(tutti_job *job);

/* Warnings about the job so far, such as a deprecated name of a key, one per line in the form
 * "job.yaml:12:7: parallel.x is now called parallel.y"; "" if there are none.  Each deprecated name
 * is reported once.  Borrowed until the job changes. */
TUTTI_API const char *tutti_job_warnings(const tutti_job *job);

/* The value of a key as text, NULL for an unknown key.  Borrowed until the job changes. */
TUTTI_API const char *tutti_job_get(tutti_job *job, const char *key);

/* Writes the name of the job's model: model.name, the name of the file of model.file or
 * model.plugin without its ending, or "model" for that of tutti_job_set_model. */
TUTTI_API void tutti_job_model_name(const tutti_job *job, char *out, size_t n_bytes);

/* Returns the key that a word stands for, by meaning or spelling: "lr" is "optimizer.lr",
 * "batch_size" is "train.batch".  NULL if no key is similar.  Static text. */
TUTTI_API const char *tutti_job_find_key(const char *word);

/* Trains the caller's model instead of model.name. user is borrowed until the job is destroyed. */
TUTTI_API void tutti_job_set_model(tutti_job *job, tutti_model_fn fn, const void *user);

/* A model that is a finished graph, read from text (tutti_graph_parse) or built before.  Its inputs
 * are "x" and fields of the samples, with the rows of a shard: train.batch / parallel.shards.  Its
 * output "logits" is the model's; other outputs keep their names. */
typedef struct tutti_model_graphs {
    const tutti_graph *train;
    const tutti_graph *eval; /* NULL: train, if it does the same in evaluation (no dropout, no
                                running statistics) */
} tutti_model_graphs;

/* The tutti_model_fn of such a model: tutti_job_set_model(job, tutti_model_from_graph, &graphs).
 * user is a tutti_model_graphs; the graphs are copied when the model is built. */
TUTTI_API tutti_value *tutti_model_from_graph(tutti_graph *g, tutti_value *x, const void *user);

/* Takes the samples of a split from the memory of the program instead of files: data.format becomes
 * npy.  The struct is copied; its arrays and its user pointer are borrowed until the job, and the
 * sessions made from it, are destroyed.  Shuffling, order and resume are as with files.  Needs
 * workers that are threads, or a program that sets the same samples in each process.
 * TUTTI_E_INVALID names the field that is wrong. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_job_set_samples(tutti_job *job, tutti_data_split split,
                                                             const tutti_samples *samples);

/* Opens a split of the job's data set, as training would.  On success *out is owned by the caller
 * and independent of the job; on failure *out is NULL. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_job_open_dataset(tutti_job *job,
                                                              tutti_data_split split,
                                                              tutti_dataset **out);

/* Calls tutti_dataset_pack for the job's data set. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_job_pack_data(tutti_job *job,
                                                           const tutti_pack_desc *how,
                                                           char **report);

/* Prints the job as YAML; with origins, each line ends in a comment that says where its value comes
 * from.  Free with free(); NULL when out of memory. */
TUTTI_API char *tutti_job_print(tutti_job *job, bool origins);

/* Returns the JSON schema of job files, or the reference page in Markdown.  Free them with free().
 */
TUTTI_API char *tutti_job_schema_json(void);
TUTTI_API char *tutti_job_reference_md(void);

TUTTI_EXTERN_C_END

#endif /* TUTTI_JOB_H */
