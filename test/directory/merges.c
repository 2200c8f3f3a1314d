/*
 * merges.c
 *		The model behind merges.h.
 *
 * Where rows share vectors, the model knows each node's vector and whether a row has it, and finds
 * equal ones as nodes.c does.
 */
#include "merges.h"
#include "storage/array_writer.h"

#include <math.h>

/* as in nodes.c */
#define EMPTY_SHARE			5

/* A piece whose vectors are known.  Where `used` is not set, no row has the node. */
typedef struct Piece
{
	uint32		id;
	uint32		nodes;
	uint32	   *vectors;
	bool	   *used;
} Piece;

typedef struct Run
{
	GgKind		kind;
	BlockNumber start;
	uint32		nblocks;
} Run;

/* A merge under way. */
typedef struct Merge
{
	const GgMergeChoice *choice;
	const GgMergeChoice *outer; /* what is sealed meanwhile is none of these */
	uint32		id;
	uint32		delta_pages;
	uint32		nodes;
	uint32		empty;
	uint32		rows;
	uint32		new_nodes;		/* of the new piece */
	int			nkept;
	GgPieceSize kept[GG_MAX_PIECES];
	int			nruns;
	Run			runs[6 * GG_ARRAY_RUNS];
} Merge;

Counts		counts;
static Shape shape;
static uint64 asked;			/* rows that are to be inserted */
static bool old_snapshot;

/* where rows share vectors */
static Piece pieces[GG_MAX_PIECES + 1];
static int	npieces;
static uint32 *delta;			/* vectors of its rows */
static uint32 delta_room;
static uint32 *seen;			/* of each vector: the merge that found it last */
static uint32 *alive;			/* likewise with a row */
static uint32 stamp;			/* of the merge under way */

