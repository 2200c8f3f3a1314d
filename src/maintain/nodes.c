/*
 * nodes.c
 *		Which nodes and rows a merged segment has.
 *
 * Pieces keep their vectors and codes where they are, unless many of their nodes have no rows any
 * more, their codes are not those that the option asks for, or they would be too many (crowded.c).
 * What does not stay, and the delta's rows, goes into one new piece.
 *
 * New codes are centred by the index's mean.  Where the index has none, and no codes yet, it is
 * taken of the merged rows, and put into the directory at once: a merge that is done within this
 * one's call of an engine uses it, too.
 *
 * Equal vectors share a node (node_table.h).  A node of a piece that stays cannot go: if another
 * node had its vector first, its rows go there, and it is left without rows.  Such nodes fill their
 * neighbours' lists, and a walk has less to go along.  Where rows are updated and their vectors are
 * not, a seal is of vectors that are there already.  So a piece with many such nodes does not stay.
 */
#include "maintain/merge_state.h"

#include "access/generic_xlog.h"

/* A piece is written anew where more than one in EMPTY_SHARE of its nodes would have no rows. */
#define EMPTY_SHARE			5

/* Nodes between two looks for interrupts; with STEP_BYTES also the size of one read. */
#define STEP_ROWS			4096
#define STEP_BYTES			((Size) 4 * 1024 * 1024)

/* ---- pieces ------------------------------------------------------------------------------ */

static bool
NodeIsAlive(const GgMerge *merge, const GgMergeInput *input, uint32 node)
{
	if (input->offsets == NULL)
		return GgRowIsAlive(merge, input->first_row + node);
	for (uint32 row = input->offsets[node]; row < input->offsets[node + 1]; row++)
		if (GgRowIsAlive(merge, input->first_row + row))
			return true;
	return false;
}

/* Choose the pieces that stay. */
static void
ChooseKept(GgMerge *merge)
{
	GgPieceSize sizes[GG_MAX_PIECES];
	int			others = merge->meta->npieces;
	int			n = 0;

	for (int i = 0; i < merge->plan->ninputs; i++)
	{
		const GgMergeInput *input = &merge->plan->inputs[i];

		for (uint32 p = 0; !input->delta && p < input->vectors.npieces; p++)
		{
			const GgVectorPiece *piece = &input->vectors.pieces[p];
			uint32		dead = 0;

			others--;
			for (uint32 node = piece->first; node < piece->first + piece->nodes; node++)
				dead += !NodeIsAlive(merge, input, node);
			if (dead <= piece->nodes / EMPTY_SHARE && piece->codes == merge->codes)
				sizes[n++] = (GgPieceSize) {piece->array.segment, piece->nodes,
				piece->array.nextents + piece->code_array.nextents};
		}
	}
	merge->nkept = GgChoosePieces(merge->meta, merge->pinned, sizes, n, others);
	for (int i = 0; i < merge->nkept; i++)
		merge->kept[i] = sizes[i].id;
}

/* ---- nodes ------------------------------------------------------------------------------- */

/* Take back the piece that was added last: it does not stay. */
static void
TakeBackPiece(GgMerge *merge, const GgMergeInput *input, const GgVectorPiece *piece)
{
	const uint32 id = piece->array.segment;
	int			n = 0;

	for (uint32 i = piece->nodes; i-- > 0;)
	{
		merge->nodes--;
		if (input->targets[piece->first + i] == merge->nodes)
			GgForgetNode(&merge->table, merge->nodes);
	}
	for (int i = 0; i < merge->nkept; i++)
		if (merge->kept[i] != id)
			merge->kept[n++] = merge->kept[i];
	merge->nkept = n;
}

/*
 * Add the nodes of a piece that stays, and read their vectors to their place in the data set.  It
 * does not stay if too many would have no rows: others have their vectors, or they are dead.
 */
