/*
 * faulty_disk.c
 *		A library to preload into a server: calls that write to chosen files fail as on a disk
 *		that is full or broken.
 *
 * The environment's FAULTY_DISK names a file of CONTROL bytes, which all processes map: what fails,
 * in which files, and how many calls before.  The test writes it, so faults begin and end while the
 * server runs.  Calls that fail are counted there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum
{
	NONE,
	FULL,						/* writes and allocations: ENOSPC */
	BROKEN,						/* writes, and synchronising: EIO */
	SHORT,						/* writes: half of what was asked for, then ENOSPC */
	UNREADABLE					/* reads: EIO */
};

typedef struct
{
	_Atomic int32_t what;
	_Atomic int32_t calls;		/* that succeed before */
	_Atomic int32_t failed;
	char		where[500];		/* part of the path of files concerned */
} Control;

static Control *control;

__attribute__((constructor)) static void
Map(void)
{
	const char *path = getenv("FAULTY_DISK");
	int			fd = path != NULL ? open(path, O_RDWR) : -1;
	void	   *at;

	if (fd < 0)
		return;
	at = mmap(NULL, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (at != MAP_FAILED)
		control = at;
}

/* Does this call on a file fail, where one of `kinds` (bits) is asked for? */
static int
Fails(int fd, unsigned kinds)
{
	char		link[64];
	char		path[4096];
	ssize_t		length;
	int			what = control != NULL ? atomic_load(&control->what) : NONE;

	if (what == NONE || (kinds & (1u << what)) == 0)
		return NONE;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	if (length < 0)
		return NONE;
	path[length] = '\0';
	if (strstr(path, control->where) == NULL || atomic_fetch_sub(&control->calls, 1) > 0)
		return NONE;
	atomic_fetch_add(&control->failed, 1);
	errno = what == BROKEN || what == UNREADABLE ? EIO : ENOSPC;
	return what;
}

#define WRITES	(1u << FULL | 1u << BROKEN | 1u << SHORT)
#define REAL(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

/* Every second write that comes short writes something. */
#define WRITE_CALL(name, args, fd, size, call, half) \
	ssize_t name args \
	{ \
		static __typeof__(&name) real; \
		int			what; \
		\
		if (real == NULL) \
			real = REAL(name); \
		what = Fails(fd, WRITES); \
		if (what == NONE) \
			return call; \
		if (what == SHORT && (atomic_load(&control->failed) & 1) && (size) > 1) \
			return half; \
		return -1; \
	}

WRITE_CALL(pwrite, (int fd, const void *data, size_t n, off_t at), fd, n,
		   real(fd, data, n, at), real(fd, data, n / 2, at))
WRITE_CALL(pwrite64, (int fd, const void *data, size_t n, off64_t at), fd, n,
		   real(fd, data, n, at), real(fd, data, n / 2, at))
WRITE_CALL(write, (int fd, const void *data, size_t n), fd, n,
		   real(fd, data, n), real(fd, data, n / 2))
WRITE_CALL(pwritev, (int fd, const struct iovec *parts, int n, off_t at), fd, n,
		   real(fd, parts, n, at), real(fd, parts, n / 2, at))
WRITE_CALL(pwritev64, (int fd, const struct iovec *parts, int n, off64_t at), fd, n,
		   real(fd, parts, n, at), real(fd, parts, n / 2, at))

#define OTHER_CALL(type, name, args, fd, kinds, call, failure) \
	type name args \
	{ \
		static __typeof__(&name) real; \
		\
		if (real == NULL) \
			real = REAL(name); \
		return Fails(fd, kinds) == NONE ? call : failure; \
	}

OTHER_CALL(int, fsync, (int fd), fd, 1u << BROKEN, real(fd), -1)
OTHER_CALL(int, fdatasync, (int fd), fd, 1u << BROKEN, real(fd), -1)
OTHER_CALL(int, posix_fallocate, (int fd, off_t at, off_t n), fd, 1u << FULL, real(fd, at, n),
		   ENOSPC)
OTHER_CALL(int, posix_fallocate64, (int fd, off64_t at, off64_t n), fd, 1u << FULL,
		   real(fd, at, n), ENOSPC)
OTHER_CALL(ssize_t, pread, (int fd, void *data, size_t n, off_t at), fd, 1u << UNREADABLE,
		   real(fd, data, n, at), -1)
OTHER_CALL(ssize_t, pread64, (int fd, void *data, size_t n, off64_t at), fd, 1u << UNREADABLE,
		   real(fd, data, n, at), -1)
