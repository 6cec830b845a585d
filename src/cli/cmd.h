/* cmd.h - the commands of the program: one file cmd_NAME.c and one row in main.c each.
 *
 * A command gets its own name as argv[0] and returns the exit code of the program
 * (docs/ARCHITECTURE.md, "Exit codes"), which is 2 for wrong usage.  Results go to standard output,
 * everything else to standard error. */
#ifndef TUTTI_CLI_CMD_H
#define TUTTI_CLI_CMD_H

int tutti_cmd_bench(int argc, char **argv);
int tutti_cmd_bench_data(int argc, char **argv);  /* called by cmd_bench.c */
int tutti_cmd_bench_train(int argc, char **argv); /* called by cmd_bench.c */
int tutti_cmd_chaos(int argc, char **argv);
int tutti_cmd_config(int argc, char **argv);
int tutti_cmd_data(int argc, char **argv);
int tutti_cmd_demo(int argc, char **argv);
int tutti_cmd_doctor(int argc, char **argv);
int tutti_cmd_eval(int argc, char **argv);
int tutti_cmd_export(int argc, char **argv);
int tutti_cmd_generate(int argc, char **argv);
int tutti_cmd_import(int argc, char **argv);
int tutti_cmd_inspect(int argc, char **argv);
int tutti_cmd_launch(int argc, char **argv);
int tutti_cmd_list(int argc, char **argv);
int tutti_cmd_plan(int argc, char **argv);
int tutti_cmd_predict(int argc, char **argv);
int tutti_cmd_profile(int argc, char **argv);
int tutti_cmd_report(int argc, char **argv);
int tutti_cmd_ps(int argc, char **argv);
int tutti_cmd_scale(int argc, char **argv);
int tutti_cmd_stacks(int argc, char **argv);
int tutti_cmd_simulate(int argc, char **argv);
int tutti_cmd_train(int argc, char **argv);

#endif /* TUTTI_CLI_CMD_H */
