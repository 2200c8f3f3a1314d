/*
 * fuzz.c
 *		gpugraph_fuzz(target, arguments): libFuzzer's loop in a backend.
 */
#include "fuzz.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

extern int	LLVMFuzzerRunDriver(int *argc, char ***argv,
								int (*one) (const uint8_t *bytes, size_t size));

static const Target *const targets[] = {&fuzz_directory, &fuzz_pages, &fuzz_slots,
&fuzz_filter_keys, &fuzz_reloptions};
static const Target *target;
static MemoryContext per_input;
int			last_sqlerrcode;

void
take(Input *input, void *to, size_t size)
{
	size_t		there = Min(size, input->size - input->at);

	memset(to, 0, size);
	memcpy(to, input->bytes + input->at, there);
	input->at += there;
}

uint8
take8(Input *input)
{
	uint8		value;

	take(input, &value, sizeof(value));
	return value;
}

uint16
take16(Input *input)
{
	uint16		value;

	take(input, &value, sizeof(value));
	return value;
}

uint64
take64(Input *input)
{
	uint64		value;

	take(input, &value, sizeof(value));
	return value;
}

bool
at_end(const Input *input)
{
	return input->at == input->size;
}

void
wrong(const char *format, ...)
{
	va_list		args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	abort();
}

bool
tried(void (*call) (void *), void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool done = true;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		call(arg);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		done = false;
		last_sqlerrcode = error->sqlerrcode;
		if (error->sqlerrcode == ERRCODE_INTERNAL_ERROR)
			wrong("internal error: %s", error->message);
		if (error->sqlerrcode == ERRCODE_INDEX_CORRUPTED &&
			strstr(error->message, "is corrupted") != NULL &&
			strstr(error->message, "block") == NULL && strstr(error->message, "file") == NULL)
			wrong("no block is named: %s", error->message);
	}
	PG_END_TRY();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return done;
}

static int
one(const uint8_t *bytes, size_t size)
{
	Input		input = {bytes, size, 0};

	MemoryContextSwitchTo(per_input);
	target->one(&input);
	MemoryContextReset(per_input);
	return 0;
}

PG_FUNCTION_INFO_V1(gpugraph_fuzz);

/* The server ends with the run. */
Datum
gpugraph_fuzz(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *arguments = text_to_cstring(PG_GETARG_TEXT_PP(1));
	char	  **argv = palloc0((strlen(arguments) + 3) * sizeof(char *));
	int			argc = 1;

	for (int i = 0; i < lengthof(targets); i++)
		if (strcmp(targets[i]->name, name) == 0)
			target = targets[i];
	if (target == NULL)
		elog(ERROR, "there is no target %s", name);
	argv[0] = name;
	for (char *word = strtok(arguments, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	per_input = AllocSetContextCreate(TopMemoryContext, "fuzz", ALLOCSET_DEFAULT_SIZES);
	target->start();
	PG_RETURN_INT32(LLVMFuzzerRunDriver(&argc, &argv, one));
}
