/*
 * device_model.h
 *		What a device takes, in microseconds: the one model of it, for scans and for the planner.
 *
 * Measured on one H200 (test/bench/RESULTS.md, Searches, and the table of clients): walks over
 * 1M x 128 and 1M x 768 with lists of 32, 64 and 128 take 43, 58, 92 and 55, 70, 103 us; exact
 * passes over all rows, of which 10 are wanted, 141 and 698 us; queries of one client with lists of
 * 32 and 64 at 128 dimensions 98 and 115 us, the client's own 37 us included, where the model has
 * 87 and 103.  An entry of a walk's list lasts as long at 768 dimensions as at 128, since a walk
 * waits for memory and does not fill it.  Where a card's memory is slower, exact passes take longer
 * than is said here.
 */
#ifndef GG_DEVICE_MODEL_H
#define GG_DEVICE_MODEL_H

/* A list of any kind, from request to answer: what does not depend on its length. */
#define GG_DEVICE_LIST_US		66.0

/*
 * What an exact list of all rows takes beside GG_DEVICE_LIST_US and reading the rows, if it has
 * more than GG_SHORT_DEEP keys.  A client's query with 1,024 keys takes 435 to 500 us over 20,000 x
 * 96, 50,000 x 128 and 100,000 x 96, and one with a walk's list of 64 98 to 117.  Such lists under
 * a filter were not measured.
 */
#define GG_DEVICE_DEEP_US		330.0

/* An entry of a walk's list, and a key that is brought. */
#define GG_DEVICE_ENTRY_US		0.5
#define GG_DEVICE_KEY_US		0.005

/* What an exact pass reads. */
#define GG_DEVICE_BYTES_PER_US	3.6e6

/*
 * A row that is returned, with its fetch from the table and the filter: scans of some 1,000 and
 * 10,000 rows of 1M x 128 differ by so much a row.  Core charges for the fetch once more
 * (cost_index()).
 */
#define GG_DEVICE_ROW_US		0.5

#endif							/* GG_DEVICE_MODEL_H */
