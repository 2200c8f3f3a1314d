/*
 * preload.c
 *		The list of residents on disk: what a worker loads when it starts.
 *
 * There is one file per device in the data directory.  Its name ends in the device's UUID, so a
 * device has its indexes again when it has another number.  The device's worker writes it within a
 * minute after something changed, and when it ends, and replaces it as a whole.  Before 1.2.0 the
 * name ended in the device's place in gpugraph.devices; that is read where there is no other.  The
 * file is a hint: what it names is loaded only if it still exists and is a gpugraph index, and a
 * damaged file is ignored.  A base backup may carry it along to a standby, where it is as good.
 *
 * Format, text:
 *		gpugraph resident 1
 *		DATABASE RELATION TABLESPACE DATABASE-OF-FILE FILE-NUMBER		last used first
 *		...
 *		crc HHHHHHHH		of all bytes before this line
 */
#include "service/worker/worker.h"

#include <sys/stat.h>
#include <unistd.h>

#include "lib/stringinfo.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"

#define PRELOAD_HEAD	"gpugraph resident 1\n"

/* Larger than any file that we write: lines of five numbers. */
#define PRELOAD_MAX_BYTES	((Size) GG_MOST_RESIDENTS * 64 + 128)

#define PRELOAD_PREFIX	"gpugraph.resident."

void
GgPreloadName(const GgDevice *device, const gg_device_info *info, char *name)
{
	int			length = snprintf(name, GG_PRELOAD_NAME, PRELOAD_PREFIX);

	for (int i = 0; i < (int) sizeof(info->uuid); i++)
		length += snprintf(name + length, GG_PRELOAD_NAME - length, "%02x", info->uuid[i]);
	/* a GPU that plays several devices */
	if (device->ordinal != device->number)
		snprintf(name + length, GG_PRELOAD_NAME - length, ".%d", device->number);
}

static uint32
Crc(const char *data, Size len)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, data, len);
	FIN_CRC32C(crc);
	return crc;
}

/* The first items of a file's text, `max` at most; -1 when it is damaged. */
static int
Parse(char *text, GgPreloadItem *items, int max)
{
	char	   *line = text + strlen(PRELOAD_HEAD);
	int			n = 0;

	if (strncmp(text, PRELOAD_HEAD, strlen(PRELOAD_HEAD)) != 0)
		return -1;
	for (;;)
	{
		char	   *end = strchr(line, '\n');
		Oid			oids[5];
		uint32		crc;

		if (end == NULL)
			return -1;
		if (sscanf(line, "crc %8X", &crc) == 1)
			return crc == Crc(text, line - text) && end[1] == '\0' ? n : -1;
		if (sscanf(line, "%u %u %u %u %u", &oids[0], &oids[1], &oids[2], &oids[3], &oids[4]) != 5)
			return -1;
		line = end + 1;
		if (n == max)
			continue;
		items[n].database = oids[0];
		items[n].relation = oids[1];
		/* three Oids in every version, under different names (GgFileTag) */
		memcpy(&items[n].locator, &oids[2], 3 * sizeof(Oid));
		n++;
	}
}

/* Read a list, and count its items; -1: there is no such file. */
static int
ReadFile(const char *path, GgPreloadItem *items, int max)
{
	char	   *text;
	FILE	   *file;
	struct stat st;
	Size		size;
	Size		len;
	int			n;

	file = AllocateFile(path, PG_BINARY_R);
	if (file == NULL)
	{
		if (errno == ENOENT)
			return -1;
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\": %m", path)));
		return 0;
	}
	size = fstat(fileno(file), &st) == 0 ? Min((Size) st.st_size, PRELOAD_MAX_BYTES) + 1 : 1;
	text = palloc(size);
	len = fread(text, 1, size - 1, file);
	FreeFile(file);
	text[len] = '\0';
	n = strlen(text) == len ? Parse(text, items, max) : -1;
	pfree(text);
	if (n < 0)
	{
		ereport(LOG,
				(errmsg("ignoring file \"%s\", which is damaged", path),
				 errdetail("Indexes are loaded onto the device as they are queried.")));
		return 0;
	}
	return n;
}

int
GgPreloadRead(const char *name, int number, GgPreloadItem *items, int max)
{
	char		old_name[GG_PRELOAD_NAME];
	int			n = ReadFile(name, items, max);

	if (n >= 0)
		return n;
	snprintf(old_name, sizeof(old_name), PRELOAD_PREFIX "%d", number);
	return Max(ReadFile(old_name, items, max), 0);
}

/* A failure is logged: the list is no more than a convenience. */
void
GgPreloadWrite(const char *path, const GgPreloadItem *items, int nitems)
{
	char		temporary[MAXPGPATH];
	StringInfoData text;
	FILE	   *file;
	bool		ok;

	snprintf(temporary, sizeof(temporary), "%s.tmp", path);

	initStringInfo(&text);
	appendStringInfoString(&text, PRELOAD_HEAD);
	for (int i = 0; i < nitems; i++)
	{
		Oid			oids[3];

		memcpy(oids, &items[i].locator, sizeof(oids));
		appendStringInfo(&text, "%u %u %u %u %u\n", items[i].database, items[i].relation,
						 oids[0], oids[1], oids[2]);
	}
	appendStringInfo(&text, "crc %08X\n", Crc(text.data, text.len));

	file = AllocateFile(temporary, PG_BINARY_W);
	ok = file != NULL && fwrite(text.data, 1, text.len, file) == text.len;
	if (file != NULL && FreeFile(file) != 0)
		ok = false;
	if (!ok)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", temporary)));
	else
		(void) durable_rename(temporary, path, LOG);
	pfree(text.data);
}
