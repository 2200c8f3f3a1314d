/*
 * test_large.c
 *		How many entries 100 million rows of 1,536 dimensions take that are inserted in one
 *		transaction under an old snapshot: nothing that is given back can be used again.
 *
 * Blocks are taken and given back, and merges chosen, by the code of the extension.  Rows are
 * inserted while a merge builds its graph and between the slices in which it writes.
 */
#include "server.h"
#include "merge/merge.h"
#include "storage/array_writer.h"

#include <math.h>

#define DIMENSIONS			1536
#define MOST_ENTRIES		256
/* nodes that maintenance_work_mem has room for in files, about */
#define MOST_NODES			40000000

static GgMetaPageData now;		/* the directory */
static GgMetaPageData *const meta = &now;
static uint64 asked;
static uint64 inserted;
static uint64 written;			/* pages of merges */
static uint32 rows_per_slice;
static int	most_entries;
static int	most_pieces;
static int	merges;

/* In the server these are of files that know more of it. */
uint32
GgSealableEnd(const GgMetaPageData *m)
{
	return m->delta_first + m->delta_pages - (m->delta_pages > 0);
}

const GgSegment *
GgFindSegment(const GgMetaPageData *m, uint32 id)
{
	for (int i = 0; i < m->nsegments; i++)
		if (m->segments[i].id == id)
			return &m->segments[i];
	return NULL;
}

static void
Look(void)
{
	/* a merge under way goes on, for which more rows come */
	if (inserted >= asked)
		return;
	most_entries = Max(most_entries, meta->nextents);
	most_pieces = Max(most_pieces, meta->npieces);
}

/* Insert rows, one to a page.  Where the next pages follow, they are taken at once. */
static void
InsertRows(uint64 n)
{
	while (n > 0)
	{
		BlockNumber blkno;
		uint32		more = 0;

		(void) GgAllocateBlock(&relation, &relation, meta, GG_KIND_DELTA, &blkno);
		GgAddExtent(meta, blkno, 1, GG_NO_SEGMENT, GG_KIND_DELTA);
		if (blkno + 1 == GgHighWater(meta))
		{
			more = n - 1;
			server.nblocks = Max(server.nblocks, blkno + 1 + more);
		}
		for (int i = 0; i < meta->nextents; i++)
			if (meta->extents[i].kind == GG_KIND_FREE && meta->extents[i].parked_xid == 0 &&
				meta->extents[i].start == blkno + 1)
			{
				more = Min(n - 1, meta->extents[i].nblocks);
				meta->extents[i].start += more;
				meta->extents[i].nblocks -= more;
				if (meta->extents[i].nblocks == 0)
					GgRemoveExtent(meta, i);
				break;
			}
		if (more > 0)
			GgAddExtent(meta, blkno + 1, more, GG_NO_SEGMENT, GG_KIND_DELTA);
		meta->delta_pages += 1 + more;
		inserted += 1 + more;
		n -= 1 + more;
		Look();
	}
}

static bool ChooseInner(const GgMergeChoice *outer, GgMergeChoice *choice);
static void Merge(const GgMergeChoice *choice, bool inner);

/* Time passes in which rows are inserted; the delta is sealed meanwhile. */
static void
Pass(uint32 rows, const GgMergeChoice *outer)
{
	while (rows > 0 && inserted < asked)
	{
		uint32		step = Min(rows, rows_per_slice);
		GgMergeChoice choice;

		InsertRows(step);
		rows -= step;
		if (outer != NULL && ChooseInner(outer, &choice))
			Merge(&choice, true);
	}
}

typedef struct Run
{
	GgKind		kind;
	BlockNumber start;
	uint32		nblocks;
} Run;

