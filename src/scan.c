/*
 * scan.c
 *		Scans: rows in distance order, from every segment and the delta.
 *
 * The index's rows come from streams, one a segment and one or two for the delta.  Each stream hands out
 * nodes nearest first; the scan always takes the nearest head.  A stream is in one of three phases:
 *
 *	device	lists that a GPU answered with (src/service), of gpugraph.itopk_size at first, asked for anew and
 *			longer as the executor wants more
 *	walk	the graph walk, the same way; also where a GPU's longest list was not enough, or it failed
 *	exact	every row of the segment (or delta) measured, in passes that each keep the next
 *			nearest ones: where the graph has nothing more to say, where it would be slower, and
 *			for the delta always
 *
 * A GPU holds the delta's full pages as of some moment; the pages behind them are a stream of their own, read here.
 *
 * The AM is not told LIMIT, and a list's tail is less certain than its head.  So a walk is
 * widened as soon as half of its list was handed out: rows are then taken from a list at least
 * twice as long as what was returned.
 *
 * A widened list may turn up nodes nearer than rows already returned.  relaxed_order returns
 * them at once; strict_order keeps them back until all others were returned.  So a strict scan that
 * is read to its very end returns every row once, in order but for those few at the end.
 *
 * Where rows are stored rounded (storage = 'float16' of a vector column), distances here are those to the
 * rounded rows.  Each row then comes with a lower bound of the operator's value, and the executor puts rows in
 * true order (bound.c).  A row that comes late may have a lower bound than rows before it: the executor
 * compares it with its own, and puts it in its place among those that it still keeps back.
 *
 * A TID is read from its page when the row is returned, never earlier: VACUUM clears it there.
 */
#include "gpugraph.h"

#include "access/relscan.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_bitutils.h"
#include "utils/float.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "keys.h"
#include "service/service.h"

/*
 * A walk measures some 20 to 35 rows for each entry of its list, at random places; a sequential pass
 * is at least as fast a row.  So the walk ends where its list would be longer than nodes / 32.
 */
#define EXACT_SHARE			32

/* Smallest first pass of an exact stream, and how much longer each following one is. */
#define EXACT_MIN_BATCH		64
#define EXACT_GROWTH		8

/* Nodes measured in one call of GgSourceDistances by an exact pass. */
#define EXACT_CHUNK			256

/*
 * Pages of the delta from which a GPU is asked about them: fewer are read in some microseconds, less than one more batch
 * costs it.
 */
#define DEVICE_DELTA_PAGES	16

typedef enum StreamPhase
{
	STREAM_DEVICE,
	STREAM_WALK,
	STREAM_EXACT,
	STREAM_LATE,				/* exact, the rows that strict order kept back */
	STREAM_DONE
} StreamPhase;

typedef struct Stream
{
	StreamPhase phase;
	bool		has_head;
	gg_candidate head;

	uint32		nodes;			/* of the delta: slots on its pages */
	uint32		itopk;
	uint64		handed;			/* nodes that left the walk or the device's lists */
	uint8	   *returned;		/* bitmap of nodes that left this stream; NULL before the first */

	/* segments only */
	const GgSegment *segment;	/* NULL for the delta */
	GgPageSource source;		/* index NULL: not needed so far */
	GgArray		tids;
	GgArray		offsets;		/* no extents when every node has one row */
	gg_walk    *walk;
	bool		resumed;		/* the walk hands out nodes that a device's lists had, too */

	/* delta only: its pages [first_page, end_page) */
	uint32		first_page;
	uint32		end_page;

	/* on a device */
	int			list;			/* -1: not there */
	gg_candidate *answers;
	uint32		asked;			/* length of the list asked for */
	uint32		nanswers;
	uint32		next_answer;
	uint32		kept_back;		/* of handed: those of this list that strict order kept back */
	bool		ended;			/* the list is shorter than asked for: there is no more */

	/* exact passes: keys in [next_key, end_key) are still to come */
	uint64		next_key;
	uint64		end_key;
	uint64		bound;			/* where the walk was left, in strict order */
	uint64	   *batch;			/* ascending keys */
	uint32		batch_len;
	uint32		batch_pos;
	uint32		batch_cap;
	bool		batch_last;		/* nothing lies behind the batch */
} Stream;