static void
AddKeptPiece(GgMerge *merge, GgMergeInput *input, const GgVectorPiece *piece)
{
	Size		row_bytes = GgRowBytes(merge->meta);
	Size		code_bytes = GgCodeBytes(merge->meta, merge->meta->coded);
	uint32		without = 0;

	GgReadVectors(merge->target, merge->meta, input, piece->first, piece->nodes,
				  merge->rows + (Size) merge->nodes * row_bytes);
	if (merge->records != NULL)
		GgReadCodes(merge->target, merge->meta, input, piece->first, piece->nodes,
					merge->records + (Size) merge->nodes * code_bytes);
	for (uint32 i = 0; i < piece->nodes; i++)
	{
		if (i % STEP_ROWS == 0)
			GgCheckInterrupts();
		input->targets[piece->first + i] = GgFindNode(&merge->table, merge->nodes);
		input->places[piece->first + i] = merge->nodes;
		without += input->targets[piece->first + i] != merge->nodes ||
			!NodeIsAlive(merge, input, piece->first + i);
		merge->nodes++;
	}
	if (without > piece->nodes / EMPTY_SHARE)
		TakeBackPiece(merge, input, piece);
	merge->kept_nodes = merge->nodes;
	GgTellPhase(merge, GG_MERGE_READ, merge->nodes);
}

/*
 * Add those of an input's nodes [first, end) that have rows to the new piece, unless their vector
 * is there already.  The delta has no codes.
 */
static void
AddNewNodes(GgMerge *merge, GgMergeInput *input, uint32 first, uint32 end)
{
	Size		row_bytes = GgRowBytes(merge->meta);
	uint32		step = Max(1, Min(STEP_ROWS, STEP_BYTES / row_bytes));
	Size		code_bytes = GgCodeBytes(merge->meta, merge->meta->coded);
	char	   *codes = NULL;
	char	   *vectors;

	if (input->delta)
		step = Max(1, step / GgDeltaRowsPerPage(merge->meta)) *
			GgDeltaRowsPerPage(merge->meta);
	vectors = MemoryContextAllocHuge(CurrentMemoryContext, step * row_bytes);
	if (code_bytes > 0 && !input->delta)
		codes = palloc(step * code_bytes);
	for (uint32 base = first; base < end; base += step)
	{
		uint32		count = Min(step, end - base);

		GgReadVectors(merge->target, merge->meta, input, base, count, vectors);
		if (codes != NULL)
			GgReadCodes(merge->target, merge->meta, input, base, count, codes);
		for (uint32 i = 0; i < count; i++)
		{
			uint32		node;

			input->targets[base + i] = input->places[base + i] = GG_NO_NODE;
			if (!NodeIsAlive(merge, input, base + i))
				continue;
			memcpy(merge->rows + (Size) merge->nodes * row_bytes, vectors + i * row_bytes,
				   row_bytes);
			node = GgFindNode(&merge->table, merge->nodes);
			input->targets[base + i] = node;
			if (node != merge->nodes)
				continue;
			if (codes != NULL)
				memcpy(merge->records + (Size) node * code_bytes, codes + i * code_bytes,
					   code_bytes);
			input->places[base + i] = merge->nodes++;
		}
		GgTellPhase(merge, GG_MERGE_READ, merge->nodes);
	}
	pfree(vectors);
	if (codes != NULL)
		pfree(codes);
}

/* ---- codes ------------------------------------------------------------------------------- */

static bool
HasCodedPieces(const GgMetaPageData *meta)
{
	for (int i = 0; i < meta->npieces; i++)
		if (meta->pieces[i].codes != GG_CODES_NONE)
			return true;
	return false;
}

/* Put a mean into the index, in one change of its directory. */
static void
WriteMean(Relation index, Relation heap, GgMetaPageData *meta, Buffer metabuf, const float *mean)
{
	const Size	bytes = GgMeanBytes(meta);
	const uint64 pages = GgArrayPages(bytes);

	for (uint64 i = 0; i < pages; i++)
	{
		BlockNumber blkno;
		Buffer		buffer = GgAllocateBlock(index, heap, meta, GG_KIND_MEAN, &blkno);
		GenericXLogState *xlog = GenericXLogStart(index);

		GgFormArrayPage(GenericXLogRegisterBuffer(xlog, buffer, GENERIC_XLOG_FULL_IMAGE),
						meta->instance, GG_NO_SEGMENT, GG_KIND_MEAN, i,
						(const char *) mean + i * GG_PAGE_PAYLOAD, GgPageBytes(i, bytes));
		GenericXLogFinish(xlog);
		UnlockReleaseBuffer(buffer);
		GgAddExtent(meta, blkno, 1, GG_NO_SEGMENT, GG_KIND_MEAN);
	}
	GgStoreMeta(index, heap, metabuf, meta);
}

