/*
 * tools.h
 *		What the programs of the bench share: errors, memory, options, threads, files.
 *
 * They are command-line programs' helpers: errors are printed and end the program.
 */
#ifndef GG_BENCH_TOOLS_H
#define GG_BENCH_TOOLS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A function is compiled for several levels of processors, and the best one that is here runs. */
#if defined(__x86_64__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

extern void die(const char *format,...) __attribute__((format(printf, 1, 2), noreturn));
extern void *allocate(size_t bytes);	/* for the widest registers; free() */
extern double now(void);		/* seconds, of the clock that nobody sets */
extern double today(void);		/* seconds since 1970 */

/* A letter of the command line, and the variable that its value goes to. */
typedef struct option_of
{
	char		letter;			/* 0: the table ends */
	enum
	{
		OPTION_TEXT,			/* const char * */
		OPTION_INT,
		OPTION_LONG,
		OPTION_DOUBLE
	}			kind;
	void	   *to;
} option_of;

/* Anything else ends the program; returns the index of the first argument that is no option. */
extern int	read_options(int argc, char **argv, const option_of *options);

extern int	online_cpus(void);
/* body(arg) in so many threads, of which this is one. */
extern void run_threads(int threads, void *(*body) (void *), void *arg);

extern void make_directory(const char *dir);
extern void write_file(const char *dir, const char *name, const void *data, size_t size);
/* All of DIR/NAME, or of NAME where dir is NULL, with a zero behind it; free(). */
extern void *read_file(const char *dir, const char *name, size_t *size);

#endif							/* GG_BENCH_TOOLS_H */
