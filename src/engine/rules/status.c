/*
 * status.c
 *		How both engines say that something failed.
 */
#include "engine/engine.h"

#include <stdarg.h>
#include <stdio.h>

gg_status
gg_fail(gg_code code, const char *where, const char *format, ...)
{
	gg_status	status = {code, 0, where, ""};
	va_list		args;

	va_start(args, format);
	vsnprintf(status.message, sizeof(status.message), format, args);
	va_end(args);
	return status;
}