/* The mean that centres new codes: the index's or, if it has no codes yet, the rows'; or NULL. */
static const float *
FindMean(GgMerge *merge)
{
	const GgMergeTarget *target = merge->target;
	const gg_dataset data = {
		.rows = merge->rows, .n = merge->nodes, .dim = merge->meta->dimensions,
		.element = merge->meta->element, .metric = merge->meta->metric
	};
	GgMetaPageData *meta;
	const float *mean;

	if (merge->codes == GG_CODES_NONE)
		return NULL;
	GgBeginSlice(merge->target);
	meta = GgReadDirectory(target->index);
	mean = GgReadMean(target->index, meta);
	/* a merge around this one may be making codes without a mean */
	if (mean == NULL && !HasCodedPieces(meta) && !target->within)
		mean = GgTakeMean(&data);
	if (mean != NULL && !GgHasMean(meta))
	{
		Buffer		metabuf = GgLockDirectory(target->index, meta);

		WriteMean(target->index, target->heap, meta, metabuf, mean);
	}
	GgEndSlice(merge->target);
	pfree(meta);
	return mean;
}

/* Where the index has codes alone, make those of nodes [first, end), which come from the delta. */
static void
CodeNodes(GgMerge *merge, uint32 first, uint32 end)
{
	const Size	row_bytes = GgRowBytes(merge->meta);
	const Size	code_bytes = GgCodeBytes(merge->meta, merge->meta->coded);
	GgCoder    *coder = GgMakeCoder(merge->meta, merge->meta->coded, merge->mean);

	for (uint32 node = first; node < end; node++)
	{
		if (node % STEP_ROWS == 0)
			GgCheckInterrupts();
		GgCodeRow(coder, merge->rows + node * row_bytes);
		memcpy(merge->records + node * code_bytes, coder->record, code_bytes);
	}
}

/* ---- all nodes --------------------------------------------------------------------------- */

/* Nodes that the merged segment can have at most. */
static uint64
CountNodes(const GgMerge *merge)
{
	uint64		n = 0;

	for (int i = 0; i < merge->plan->ninputs; i++)
		n += merge->plan->inputs[i].nodes;
	return n;
}

/*
 * There is room for a row more than nodes: a duplicate is found out when its row is written.  Where
 * a device's worker may be asked for the graph, the rows lie in memory that it can map.
 */
static void
AllocateRows(GgMerge *merge, uint32 most)
{
	const GgMetaPageData *meta = merge->meta;

	if (most >= GG_LEAST_DEVICE_NODES && gg_engine_setting != GG_ENGINE_CPU &&
		GgServiceIsUp(true) && most <= GgNodesInMemory(meta, &merge->params, 0))
		merge->shared = GgShareRows(most, GgRowBytes(meta), meta->graph_degree);
	merge->rows = merge->shared != NULL ? merge->shared->rows :
		GgTakeRows(&merge->files, meta, &merge->params, most + 1, merge->target->sliced);
}

