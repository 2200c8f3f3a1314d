/*
 * tools.c
 *		What the programs of the bench share.
 */
#include "tools.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void
die(const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

void *
allocate(size_t bytes)
{
	void	   *p = NULL;

	if (posix_memalign(&p, 64, bytes ? bytes : 1) != 0)
		die("out of memory allocating %zu bytes", bytes);
	return p;
}

static double
clock_seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

double
now(void)
{
	return clock_seconds(CLOCK_MONOTONIC);
}

double
today(void)
{
	return clock_seconds(CLOCK_REALTIME);
}

int
read_options(int argc, char **argv, const option_of *options)
{
	char		letters[64] = "";
	int			letter;

	for (const option_of *o = options; o->letter != 0; o++)
		snprintf(letters + strlen(letters), 3, "%c:", o->letter);
	while ((letter = getopt(argc, argv, letters)) != -1)
	{
		const option_of *o = options;

		while (o->letter != 0 && o->letter != letter)
			o++;
		if (o->letter == 0)
			die("usage: see the head of %s.c", argv[0]);
		if (o->kind == OPTION_TEXT)
			*(const char **) o->to = optarg;
		else if (o->kind == OPTION_INT)
			*(int *) o->to = atoi(optarg);
		else if (o->kind == OPTION_LONG)
			*(long *) o->to = atol(optarg);
		else
			*(double *) o->to = atof(optarg);
	}
	return optind;
}

int
online_cpus(void)
{
	long		n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : (int) n;
}

void
run_threads(int threads, void *(*body) (void *), void *arg)
{
	pthread_t  *th = allocate(sizeof(pthread_t) * threads);

	for (int i = 1; i < threads; i++)
		if (pthread_create(&th[i], NULL, body, arg) != 0)
			die("could not start a thread");
	body(arg);
	for (int i = 1; i < threads; i++)
		pthread_join(th[i], NULL);
	free(th);
}

void
make_directory(const char *dir)
{
	if (mkdir(dir, 0755) != 0 && errno != EEXIST)
		die("could not create \"%s\": %s", dir, strerror(errno));
}

void
write_file(const char *dir, const char *name, const void *data, size_t size)
{
	char		path[4096];
	FILE	   *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "wb");
	if (f == NULL || fwrite(data, 1, size, f) != size || fclose(f) != 0)
		die("could not write \"%s\": %s", path, strerror(errno));
}

void *
read_file(const char *dir, const char *name, size_t *size)
{
	char		path[4096];
	FILE	   *f;
	long		bytes;
	char	   *data;

	snprintf(path, sizeof(path), "%s%s%s", dir != NULL ? dir : "", dir != NULL ? "/" : "", name);
	f = fopen(path, "rb");
	if (f == NULL || fseek(f, 0, SEEK_END) != 0 || (bytes = ftell(f)) < 0)
		die("could not open \"%s\": %s", path, strerror(errno));
	rewind(f);
	data = allocate((size_t) bytes + 1);
	if (fread(data, 1, (size_t) bytes, f) != (size_t) bytes)
		die("could not read \"%s\"", path);
	data[bytes] = '\0';
	fclose(f);
	*size = (size_t) bytes;
	return data;
}