/* In the server these are of files that know more of it. */
uint64
GgSealableEnd(const GgMetaPageData *m)
{
	return GgDeltaEnd(m) - (m->delta_pages > 0);
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
look(void)
{
	/* a merge under way goes on, for which more rows come */
	if (counts.inserted >= asked)
		return;
	counts.most_entries = Max(counts.most_entries, meta->nextents);
	counts.most_pieces = Max(counts.most_pieces, meta->npieces);
	counts.most_segments = Max(counts.most_segments, meta->nsegments);
}

/* ---- rows -------------------------------------------------------------------------------- */

static uint32
delta_rows(void)
{
	return meta->delta_pages * GgDeltaRowsPerPage(meta);
}

static void
draw_vectors(uint32 pages)
{
	uint32		n = pages * GgDeltaRowsPerPage(meta);
	uint32		before = delta_rows();

	if (before + n > delta_room)
		delta = realloc(delta, (delta_room = 2 * (before + n)) * sizeof(uint32));
	for (uint32 i = 0; i < n; i++)
		delta[before + i] = draw(shape.vectors);
}

/* Insert full pages.  Where the next pages follow, they are taken at once. */
static void
insert_pages(uint64 n)
{
	if (shape.vectors > 0)
		draw_vectors(n);
	while (n > 0)
	{
		const BlockNumber blkno = insert_page();
		uint32		more = 0;

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
		meta->delta_pages += more;
		counts.inserted += (1 + more) * GgDeltaRowsPerPage(meta);
		n -= 1 + more;
		look();
	}
}

static void
insert_some(uint32 rows)
{
	insert_pages((rows + GgDeltaRowsPerPage(meta) - 1) / GgDeltaRowsPerPage(meta));
}

static bool choose_inner(const GgMergeChoice *outer, GgMergeChoice *choice);
static void run_merge(const GgMergeChoice *choice, bool inner);

/* Time passes in which rows are inserted; the delta is sealed meanwhile. */
static void
pass(uint32 rows, const GgMergeChoice *outer)
{
	while (rows > 0 && counts.inserted < asked)
	{
		uint32		step = Min(rows, shape.slice);
		GgMergeChoice choice;

		insert_some(step);
		rows -= step;
		if (outer != NULL && choose_inner(outer, &choice))
			run_merge(&choice, true);
	}
}

/* ---- nodes ------------------------------------------------------------------------------- */

static Piece *
find_piece(uint32 id)
{
	for (int i = 0; i < npieces; i++)
		if (pieces[i].id == id)
			return &pieces[i];
	fail("piece %u is not there", id);
}

static void
forget_piece(Piece *piece)
{
	free(piece->vectors);
	free(piece->used);
	*piece = pieces[--npieces];
}

static uint32
count_used(const Piece *piece)
{
	uint32		n = 0;

	for (uint32 i = 0; i < piece->nodes; i++)
		n += piece->used[i];
	return n;
}

/* The pieces that stay, and the nodes of all others, of which some may be equal. */
static void
choose_pieces(Merge *merge)
{
	GgPieceSize *sizes = merge->kept;
	int			inputs = 0;
	int			n = 0;

	for (int s = 0; s < merge->choice->nsegments; s++)
		for (int p = 0; p < meta->npieces; p++)
		{
			const GgPiece *piece = &meta->pieces[p];

			if (piece->segment != merge->choice->segments[s])
				continue;
			inputs++;
			merge->nodes += piece->nodes;
			if (shape.vectors > 0 &&
				piece->nodes - count_used(find_piece(piece->id)) > piece->nodes / EMPTY_SHARE)
				continue;
			sizes[n] = (GgPieceSize) {.id = piece->id, .nodes = piece->nodes};
			for (int i = 0; i < meta->nextents; i++)
				sizes[n].extents += meta->extents[i].kind == GG_KIND_VECTORS &&
					meta->extents[i].segment == piece->id;
			n++;
		}
	merge->nkept = GgChoosePieces(meta, merge->choice->pinned, sizes, n,
								   meta->npieces - inputs);
	merge->new_nodes = merge->nodes;
	for (int i = 0; i < merge->nkept; i++)
		merge->new_nodes -= sizes[i].nodes;
}

static bool
stays(const Merge *merge, uint32 piece)
{
	for (int i = 0; i < merge->nkept; i++)
		if (merge->kept[i].id == piece)
			return true;
	return false;
}

/* The vector becomes a node of the new piece, unless another node has it. */
static void
add_node(Piece *piece, uint32 vector)
{
	if (seen[vector] == stamp)
		return;
	seen[vector] = stamp;
	piece->vectors[piece->nodes] = vector;
	piece->used[piece->nodes++] = true;
}

/* Rows of nodes of a piece that stays go to nodes that were there first.  Returns empty nodes. */
static uint32
keep_piece(Piece *piece)
{
	for (uint32 i = 0; i < piece->nodes; i++)
	{
		piece->used[i] = alive[piece->vectors[i]] == stamp && seen[piece->vectors[i]] != stamp;
		seen[piece->vectors[i]] = stamp;
	}
	return piece->nodes - count_used(piece);
}

/* Find equal vectors, where rows share some. */
static void
find_nodes(Merge *merge, uint32 rows)
{
	const GgMergeChoice *choice = merge->choice;
	Piece		new = {.id = merge->id};

	stamp++;
	for (int pass = 0; pass < 3; pass++)
		for (int s = 0; s < choice->nsegments; s++)
			for (int p = 0; p < meta->npieces; p++)
			{
				Piece	   *piece;

				if (meta->pieces[p].segment != choice->segments[s])
					continue;
				piece = find_piece(meta->pieces[p].id);
				for (uint32 i = 0; pass == 0 && i < piece->nodes; i++)
					if (piece->used[i])
						alive[piece->vectors[i]] = stamp;
				if (pass == 1 && stays(merge, piece->id))
					merge->empty += keep_piece(piece);
				if (pass == 2 && !stays(merge, piece->id))
				{
					for (uint32 i = 0; i < piece->nodes; i++)
						if (piece->used[i])
							add_node(&new, piece->vectors[i]);
					forget_piece(piece);
				}
				if (pass == 0 && new.vectors == NULL)
				{
					new.vectors = malloc((merge->nodes + rows + 1) * sizeof(uint32));
					new.used = malloc(merge->nodes + rows + 1);
				}
			}
	if (new.vectors == NULL)
	{
		new.vectors = malloc((rows + 1) * sizeof(uint32));
		new.used = malloc(rows + 1);
	}
	for (uint32 row = 0; row < rows; row++)
		add_node(&new, delta[row]);
	merge->nodes -= merge->new_nodes - rows;
	merge->nodes += new.nodes - rows;
	merge->new_nodes = new.nodes;
	pieces[npieces++] = new;
	if (new.nodes == 0)
		forget_piece(&pieces[npieces - 1]);
}

/* ---- merges ------------------------------------------------------------------------------ */

/* Take blocks for an array, as GgTakeForArray() does, and write it. */
static void
write_array(Merge *merge, GgKind kind, uint64 bytes)
{
	uint32		npages = (uint32) ((bytes + GG_PAGE_PAYLOAD - 1) / GG_PAGE_PAYLOAD);
	uint32		taken = 0;
	int			first = merge->nruns;

	while (taken < npages)
	{
		const Run  *last = merge->nruns > first ? &merge->runs[merge->nruns - 1] : NULL;
		GgBlocksWanted wanted = {
			.owner = merge->id,
			.least = GgLeastRun(npages, npages - taken, merge->nruns - first),
			.whole = npages,
			.rest = npages - taken,
			.next = last != NULL ? last->start + last->nblocks : InvalidBlockNumber
		};
		BlockNumber start;
		BlockNumber end;
		uint32		n = GgTakeBlocks(&relation, &relation, meta, &wanted, &start, &end);

		look();
		if (n == 0)
		{
			/* rows come meanwhile, for which the relation is long enough */
			server.nblocks = end;
			insert_pages(draw(3));
			continue;
		}
		merge->runs[merge->nruns++] = (Run) {kind, start, n};
		taken += n;
	}
	counts.written += npages;
	for (uint32 done = 0; done < npages; done += GG_WRITE_PAGES)
		pass(shape.slice, merge->outer);
}

static void
write_merged(Merge *merge)
{
	const uint64 nodes = merge->nodes;

	write_array(merge, GG_KIND_VECTORS, merge->new_nodes * GgRowBytes(meta));
	write_array(merge, GG_KIND_ADJACENCY, nodes * meta->graph_degree * sizeof(uint32));
	write_array(merge, GG_KIND_PIVOTS, 3 * sqrt(nodes) * sizeof(GgPivotEntry));
	if (merge->empty > 0 || merge->rows != nodes)
		write_array(merge, GG_KIND_OFFSETS, (nodes + 1) * sizeof(uint32));
	write_array(merge, GG_KIND_FILTERS, merge->rows * GgFilterBytes(meta));
	write_array(merge, GG_KIND_TIDS, merge->rows * sizeof(GgTidEntry));
}

static void
move_piece(uint32 id, uint32 segment)
{
	for (int p = 0; p < meta->npieces; p++)
		if (meta->pieces[p].id == id)
		{
			GgPiece		piece = meta->pieces[p];

			memmove(&meta->pieces[p], &meta->pieces[p + 1],
					(meta->npieces - p - 1) * sizeof(GgPiece));
			piece.segment = segment;
			meta->pieces[meta->npieces - 1] = piece;
			return;
		}
	fail("piece %u is not there", id);
}

/* Take the inputs that are segments out of the directory.  Their pieces go, unless they stay. */
static void
remove_segments(const Merge *merge)
{
	for (int s = 0; s < merge->choice->nsegments; s++)
	{
		uint32		id = merge->choice->segments[s];

		GgFreeGraph(meta, id, server.next_xid);
		for (int i = 0; i < meta->nsegments; i++)
			if (meta->segments[i].id == id)
				meta->segments[i] = meta->segments[--meta->nsegments];
		for (int p = meta->npieces - 1; p >= 0; p--)
			if (meta->pieces[p].segment == id && !stays(merge, meta->pieces[p].id))
				GgFreePiece(meta, meta->pieces[p].id, server.next_xid);
	}
	for (int i = 0; i < merge->nkept; i++)
		move_piece(merge->kept[i].id, merge->id);
}

static void
flip(Merge *merge)
{
	uint32		rows = merge->delta_pages * GgDeltaRowsPerPage(meta);
	GgSegment  *segment;

	server.next_xid++;
	for (int i = meta->nextents - 1; i >= 0; i--)
		if (meta->extents[i].kind == GG_KIND_TAKEN && meta->extents[i].segment == merge->id)
			GgRemoveExtent(meta, i);
	remove_segments(merge);
	if (shape.vectors > 0 && rows > 0)
		memmove(delta, delta + rows, (delta_rows() - rows) * sizeof(uint32));
	if (rows > 0)
		GgFreeDelta(meta, GgDeltaFirst(meta), merge->delta_pages, server.next_xid);
	segment = &meta->segments[meta->nsegments++];
	memset(segment, 0, sizeof(*segment));
	segment->id = merge->id;
	segment->nodes = merge->nodes;
	segment->empty = merge->empty;
	segment->rows = merge->rows;
	if (merge->new_nodes > 0)
		meta->pieces[meta->npieces++] = (GgPiece) {.id = merge->id, .segment = merge->id,
			.nodes = merge->new_nodes};
	if (meta->nsegments > GG_MAX_SEGMENTS || meta->npieces > GG_MAX_PIECES)
		fail("%u segments and %u pieces", meta->nsegments, meta->npieces);
	for (int i = 0; i < merge->nruns; i++)
		GgAddExtent(meta, merge->runs[i].start, merge->runs[i].nblocks, merge->id,
					merge->runs[i].kind);
	GgMergeFree(meta);
	if (!old_snapshot)
		server.horizon = server.next_xid + 1;
	look();
}

static void
run_merge(const GgMergeChoice *choice, bool inner)
{
	Merge	   *merge = calloc(1, sizeof(Merge));
	uint32		rows;

	counts.merges++;
	merge->choice = choice;
	merge->outer = inner || choice->delta ? NULL : choice;
	merge->id = meta->next_id++;
	merge->delta_pages = choice->delta ? GgSealableEnd(meta) - GgDeltaFirst(meta) : 0;
	rows = merge->delta_pages * GgDeltaRowsPerPage(meta);
	choose_pieces(merge);
	merge->nodes += rows;
	merge->new_nodes += rows;
	merge->rows = rows;
	for (int s = 0; s < choice->nsegments; s++)
	{
		const GgSegment *segment = GgFindSegment(meta, choice->segments[s]);

		merge->rows += segment->rows - segment->dead;
	}
	if (shape.vectors > 0)
		find_nodes(merge, rows);
	/* the graph takes as long as a tenth of its rows take to come */
	pass(merge->nodes / 10 + 1, merge->outer);
	write_merged(merge);
	flip(merge);
	free(merge);
}

static GgMergeLook
look_at(void)
{
	GgMergeLook look = {
		.meta = meta,
		.delta_rows = delta_rows(),
		.seal_rows = GgDefaultSealRows(meta, false),
		.most = shape.most_nodes
	};

	GgNotePinned(&look, GgParkedBlocks(&relation, meta), true);
	return look;
}

static bool
choose_inner(const GgMergeChoice *outer, GgMergeChoice *choice)
{
	GgMergeLook look = look_at();

	return GgChooseMeanwhile(&look, false, outer, choice);
}

/* ---- what tests call --------------------------------------------------------------------- */

void
begin_index(const Shape *of)
{
	shape = *of;
	begin_directory(shape.dimensions);
	memset(&counts, 0, sizeof(counts));
	meta->element = GG_ELEMENT_F32;
	meta->graph_degree = 32;
	meta->filter_words = shape.filter_words;
	asked = 0;
	hold_snapshot(false);
	seen = calloc(shape.vectors + 1, sizeof(uint32));
	alive = calloc(shape.vectors + 1, sizeof(uint32));
}

void
end_index(void)
{
	while (npieces > 0)
		forget_piece(&pieces[0]);
	free(delta);
	free(seen);
	free(alive);
	delta = NULL;
	delta_room = 0;
}

void
hold_snapshot(bool old)
{
	old_snapshot = old;
	if (!old)
		server.horizon = server.next_xid + 1;
}

void
insert_rows(uint64 rows)
{
	asked = counts.inserted + rows;
	while (counts.inserted < asked)
	{
		GgMergeLook look = look_at();
		GgMergeChoice choice;

		if (GgChooseMerge(&look, GG_MERGE_DUE, &choice))
		{
			run_merge(&choice, false);
			continue;
		}
		counts.segments += meta->nsegments;
		counts.looks++;
		insert_some(Max(shape.slice / 10, 1));
	}
}

void
clear_rows(uint32 one_in)
{
	for (int i = 0; i < meta->nsegments; i++)
		meta->segments[i].dead += (meta->segments[i].rows - meta->segments[i].dead) / one_in;
}