typedef struct ScanOpaque
{
	Relation	index;
	MemoryContext context;		/* everything of one rescan */
	bool		started;
	GgIterativeScan mode;
	Snapshot	snapshot;
	GgMetaPageData *meta;
	float	   *query;			/* prepared; NULL for a NULL query */
	GgArray		delta;
	GgWhy		why;			/* which engine answers, and why */
	GgResidentRef ref;			/* where, when that is a device */
	uint64		nrows;			/* returned */
	int			nstreams;
	Stream	   *streams;
	float		last_distance;
	GgBound		bound;

	/* the node whose rows are being returned */
	Stream	   *current;
	float		distance;
	uint32		row_next,
				row_end;

	/* iterative_scan = off */
	uint32		allowed;		/* rows that may still be returned */
	uint32		nreturned;
	ItemPointerData *returned;
	uint32		returned_cap;

	int			nwalks;
	gg_walk    *walks[GG_MAX_SEGMENTS];
} ScanOpaque;

/* ---- walks are kept between scans -------------------------------------- */

#define MAX_SPARE_WALKS 4

static gg_walk *spare_walks[MAX_SPARE_WALKS];
static int	nspare_walks = 0;

static gg_walk *
GetWalk(void)
{
	gg_walk    *walk;
	gg_status	status;

	if (nspare_walks > 0)
		return spare_walks[--nspare_walks];
	status = gg_walk_create(&walk);
	if (status.code != GG_OK)
		GgReportStatus(&status, "starting a search");
	return walk;
}

/* Memory context callback: also runs when the scan ends by an error. */
static void
ReturnWalks(void *arg)
{
	ScanOpaque *so = arg;

	for (int i = 0; i < so->nwalks; i++)
	{
		if (nspare_walks < MAX_SPARE_WALKS)
			spare_walks[nspare_walks++] = so->walks[i];
		else
			gg_walk_free(so->walks[i]);
	}
	so->nwalks = 0;
}

/* ---- exact passes ------------------------------------------------------ */

/* Offer a key to the batch under construction, a max-heap. */
static inline void
OfferKey(Stream *stream, uint64 key)
{
	if (key < stream->next_key || key >= stream->end_key)
		return;
	if (stream->batch_len < stream->batch_cap)
		heap_push(stream->batch, stream->batch_len++, key);
	else
	{
		stream->batch_last = false;
		if (key < stream->batch[0])
			heap_replace(stream->batch, stream->batch_cap, key);
	}
}

static inline bool
WasReturned(const Stream *stream, uint32 node)
{
	return stream->returned != NULL && (stream->returned[node / 8] & (1 << (node % 8))) != 0;
}

