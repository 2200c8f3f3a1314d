/*
 * first_of_group.h
 *		The first row of each group, in the order in which rows come.
 */
#ifndef GG_FIRST_OF_GROUP_H
#define GG_FIRST_OF_GROUP_H

#include "postgres.h"

#include "nodes/extensible.h"

#define GG_FIRST_OF_GROUP_NAME	"GpugraphFirstOfGroup"

/*
 * The executor's part.  The plan has one child, whose columns are those of custom_scan_tlist.  The
 * first of them make a group.  custom_private: lists of their operators, and of their collations.
 */
extern const CustomScanMethods gg_first_of_group;

#endif							/* GG_FIRST_OF_GROUP_H */