/* Take blocks for an array, as GgTakeForArray() does, and write it. */
static int
WriteArray(uint32 id, GgKind kind, uint64 bytes, Run *runs, int nruns, const GgMergeChoice *outer)
{
	uint32		npages = (uint32) ((bytes + GG_PAGE_PAYLOAD - 1) / GG_PAGE_PAYLOAD);
	uint32		taken = 0;
	int			first = nruns;

	while (taken < npages)
	{
		GgBlocksWanted wanted = {
			.owner = id,
			.least = GgLeastRun(npages, npages - taken, nruns - first),
			.whole = npages,
			.rest = npages - taken,
			.next = nruns > first ? runs[nruns - 1].start + runs[nruns - 1].nblocks :
				InvalidBlockNumber
		};
		BlockNumber start;
		BlockNumber end;
		uint32		n = GgTakeBlocks(&relation, &relation, meta, &wanted, &start, &end);

		Look();
		if (n == 0)
		{
			/* rows come meanwhile, for which the relation is long enough */
			server.nblocks = end;
			InsertRows(draw(3));
			continue;
		}
		runs[nruns++] = (Run) {kind, start, n};
		taken += n;
	}
	written += npages;
	for (uint32 done = 0; done < npages; done += GG_WRITE_PAGES)
		Pass(rows_per_slice, outer);
	return nruns;
}

/* Take the inputs that are segments out of the directory.  Their pieces go, unless they stay. */
static uint32
RemoveSegments(const GgMergeChoice *choice, uint32 id, const GgPieceSize *kept, int nkept)
{
	GgPiece		pieces[GG_MAX_PIECES];
	uint32		nodes = 0;

	for (int s = 0; s < choice->nsegments; s++)
	{
		GgFreeGraph(meta, choice->segments[s], server.next_xid);
		for (int i = 0; i < meta->nsegments; i++)
			if (meta->segments[i].id == choice->segments[s])
				meta->segments[i] = meta->segments[--meta->nsegments];
		for (int i = meta->npieces - 1; i >= 0; i--)
		{
			GgPiece		piece = meta->pieces[i];
			bool		stays = false;

			if (piece.segment != choice->segments[s])
				continue;
			for (int k = 0; k < nkept; k++)
				stays |= kept[k].id == piece.id;
			if (!stays)
				GgFreePiece(meta, piece.id, server.next_xid);
		}
	}
	for (int i = 0; i < nkept; i++)
		for (int p = 0; p < meta->npieces; p++)
			if (meta->pieces[p].id == kept[i].id)
			{
				pieces[0] = meta->pieces[p];
				pieces[0].segment = id;
				memmove(&meta->pieces[p], &meta->pieces[p + 1],
						(meta->npieces - p - 1) * sizeof(GgPiece));
				meta->pieces[meta->npieces - 1] = pieces[0];
				nodes += pieces[0].nodes;
				break;
			}
	return nodes;
}

/* The pieces that stay, and the nodes of all inputs. */
static int
ChoosePieces(const GgMergeChoice *choice, GgPieceSize *sizes, uint64 *nodes)
{
	int			n = 0;

	for (int s = 0; s < choice->nsegments; s++)
		for (int p = 0; p < meta->npieces; p++)
		{
			const GgPiece *piece = &meta->pieces[p];

			if (piece->segment != choice->segments[s])
				continue;
			sizes[n] = (GgPieceSize) {.id = piece->id, .nodes = piece->nodes};
			for (int i = 0; i < meta->nextents; i++)
				sizes[n].extents += meta->extents[i].kind == GG_KIND_VECTORS &&
					meta->extents[i].segment == piece->id;
			*nodes += piece->nodes;
			n++;
		}
	return GgChoosePieces(meta, sizes, n, meta->npieces - n);
}