static void
MarkReturned(ScanOpaque *so, Stream *stream, uint32 node)
{
	if (stream->returned == NULL)
		stream->returned = MemoryContextAllocExtended(so->context, stream->nodes / 8 + 1,
													  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	stream->returned[node / 8] |= 1 << (node % 8);
}

static void
NeedSource(ScanOpaque *so, Stream *stream)
{
	if (stream->source.index == NULL)
		GgSourceInit(&stream->source, so->index, so->meta, stream->segment, so->query);
}

static void
SegmentPass(ScanOpaque *so, Stream *stream)
{
	uint32		n = stream->nodes;

	NeedSource(so, stream);
	for (uint32 base = 0; base < n; base += EXACT_CHUNK)
	{
		uint32		nodes[EXACT_CHUNK];
		float		distances[EXACT_CHUNK];
		uint32		count = 0;
		uint32		end = base + Min(EXACT_CHUNK, n - base);

		CHECK_FOR_INTERRUPTS();
		for (uint32 node = base; node < end; node++)
			if (!WasReturned(stream, node))
				nodes[count++] = node;
		if (so->query != NULL)
			GgSourceDistances(&stream->source, nodes, count, distances);
		else
			memset(distances, 0, sizeof(distances));
		for (uint32 i = 0; i < count; i++)
			OfferKey(stream, key_of(distances[i], nodes[i]));
	}
}

/*
 * Delta pages change while we read (rows are appended, TIDs cleared), so they are locked in share
 * mode.  The "node" of a delta row counts slots from the delta's first page as of this scan.
 */
static void
DeltaPass(ScanOpaque *so, Stream *stream)
{
	const GgMetaPageData *meta = so->meta;
	uint32		npages = GgDeltaPagesPerRow(meta);
	uint32		per_page = GgDeltaRowsPerPage(meta);
	Size		row_bytes = GgRowBytes(meta);
	gg_distance_fn distance = gg_distance_function(meta->metric, meta->element);
	char	   *whole = npages > 1 ? palloc(npages * GG_PAGE_PAYLOAD) : NULL;

	for (uint32 i = stream->first_page; i < stream->end_page; i += npages)
	{
		Buffer		buffer = GgReadPage(so->index, meta->instance, &so->delta, meta->delta_first + i,
										BUFFER_LOCK_SHARE);
		Page		page = BufferGetPage(buffer);
		uint32		count = GgDeltaRowCount(so->index, meta, buffer);

		GgTestForOldSnapshot(so->snapshot, so->index, page);
		for (uint32 slot = 0; slot < count; slot++)
		{
			GgDeltaRow *row = (GgDeltaRow *) (PageGetContents(page) + slot * GgDeltaRowBytes(meta));
			const void *vector = row + 1;
			float		d = 0;

			if (!ItemPointerIsValid(&row->tid) || WasReturned(stream, (i / npages) * per_page + slot))
				continue;
			if (whole != NULL)
			{
				Size		here = GG_PAGE_PAYLOAD - sizeof(GgDeltaRow);

				memcpy(whole, row + 1, here);
				GgReadArray(so->index, meta->instance, &so->delta,
							(uint64) (meta->delta_first + i + 1) * GG_PAGE_PAYLOAD, whole + here, row_bytes - here);
				vector = whole;
			}
			if (so->query != NULL)
				d = distance(vector, so->query, meta->dimensions);
			OfferKey(stream, key_of(d, (i / npages) * per_page + slot));
		}
		UnlockReleaseBuffer(buffer);
		CHECK_FOR_INTERRUPTS();
	}
	if (whole != NULL)
		pfree(whole);
}

/* Find the next nearest rows. */
static void
NextBatch(ScanOpaque *so, Stream *stream)
{
	uint32		most = Max(EXACT_MIN_BATCH, (uint32) Min((uint64) work_mem * 1024 / sizeof(uint64), PG_INT32_MAX));
	uint32		all = stream->nodes;
	uint32		cap = (uint32) Min(stream->batch_cap == 0 ?
								   Max(gg_itopk_size, EXACT_MIN_BATCH) + stream->handed :
								   (uint64) stream->batch_cap * EXACT_GROWTH, most);

	/* a heap of everything is a sort */
	cap = Min(cap, all + 1);
	if (cap > stream->batch_cap)
	{
		if (stream->batch != NULL)
			pfree(stream->batch);
		stream->batch = MemoryContextAllocHuge(so->context, cap * sizeof(uint64));
		stream->batch_cap = cap;
	}
	stream->batch_len = 0;
	stream->batch_pos = 0;
	stream->batch_last = true;
	if (stream->segment != NULL)
		SegmentPass(so, stream);
	else
		DeltaPass(so, stream);
	heap_sort(stream->batch, stream->batch_len);
}

/* ---- streams ----------------------------------------------------------- */

static void
ReportWalk(const gg_status *status)
{
	/* a callback left its error on the stack */
	if (status->code == GG_ECALLBACK)
		PG_RE_THROW();
	GgReportStatus(status, "searching a gpugraph index");
}

/* From the walk to exact passes over what it did not return. */
static void
LeaveWalk(ScanOpaque *so, Stream *stream)
{
	stream->phase = STREAM_EXACT;
	stream->next_key = 0;
	stream->end_key = PG_UINT64_MAX;
	if (so->mode == GG_ITERATIVE_STRICT && so->last_distance > -get_float4_infinity())
		stream->next_key = stream->bound = key_of(so->last_distance, 0);
}

static bool
WalkIsWorthwhile(const Stream *stream, uint32 itopk)
{
	return itopk <= stream->segment->nodes / EXACT_SHARE;
}

static void
InitSegment(ScanOpaque *so, Stream *stream, const GgSegment *segment)
{
	stream->segment = segment;
	stream->nodes = segment->nodes;
	stream->list = -1;
	stream->itopk = gg_itopk_size;
	GgFindArray(so->meta, segment->id, GG_KIND_TIDS, &stream->tids);
	GgFindArray(so->meta, segment->id, GG_KIND_OFFSETS, &stream->offsets);
	if (segment->rows != segment->nodes && stream->offsets.nextents == 0)
		GgReportCorruption(so->index, GG_META_BLKNO, "segment %u has %u rows for %u nodes and no offsets",
						   segment->id, segment->rows, segment->nodes);
}

static void
InitDelta(ScanOpaque *so, Stream *stream, uint32 first_page, uint32 end_page)
{
	/* nodes count from the delta's first page, whatever the stream's is */
	stream->nodes = end_page / GgDeltaPagesPerRow(so->meta) * GgDeltaRowsPerPage(so->meta);
	stream->list = -1;
	stream->itopk = gg_itopk_size;
	stream->first_page = first_page;
	stream->end_page = end_page;
	stream->phase = STREAM_EXACT;
	stream->end_key = PG_UINT64_MAX;
}

static void
StartWalk(ScanOpaque *so, Stream *stream)
{
	gg_status	status;

	stream->phase = STREAM_WALK;
	NeedSource(so, stream);
	stream->walk = GetWalk();
	so->walks[so->nwalks++] = stream->walk;
	status = gg_walk_start(stream->walk, &stream->source.source, stream->itopk);
	if (status.code != GG_OK)
		ReportWalk(&status);
}

/* Search a segment, or the device's part of the delta, here: from the start, or from where a device's lists end. */
static void
StartOnCpu(ScanOpaque *so, Stream *stream)
{
	if (stream->segment != NULL && so->query != NULL && WalkIsWorthwhile(stream, stream->itopk))
		StartWalk(so, stream);
	else
		LeaveWalk(so, stream);
}

/* ---- streams from a device ----------------------------------------------- */

/* Length of the lists to ask for, so that the slot has room for all up to the given one. */
static uint32
ListLength(uint32 itopk, int last_list)
{
	return Min(itopk, GG_SLOT_CANDIDATES / (uint32) (last_list + 1));
}

/* A stream's list out of the slot, which is the next query's. */
static void
KeepAnswers(ScanOpaque *so, Stream *stream, const GgServiceAnswer *answer)
{
	const uint32 *nodes = answer->nodes + (Size) stream->list * answer->k;
	const float *distances = answer->distances + (Size) stream->list * answer->k;

	if (stream->answers == NULL || stream->asked < answer->k)
	{
		if (stream->answers != NULL)
			pfree(stream->answers);
		stream->answers = MemoryContextAlloc(so->context, answer->k * sizeof(gg_candidate));
	}
	stream->asked = answer->k;
	stream->nanswers = 0;
	stream->next_answer = 0;
	stream->handed -= stream->kept_back;
	stream->kept_back = 0;
	stream->ended = false;
	for (uint32 i = 0; i < answer->k && !stream->ended; i++)
	{
		gg_candidate *candidate = &stream->answers[stream->nanswers];

		candidate->node = nodes[i];
		candidate->distance = distances[i];
		if (nodes[i] < stream->nodes)
			stream->nanswers++;
		else if (nodes[i] == GG_NO_NODE)
			stream->ended = true;
	}
}

/*
 * One query to the device that holds the index.  The copy may have been replaced by a newer one since it was looked up: then
 * that one is asked, where it holds the same rows.  False: so->why says why.
 */
static bool
AskOnce(ScanOpaque *so, uint32 lists, bool delta, uint32 length, uint32 itopk, GgServiceAnswer *answer)
{
	for (int attempt = 0;; attempt++)
	{
		uint32		delta_pages = so->ref.delta_pages;

		if (GgServiceSearch(&so->ref, so->query, so->meta->dimensions, lists, delta, false, length, itopk, answer,
							&so->why))
			return true;
		if (so->why != GG_CPU_NOT_RESIDENT || attempt >= 2 ||
			!GgResidentLookup(so->index, so->meta, &so->ref, &so->why))
			return false;
		if (delta && so->ref.delta_pages != delta_pages)
		{
			so->why = GG_CPU_NOT_RESIDENT;
			return false;
		}
	}
}

/*
 * What the scan has had of the list goes into the bitmap.  Not sooner, for most scans end within their first lists, and
 * clearing a bit for each of a million nodes takes longer than all else that is done here.
 */
static void
MarkHanded(ScanOpaque *so, Stream *stream)
{
	for (uint32 i = 0; i < stream->next_answer; i++)
		if (stream->answers[i].node != GG_NO_NODE)
			MarkReturned(so, stream, stream->answers[i].node);
}

/* Ask for longer lists; or leave the device, where it has no longer ones or fails. */
static void
WidenOnDevice(ScanOpaque *so, Stream *stream)
{
	uint64		itopk = Max((uint64) stream->itopk * 2, (uint64) stream->itopk + 16);
	bool		delta = stream->segment == NULL;
	uint32		length;
	GgServiceAnswer answer;

	/* the delta's lists are exact, so its last one has every row */
	if (delta && stream->ended && stream->kept_back == 0)
	{
		stream->phase = STREAM_DONE;
		return;
	}
	MarkHanded(so, stream);
	if (stream->ended || stream->handed >= (uint64) gg_max_scan_tuples || itopk > PG_INT32_MAX ||
		(!delta && !WalkIsWorthwhile(stream, (uint32) itopk)))
	{
		LeaveWalk(so, stream);
		return;
	}
	length = ListLength((uint32) itopk, stream->list);
	if (itopk <= GG_MAX_ITOPK && length > stream->asked && (!delta || so->ref.delta_pages == stream->end_page))
	{
		if (AskOnce(so, delta ? 0 : (uint32) 1 << stream->list, delta, length, (uint32) itopk, &answer))
		{
			stream->itopk = (uint32) itopk;
			KeepAnswers(so, stream, &answer);
			return;
		}
		GgFallBack(so->index, so->why);
	}
	stream->itopk = (uint32) itopk;
	stream->resumed = true;
	StartOnCpu(so, stream);
}

/* Only this session can read it: created or given a new file in this transaction, or temporary. */
static bool
IsLocal(Relation index)
{
	return RelationUsesLocalBuffers(index) || index->rd_createSubid != InvalidSubTransactionId ||
		GgFirstLocatorSubid(index) != InvalidSubTransactionId;
}

/* Which streams a device could answer: those of worthwhile walks.  Lists are numbered as segments are. */
static uint32
DeviceLists(ScanOpaque *so)
{
	uint32		lists = 0;

	for (int i = 0; i < so->nstreams; i++)
		if (so->streams[i].segment != NULL && WalkIsWorthwhile(&so->streams[i], so->streams[i].itopk))
			lists |= (uint32) 1 << (so->streams[i].segment - so->meta->segments);
	return lists;
}

/*
 * Ask the device that holds the index for all first lists at once.  False: the CPU answers, so->why says why.
 * delta_pages: how many pages of the delta the device answered for.
 */
static bool
AskDevice(ScanOpaque *so, uint32 *delta_pages)
{
	uint32		lists = so->query != NULL ? DeviceLists(so) : 0;
	GgServiceAnswer answer;
	int			last;

	*delta_pages = 0;
	if (gg_engine_setting == GG_ENGINE_CPU)
		so->why = GG_CPU_SETTING;
	else if (gg_service == NULL)
		so->why = GG_CPU_NO_SERVICE;
	else if (IsLocal(so->index))
		so->why = GG_CPU_LOCAL;
	else if (so->query == NULL || (lists == 0 && so->meta->delta_pages < DEVICE_DELTA_PAGES))
		so->why = GG_CPU_SMALL;
	else if (GgResidentLookup(so->index, so->meta, &so->ref, &so->why))
	{
		if (so->ref.delta_pages >= DEVICE_DELTA_PAGES && so->ref.delta_pages <= so->meta->delta_pages &&
			so->ref.delta_pages % GgDeltaPagesPerRow(so->meta) == 0)
			*delta_pages = so->ref.delta_pages;
		so->why = GG_BY_DEVICE;
		if (lists == 0 && *delta_pages == 0)
			so->why = GG_CPU_SMALL;
	}
	if (so->why != GG_BY_DEVICE)
		return false;

	last = *delta_pages > 0 ? (int) so->ref.nsegments : pg_leftmost_one_pos32(lists);
	if (!AskOnce(so, lists, *delta_pages > 0, ListLength(gg_itopk_size, last), gg_itopk_size, &answer))
	{
		*delta_pages = 0;
		return false;
	}
	for (int i = 0; i < so->nstreams; i++)
	{
		Stream	   *stream = &so->streams[i];
		int			list = stream->segment - so->meta->segments;

		if ((lists & ((uint32) 1 << list)) == 0)
			continue;
		stream->list = list;
		stream->phase = STREAM_DEVICE;
		KeepAnswers(so, stream, &answer);
	}
	if (*delta_pages > 0)
	{
		Stream	   *stream = &so->streams[so->nstreams++];

		InitDelta(so, stream, 0, *delta_pages);
		stream->list = so->ref.nsegments;
		stream->phase = STREAM_DEVICE;
		KeepAnswers(so, stream, &answer);
	}
	return true;
}

/* ---- from stream to stream -------------------------------------------------- */

/*
 * Is the list to be widened already?  In the iterative modes once half of it was handed out.
 * With iterative_scan off only to replace rows that turned out dead, which is when the scan still
 * allows rows but the list is empty.
 */
static bool
WidenBeforeNext(ScanOpaque *so, const Stream *stream)
{
	return so->mode != GG_ITERATIVE_OFF &&
		stream->handed * 2 > (stream->phase == STREAM_DEVICE ? stream->asked : stream->itopk);
}

/* True when the walk goes on, false when it was left. */
static bool
Widen(ScanOpaque *so, Stream *stream)
{
	gg_status	status;
	uint64		itopk = Max((uint64) stream->itopk * 2, (uint64) stream->itopk + 16);

	if (gg_walk_exhausted(stream->walk) || stream->handed >= (uint64) gg_max_scan_tuples ||
		itopk > PG_INT32_MAX || !WalkIsWorthwhile(stream, (uint32) itopk))
	{
		LeaveWalk(so, stream);
		return false;
	}
	stream->itopk = (uint32) itopk;
	status = gg_walk_widen(stream->walk, stream->itopk);
	if (status.code != GG_OK)
		ReportWalk(&status);
	return true;
}

/* Make stream->head the nearest node that it did not hand out yet; false at its end. */
static bool
FillHead(ScanOpaque *so, Stream *stream)
{
	while (!stream->has_head)
	{
		switch (stream->phase)
		{
			case STREAM_DEVICE:
				if (stream->next_answer == stream->nanswers ||
					(WidenBeforeNext(so, stream) && !(stream->ended && stream->segment == NULL)))
				{
					WidenOnDevice(so, stream);
					break;
				}
				stream->head = stream->answers[stream->next_answer++];
				if (WasReturned(stream, stream->head.node))
					break;
				stream->handed++;
				if (so->mode == GG_ITERATIVE_STRICT && stream->head.distance < so->last_distance)
				{
					stream->kept_back++;
					stream->answers[stream->next_answer - 1].node = GG_NO_NODE;
					break;
				}
				stream->has_head = true;
				break;

			case STREAM_WALK:
				if (WidenBeforeNext(so, stream) && !Widen(so, stream))
					break;
				if (!gg_walk_next(stream->walk, &stream->head))
				{
					(void) Widen(so, stream);
					break;
				}
				if (stream->resumed && WasReturned(stream, stream->head.node))
					break;
				stream->handed++;
				/* found too late for strict order: the last exact pass brings it */
				if (so->mode == GG_ITERATIVE_STRICT && stream->head.distance < so->last_distance)
					break;
				stream->has_head = true;
				break;

			case STREAM_EXACT:
			case STREAM_LATE:
				if (stream->batch_pos < stream->batch_len)
				{
					uint64		key = stream->batch[stream->batch_pos++];

					stream->head.distance = key_distance(key);
					stream->head.node = key_node(key);
					stream->has_head = true;
				}
				else if (stream->batch_cap == 0 || !stream->batch_last)
				{
					if (stream->batch_len > 0)
						stream->next_key = stream->batch[stream->batch_len - 1] + 1;	/* below that of the next node */
					NextBatch(so, stream);
				}
				else if (stream->phase == STREAM_EXACT && stream->bound > 0)
				{
					stream->phase = STREAM_LATE;
					stream->next_key = 0;
					stream->end_key = stream->bound;
					stream->batch_len = 0;
					NextBatch(so, stream);
				}
				else
					stream->phase = STREAM_DONE;
				break;

			case STREAM_DONE:
				return false;
		}
	}
	return true;
}

/*
 * The stream to take the next node from.  Rows that strict order kept back come when every stream
 * has nothing else.
 */
static Stream *
NearestStream(ScanOpaque *so)
{
	Stream	   *best = NULL;

	for (int i = 0; i < so->nstreams; i++)
	{
		Stream	   *stream = &so->streams[i];
		bool		late;

		if (!FillHead(so, stream))
			continue;
		late = stream->phase == STREAM_LATE;
		if (best == NULL || late < (best->phase == STREAM_LATE) ||
			(late == (best->phase == STREAM_LATE) && stream->head.distance < best->head.distance))
			best = stream;
	}
	return best;
}

/* ---- rows of a node ---------------------------------------------------- */

static void
EnterNode(ScanOpaque *so, Stream *stream)
{
	uint32		node = stream->head.node;

	stream->has_head = false;
	so->current = stream;
	so->distance = stream->head.distance;
	if (stream->phase != STREAM_LATE)
		so->last_distance = stream->head.distance;
	so->row_next = node;
	so->row_end = node + 1;
	/* a device's lists are remembered when they end; an exact pass over the delta alone meets no row twice */
	if (stream->phase != STREAM_DEVICE && (stream->segment != NULL || stream->list >= 0))
		MarkReturned(so, stream, node);
	if (stream->segment == NULL)
		return;
	if (stream->offsets.nextents > 0)
	{
		uint64		offset = (uint64) node * sizeof(uint32);
		uint32		range[2];

		GgReadArray(so->index, so->meta->instance, &stream->offsets, offset, range, sizeof(range));
		if (range[0] > range[1] || range[1] > stream->segment->rows)
			GgReportCorruption(so->index, GgArrayBlock(&stream->offsets, offset / GG_PAGE_PAYLOAD),
							   "rows %u to %u of node %u are out of range", range[0], range[1], node);
		so->row_next = range[0];
		so->row_end = range[1];
	}
}

/* Read the TID of a row from its page, as it is now; false when VACUUM cleared it. */
static bool
ReadTid(ScanOpaque *so, Stream *stream, uint32 row, ItemPointer tid)
{
	Buffer		buffer;
	Page		page;

	if (stream->segment != NULL)
	{
		buffer = GgReadPage(so->index, so->meta->instance, &stream->tids, row / GG_TIDS_PER_PAGE, BUFFER_LOCK_SHARE);
		page = BufferGetPage(buffer);
		*tid = ((GgTidEntry *) PageGetContents(page))[row % GG_TIDS_PER_PAGE].tid;
	}
	else
	{
		uint32		per_page = GgDeltaRowsPerPage(so->meta);
		uint32		number = so->meta->delta_first + row / per_page * GgDeltaPagesPerRow(so->meta);

		buffer = GgReadPage(so->index, so->meta->instance, &so->delta, number, BUFFER_LOCK_SHARE);
		page = BufferGetPage(buffer);
		*tid = ((GgDeltaRow *) (PageGetContents(page) + (row % per_page) * GgDeltaRowBytes(so->meta)))->tid;
	}
	GgTestForOldSnapshot(so->snapshot, so->index, page);
	UnlockReleaseBuffer(buffer);
	return ItemPointerIsValid(tid);
}

/*
 * With iterative_scan off a scan returns gpugraph.itopk_size rows that its snapshot sees.  The AM is
 * not told which of its rows were dead, so they are looked up once the allowance is used up.
 */
static bool
MayReturnAnother(ScanOpaque *so, IndexScanDesc scan)
{
	uint32		visible = 0;

	if (so->mode != GG_ITERATIVE_OFF || so->nreturned < so->allowed)
		return true;
	for (uint32 i = 0; i < so->nreturned; i++)
	{
		ItemPointerData tid = so->returned[i];
		bool		all_dead;

		CHECK_FOR_INTERRUPTS();
		if (table_index_fetch_tuple_check(scan->heapRelation, &tid, scan->xs_snapshot, &all_dead))
			visible++;
	}
	if (visible >= (uint32) gg_itopk_size)
		return false;
	so->allowed = so->nreturned + (gg_itopk_size - visible);
	return true;
}

static void
RememberReturned(ScanOpaque *so, ItemPointer tid)
{
	if (so->mode != GG_ITERATIVE_OFF)
		return;
	if (so->nreturned >= so->returned_cap)
	{
		so->returned_cap = Max(64, so->returned_cap * 2);
		if (so->returned == NULL)
			so->returned = MemoryContextAllocHuge(so->context, so->returned_cap * sizeof(ItemPointerData));
		else
			so->returned = repalloc_huge(so->returned, so->returned_cap * sizeof(ItemPointerData));
	}
	so->returned[so->nreturned++] = *tid;
}

static void
CountScan(ScanOpaque *so)
{
	if (so->started)
		GgCountQuery(so->index, so->why, so->nrows);
	so->started = false;
}

/* ---- access method callbacks ------------------------------------------- */

IndexScanDesc
ggbeginscan(Relation index, int nkeys, int norderbys)
{
	IndexScanDesc scan = RelationGetIndexScan(index, nkeys, norderbys);
	ScanOpaque *so = palloc0(sizeof(ScanOpaque));
	MemoryContextCallback *callback = palloc(sizeof(MemoryContextCallback));

	so->index = index;
	so->context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph scan", ALLOCSET_DEFAULT_SIZES);
	callback->func = ReturnWalks;
	callback->arg = so;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, callback);
	scan->opaque = so;

	/* for rows that are stored rounded, see bound.c */
	scan->xs_orderbyvals = palloc0(norderbys * sizeof(Datum));
	scan->xs_orderbynulls = palloc(norderbys * sizeof(bool));
	memset(scan->xs_orderbynulls, true, norderbys * sizeof(bool));
	return scan;
}