/* An empty table for so many nodes. */
static void
OpenNodeTable(GgMerge *merge, uint64 most)
{
	GgNodeTable *table = &merge->table;
	Size		key_bytes;
	uint64		nslots = 1024;

	while (nslots < 2 * most)
		nslots *= 2;
	table->rows = merge->rows;
	table->row_bytes = GgRowBytes(merge->meta);
	table->mask = nslots - 1;
	table->slots = MemoryContextAllocExtended(CurrentMemoryContext, nslots * sizeof(uint64),
											  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	key_bytes = GgNodeKeyWords(table->row_bytes) * sizeof(uint64);
	table->key = palloc(key_bytes);
	if (!pg_strong_random(table->key, key_bytes))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
}

static void
CollectNodes(GgMerge *merge)
{
	uint64		most = CountNodes(merge);
	uint32		of_delta = 0;
	uint32		end_of_delta = 0;

	if (most > GG_MAX_NODES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a gpugraph segment would have more than %u nodes", GG_MAX_NODES)));
	AllocateRows(merge, (uint32) most);
	OpenNodeTable(merge, most);
	if (merge->meta->coded != GG_CODES_NONE)
		merge->records = MemoryContextAllocHuge(CurrentMemoryContext, most *
												GgCodeBytes(merge->meta, merge->meta->coded));

	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < merge->plan->ninputs; i++)
		{
			GgMergeInput *input = &merge->plan->inputs[i];

			if (pass == 0)
			{
				input->targets = MemoryContextAllocHuge(CurrentMemoryContext,
														(Size) input->nodes * sizeof(uint32));
				input->places = MemoryContextAllocHuge(CurrentMemoryContext,
													   (Size) input->nodes * sizeof(uint32));
			}
			for (uint32 p = 0; p < input->vectors.npieces; p++)
			{
				const GgVectorPiece *piece = &input->vectors.pieces[p];
				bool		kept = GgKeepsPiece(merge, piece->array.segment);

				if (kept && pass == 0)
					AddKeptPiece(merge, input, piece);
				else if (!kept && pass == 1)
					AddNewNodes(merge, input, piece->first, piece->first + piece->nodes);
			}
			if (input->delta && pass == 1)
			{
				of_delta = merge->nodes;
				AddNewNodes(merge, input, 0, input->nodes);
				end_of_delta = merge->nodes;
			}
		}
	merge->mean = FindMean(merge);
	if (merge->records != NULL)
		CodeNodes(merge, of_delta, end_of_delta);
	pfree(merge->table.slots);
	pfree(merge->table.key);
}

/* ---- rows -------------------------------------------------------------------------------- */

/* Run body for each row that has a TID, with its node in the merged segment. */
#define FOREACH_ROW(merge, row, node, body) \
	for (int i_ = 0; i_ < (merge)->plan->ninputs; i_++) \
	{ \
		const GgMergeInput *input_ = &(merge)->plan->inputs[i_]; \
		for (uint32 old_ = 0; old_ < input_->nodes; old_++) \
		{ \
			uint32		begin_ = input_->offsets == NULL ? old_ : input_->offsets[old_]; \
			uint32		end_ = input_->offsets == NULL ? old_ + 1 : input_->offsets[old_ + 1]; \
			uint32		node = input_->targets[old_]; \
			for (uint32 row = input_->first_row + begin_; row < input_->first_row + end_; row++) \
				if (GgRowIsAlive(merge, row)) \
					body \
		} \
	}

/* Sort rows by node: offsets and sources. */
static void
SortRows(GgMerge *merge)
{
	uint32	   *offsets = MemoryContextAllocExtended(CurrentMemoryContext,
													 ((Size) merge->nodes + 2) * sizeof(uint32),
													 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	/* offsets[node + 2] counts; then offsets[node + 1] is where the node's next row goes */
	FOREACH_ROW(merge, row, node, offsets[node + 2]++;)
	for (uint32 node = 0; node < merge->nodes; node++)
	{
		merge->empty += offsets[node + 2] == 0;
		offsets[node + 2] += offsets[node + 1];
	}
	merge->nrows = offsets[merge->nodes + 1];
	merge->sources = MemoryContextAllocHuge(CurrentMemoryContext,
											Max(merge->nrows, 1) * sizeof(uint32));
	FOREACH_ROW(merge, row, node, merge->sources[offsets[node + 1]++] = row;)
	merge->offsets = offsets;
}

void
GgReadAllTids(GgMerge *merge)
{
	for (int i = 0; i < merge->plan->ninputs; i++)
		GgReadTids(merge->target, merge->meta, &merge->plan->inputs[i], merge->tids);
}

void
GgNumberNodes(GgMerge *merge)
{
	ChooseKept(merge);
	CollectNodes(merge);
	SortRows(merge);
	/* no row is left: all nodes are of pieces that stay */
	if (merge->nrows == 0)
		merge->nodes = merge->nkept = 0;
}