static void
Merge(const GgMergeChoice *choice, bool inner)
{
	GgPieceSize kept[GG_MAX_PIECES];
	Run			runs[6 * GG_ARRAY_RUNS];
	int			nruns = 0;
	uint32		id = meta->next_id++;
	uint32		end = GgSealableEnd(meta);
	uint64		nodes = choice->delta ? end - meta->delta_first : 0;
	int			nkept = ChoosePieces(choice, kept, &nodes);
	uint64		stay = 0;
	const GgMergeChoice *outer = inner || choice->delta ? NULL : choice;
	GgSegment  *segment;

	for (int i = 0; i < nkept; i++)
		stay += kept[i].nodes;
	merges++;
	/* the graph takes as long as a tenth of its rows take to come */
	Pass(nodes / 10 + 1, outer);
	if (nodes > stay)
		nruns = WriteArray(id, GG_KIND_VECTORS, (nodes - stay) * DIMENSIONS * 4, runs, nruns,
						   outer);
	nruns = WriteArray(id, GG_KIND_ADJACENCY, nodes * meta->graph_degree * 4, runs, nruns, outer);
	nruns = WriteArray(id, GG_KIND_PIVOTS, 3 * sqrt(nodes) * sizeof(GgPivotEntry), runs, nruns,
					   outer);
	nruns = WriteArray(id, GG_KIND_TIDS, nodes * sizeof(GgTidEntry), runs, nruns, outer);

	/* the flip */
	server.next_xid++;
	for (int i = meta->nextents - 1; i >= 0; i--)
		if (meta->extents[i].kind == GG_KIND_TAKEN && meta->extents[i].segment == id)
			GgRemoveExtent(meta, i);
	if (RemoveSegments(choice, id, kept, nkept) != stay)
		fail("the pieces that stay have not the nodes that they had");
	if (choice->delta)
		GgFreeDelta(meta, meta->delta_first, end - meta->delta_first, server.next_xid);
	segment = &meta->segments[meta->nsegments++];
	memset(segment, 0, sizeof(*segment));
	segment->id = id;
	segment->nodes = segment->rows = nodes;
	if (nodes > stay)
		meta->pieces[meta->npieces++] = (GgPiece) {.id = id, .segment = id, .nodes = nodes - stay};
	if (meta->nsegments > GG_MAX_SEGMENTS || meta->npieces > GG_MAX_PIECES)
		fail("%u segments and %u pieces", meta->nsegments, meta->npieces);
	for (int i = 0; i < nruns; i++)
		GgAddExtent(meta, runs[i].start, runs[i].nblocks, id, runs[i].kind);
	GgMergeFree(meta);
	Look();
}

static GgMergeLook
LookAt(void)
{
	GgMergeLook look = {
		.meta = meta,
		.delta_rows = meta->delta_pages,
		.seal_rows = GgDefaultSealRows(meta, false),
		.most = MOST_NODES
	};

	return look;
}

static bool
ChooseInner(const GgMergeChoice *outer, GgMergeChoice *choice)
{
	GgMergeLook look = LookAt();

	return GgChooseMeanwhile(&look, false, outer, choice);
}

/* Returns the most entries that there were. */
static int
Simulate(uint64 rows, uint32 slice)
{
	memset(meta, 0, sizeof(*meta));
	meta->dimensions = DIMENSIONS;
	meta->element = GG_ELEMENT_F32;
	meta->graph_degree = 32;
	meta->next_id = 1;
	GgAddExtent(meta, GG_META_BLKNO, 1, GG_NO_SEGMENT, GG_KIND_META);
	server.nblocks = 1;
	asked = rows;
	rows_per_slice = slice;
	inserted = written = most_entries = most_pieces = merges = 0;
	while (inserted < rows)
	{
		GgMergeLook look = LookAt();
		GgMergeChoice choice;

		if (GgChooseMerge(&look, GG_MERGE_DUE, &choice))
			Merge(&choice, false);
		else
			InsertRows(Max(rows_per_slice / 10, 1));
	}
	printf("%.1f million rows, %u a slice: at most %d entries and %d pieces; %u segments at the "
		   "end, %d merges, %.2f times the rows written, a relation of %.0f GB\n",
		   inserted / 1e6, rows_per_slice, most_entries, most_pieces, meta->nsegments, merges,
		   written / (inserted * DIMENSIONS * 4.0 / BLCKSZ), server.nblocks * (BLCKSZ / 1e9));
	return most_entries;
}

/* Rows come slowly, as fast as merges keep up with, and faster. */
int
main(void)
{
	static const struct
	{
		double		rows;
		uint32		slice;
	}			cases[] = {{5e6, 30}, {100e6, 100}, {20e6, 300}};
	int			failed = 0;

	for (int i = 0; i < lengthof(cases); i++)
		failed += Simulate(cases[i].rows, cases[i].slice) > MOST_ENTRIES;
	printf("%d passed, %d failed\n", (int) lengthof(cases) - failed, failed);
	return failed > 0;
}