void
ggrescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys, int norderbys)
{
	ScanOpaque *so = (ScanOpaque *) scan->opaque;

	if (keys && scan->numberOfKeys > 0)
		memmove(scan->keyData, keys, scan->numberOfKeys * sizeof(ScanKeyData));
	if (orderbys && scan->numberOfOrderBys > 0)
		memmove(scan->orderByData, orderbys, scan->numberOfOrderBys * sizeof(ScanKeyData));

	CountScan(so);
	ReturnWalks(so);
	MemoryContextReset(so->context);
	so->nrows = 0;
	so->nstreams = 0;
	so->streams = NULL;
	so->current = NULL;
	so->row_next = so->row_end = 0;
	so->query = NULL;
	memset(scan->xs_orderbynulls, true, scan->numberOfOrderBys * sizeof(bool));
	so->nreturned = 0;
	so->returned = NULL;
	so->returned_cap = 0;
}

/* VACUUM may have given back segments and delta pages whose rows an expired snapshot still sees. */
static void
TestDirectory(ScanOpaque *so)
{
	GgMetaPageData *meta;
	Buffer		buffer;

	if (!GgSnapshotsExpire())
		return;
	buffer = GgLockMeta(so->index, BUFFER_LOCK_SHARE, &meta);
	GgTestForOldSnapshot(so->snapshot, so->index, BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
}

/*
 * The metapage is copied here, after the scan's snapshot was taken: every row committed before the
 * snapshot is in the segments and delta pages that the copy names.
 */
static void
StartScan(IndexScanDesc scan)
{
	ScanOpaque *so = (ScanOpaque *) scan->opaque;
	const GgOpclass *opclass = GgIndexOpclass(scan->indexRelation);
	ScanKey		key;
	uint32		delta_done;

	if (scan->numberOfOrderBys != 1 || scan->orderByData == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot scan a gpugraph index but in the order of one distance"),
				 errhint("Order by the distance operator of the index, or leave the index out of the plan.")));
	if (!IsMVCCSnapshot(scan->xs_snapshot))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("gpugraph indexes can only be scanned with an MVCC snapshot")));

	pgstat_count_index_scan(scan->indexRelation);
	GgCountSearch(scan);

	so->mode = gg_iterative_scan;
	so->allowed = gg_itopk_size;
	so->last_distance = -get_float4_infinity();
	so->snapshot = scan->xs_snapshot;
	so->meta = palloc(sizeof(GgMetaPageData));
	GgReadMeta(scan->indexRelation, so->meta);
	TestDirectory(so);

	key = &scan->orderByData[0];
	if (!(key->sk_flags & SK_ISNULL))
		so->query = GgQueryFromValue(opclass, key->sk_argument, so->meta->dimensions);
	GgBoundInit(&so->bound, opclass, so->meta, key->sk_argument, so->query);

	so->streams = palloc0((so->meta->nsegments + 2) * sizeof(Stream));
	for (int i = 0; i < so->meta->nsegments; i++)
	{
		const GgSegment *segment = &so->meta->segments[i];

		if (segment->nodes > 0 && segment->dead < segment->rows)
			InitSegment(so, &so->streams[so->nstreams++], segment);
	}
	if (so->meta->delta_pages > 0)
		GgFindArray(so->meta, GG_NO_SEGMENT, GG_KIND_DELTA, &so->delta);

	if (!AskDevice(so, &delta_done))
		GgFallBack(so->index, so->why);
	for (int i = 0; i < so->nstreams; i++)
		if (so->streams[i].list < 0)
			StartOnCpu(so, &so->streams[i]);
	if (so->meta->delta_pages > delta_done)
		InitDelta(so, &so->streams[so->nstreams++], delta_done, so->meta->delta_pages);
	so->started = true;
}

/* The next row's TID; false at the end of the scan. */
static bool
NextTid(ScanOpaque *so, IndexScanDesc scan, ItemPointer tid)
{
	for (;;)
	{
		Stream	   *stream;

		CHECK_FOR_INTERRUPTS();
		if (!MayReturnAnother(so, scan))
			return false;
		while (so->row_next < so->row_end)
			if (ReadTid(so, so->current, so->row_next++, tid))
				return true;
		stream = NearestStream(so);
		if (stream == NULL)
			return false;
		EnterNode(so, stream);
	}
}

bool
gggettuple(IndexScanDesc scan, ScanDirection dir)
{
	ScanOpaque *so = (ScanOpaque *) scan->opaque;
	MemoryContext old = MemoryContextSwitchTo(so->context);
	bool		found;

	Assert(ScanDirectionIsForward(dir));

	if (!so->started)
		StartScan(scan);
	found = NextTid(so, scan, &scan->xs_heaptid);
	if (found)
	{
		so->nrows++;
		RememberReturned(so, &scan->xs_heaptid);
	}
	scan->xs_recheck = false;
	scan->xs_recheckorderby = false;
	if (found && so->bound.rounded)
	{
		Oid			type = FLOAT8OID;
		IndexOrderByDistance least = {GgBoundOf(&so->bound, so->distance), false};

		index_store_float8_orderby_distances(scan, &type, &least, true);
	}
	MemoryContextSwitchTo(old);
	return found;
}

void
ggendscan(IndexScanDesc scan)
{
	ScanOpaque *so = (ScanOpaque *) scan->opaque;

	CountScan(so);
	/* so itself goes with the context that ReturnWalks() is registered with */
	ReturnWalks(so);
	MemoryContextDelete(so->context);
}
