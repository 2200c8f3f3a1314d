/*
 * tile.c
 *		All-pairs distances by tiles, entered into bounded neighbour lists.
 *
 * A join packs its rows into panels of TILE_COLUMNS transposed rows, so that the inner loop is one
 * broadcast and two multiply-adds of whole vectors.  Each distance is compared with the worst entry
 * of both lists while it is still in a register: after the first few hundred candidates nearly all
 * are rejected there, 16 at a time.  Rows that are too long for the packing memory are packed and
 * summed up piecewise.
 */
#include "tile.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/*
 * Floats of packing memory: 4 MB.  A whole cell of the usual size fits at any usual dimension, so
 * that summing up piecewise (which needs all the sums of a join at once) is left to long rows.
 */
#define PACK_FLOATS		(1024u * 1024u)

/*
 * Rows of BF16_DIM elements or more are rounded to bfloat16, where the processor multiplies these.
 * It takes BF16_STEP elements at a time.
 */
#define BF16_DIM		64u
#define BF16_STEP		32u

/* Slots to look the ids of a join up by: four times as many as ids at most, 8 kB. */
#define KNOWN_BITS		12
#define KNOWN_SLOTS		(1u << KNOWN_BITS)
#define KNOWN_AHEAD		4		/* lists to ask memory for in advance */
#define KNOWN_SLOT(id)	((uint32_t) ((id) * 0x9E3779B1u) >> (32 - KNOWN_BITS))

float
gg_tile_distance(gg_metric metric, const float *a, const float *b, uint32_t dim)
{
	const tile_ops *ops = gg_tile_ops();
	float		d = metric == GG_METRIC_L1 ? ops->pair_l1(a, b, dim) :
		metric == GG_METRIC_IP ? 0.0f - ops->pair_dot(a, b, dim) : ops->pair_l2(a, b, dim);

	return isnan(d) ? INFINITY : d;
}

/* ---- rows ------------------------------------------------------------------ */

typedef struct norms_ctx
{
	gg_rows    *rows;
	float	   *norms;			/* |x|^2 */
} norms_ctx;

static void
norms_run(gg_worker *worker, void *arg, uint64_t i)
{
	norms_ctx  *ctx = arg;
	const gg_dataset *data = ctx->rows->data;
	float		piece[256];
	double		sum = 0;

	(void) worker;
	for (uint32_t k = 0; k < data->dim; k += 256)
	{
		uint32_t	stop = data->dim - k < 256 ? data->dim : k + 256;
		float		part = 0;

		gg_rows_load(ctx->rows, (uint32_t) i, k, stop, piece);
		for (uint32_t l = 0; l < stop - k; l++)
			part += piece[l] * piece[l];
		sum += part;
	}
	ctx->norms[i] = (float) sum;
}

gg_status
gg_rows_prepare(gg_rows *rows, const gg_dataset *data, gg_pool *pool)
{
	norms_ctx	ctx = {rows, NULL};
	gg_status	status;

	rows->data = data;
	rows->dim = data->dim;
	rows->scale = NULL;
	rows->directions = NULL;
	if (data->metric != GG_METRIC_IP &&
		!(data->metric == GG_METRIC_COSINE && data->element == GG_ELEMENT_F16))
		return gg_ok();

	ctx.norms = malloc(sizeof(float) * ((size_t) data->n + 1));
	if (!ctx.norms)
		return gg_fail(GG_ENOMEM, "gg_rows_prepare", "out of memory for %u row norms", data->n);
	status = gg_pool_each(pool, norms_run, &ctx, data->n, 1 + (1u << 18) / data->dim);
	if (status.code != GG_OK)
	{
		free(ctx.norms);
		return status;
	}
	for (uint32_t i = 0; i < data->n; i++)
		ctx.norms[i] = ctx.norms[i] > 0 && isfinite(ctx.norms[i]) ? 1.0f / sqrtf(ctx.norms[i]) :
			0.0f;
	if (data->metric == GG_METRIC_IP)
		rows->directions = ctx.norms;
	else
		rows->scale = ctx.norms;
	return gg_ok();
}

void
gg_rows_free(gg_rows *rows)
{
	free(rows->scale);
	free(rows->directions);
	rows->scale = rows->directions = NULL;
}

void
gg_rows_load(const gg_rows *rows, uint32_t row, uint32_t begin, uint32_t end, float *out)
{
	const gg_dataset *data = rows->data;
	size_t		at = (size_t) row * data->dim + begin;
	uint32_t	count = end - begin;

	if (data->element == GG_ELEMENT_F16)
		gg_halves_to_floats((const uint16_t *) data->rows + at, out, count);
	else
		memcpy(out, (const float *) data->rows + at, sizeof(float) * count);
	if (rows->scale)
	{
		float		scale = rows->scale[row];

		for (uint32_t k = 0; k < count; k++)
			out[k] *= scale;
	}
}

/* ---- lists ------------------------------------------------------------------ */

static void
lists_clear_run(gg_worker *worker, void *arg, uint64_t row)
{
	gg_lists   *lists = arg;
	uint32_t   *ids = lists->ids + row * lists->stride;
	float	   *distances = lists->distances + row * lists->stride;

	(void) worker;
	for (uint32_t i = 0; i < lists->stride; i++)
	{
		ids[i] = GG_NO_NODE;
		distances[i] = i < lists->k ? INFINITY : -INFINITY;
	}
	lists->worst[row] = INFINITY;
}

gg_status
gg_lists_create(gg_lists *lists, uint32_t n, uint32_t k, bool locks,
				uint32_t *ids, float *distances, gg_pool *pool)
{
	gg_status	status;

	memset(lists, 0, sizeof(*lists));
	lists->n = n;
	lists->k = k;
	lists->stride = GG_LIST_STRIDE(k);
	lists->ids = ids ? ids : malloc(sizeof(uint32_t) * n * (size_t) lists->stride);
	lists->distances = distances ? distances : malloc(sizeof(float) * n * (size_t) lists->stride);
	lists->worst = malloc(sizeof(float) * n);
	lists->locks = locks ? calloc(n, 1) : NULL;
	if (lists->ids && lists->distances && lists->worst && (lists->locks || !locks))
		status = gg_pool_each(pool, lists_clear_run, lists, n, 1024);
	else
		status = gg_fail(GG_ENOMEM, "gg_lists_create", "out of memory for %u lists of %u", n, k);
	if (status.code != GG_OK)
		gg_lists_free(lists, ids, distances);
	return status;
}

void
gg_lists_free(gg_lists *lists, const uint32_t *ids, const float *distances)
{
	if (lists->ids != ids)
		free(lists->ids);
	if (lists->distances != distances)
		free(lists->distances);
	free(lists->worst);
	free(lists->locks);
	memset(lists, 0, sizeof(*lists));
}

/* Runs of 8 by insertion, then merged: keys are few and their order is unpredictable. */
void
gg_sort_keys(uint64_t *keys, uint64_t *buffer, uint32_t count)
{
	uint64_t   *from = keys,
			   *to = buffer;

	for (uint32_t b = 0; b < count; b += 8)
	{
		uint32_t	e = count - b < 8 ? count : b + 8;

		for (uint32_t i = b + 1; i < e; i++)
		{
			uint64_t	key = from[i];
			uint32_t	j = i;

			for (; j > b && from[j - 1] > key; j--)
				from[j] = from[j - 1];
			from[j] = key;
		}
	}
	for (uint32_t run = 8; run < count; run *= 2)
	{
		for (uint32_t b = 0; b < count; b += 2 * run)
		{
			uint32_t	i = b,
						i_end = count - b < run ? count : b + run,
						j = i_end,
						j_end = count - i_end < run ? count : i_end + run,
						o = b;

			while (i < i_end && j < j_end)
			{
				uint64_t	x = from[i],
							y = from[j];
				bool		second = y < x;

				to[o++] = second ? y : x;
				j += second;
				i += !second;
			}
			while (i < i_end)
				to[o++] = from[i++];
			while (j < j_end)
				to[o++] = from[j++];
		}
		uint64_t   *swap = from;

		from = to;
		to = swap;
	}
	if (from != keys)
		memcpy(keys, from, sizeof(uint64_t) * count);
}

/* Keys are (distance as an unsigned integer of the same order, entry). */
void
gg_lists_sort(gg_lists *lists, uint32_t row)
{
	uint32_t   *ids = lists->ids + (size_t) row * lists->stride;
	float	   *distances = lists->distances + (size_t) row * lists->stride;
	uint32_t	k = lists->k;
	uint64_t	keys[GG_MAX_DEGREE],
				buffer[GG_MAX_DEGREE];
	bool		sorted = true;

	for (uint32_t i = 0; i < k; i++)
	{
		uint32_t	bits;

		memcpy(&bits, &distances[i], sizeof(bits));
		bits ^= bits >> 31 ? 0xFFFFFFFFu : 0x80000000u;
		/* the mark goes last, and GG_NO_NODE behind every id */
		keys[i] = (uint64_t) bits << 32 | (uint32_t) (ids[i] << 1 | ids[i] >> 31);
		sorted = sorted && (i == 0 || keys[i - 1] <= keys[i]);
	}
	if (sorted)
		return;
	gg_sort_keys(keys, buffer, k);
	for (uint32_t i = 0; i < k; i++)
	{
		uint32_t	bits = (uint32_t) (keys[i] >> 32),
					entry = (uint32_t) keys[i];

		bits ^= bits >> 31 ? 0x80000000u : 0xFFFFFFFFu;
		memcpy(&distances[i], &bits, sizeof(bits));
		ids[i] = entry >> 1 | entry << 31;
	}
}

/* ---- joins ------------------------------------------------------------------ */

/* A row is never cut for want of room for that row alone. */
_Static_assert(PACK_FLOATS / TILE_COLUMNS > GG_MAX_DIM, "packing memory");
_Static_assert(PACK_FLOATS / GG_TILE_ROWS >= GG_ONE_PIECE, "packing memory");

struct gg_tile_memory
{
	float	   *pack;			/* PACK_FLOATS */
	float	   *sums;			/* GG_TILE_ROWS x GG_TILE_ROWS, only for rows that need pieces */
	float	   *rows;			/* 16 x piece: rows that are not float32 as they are */
	uint32_t	piece;			/* elements that one row of rows has room for: all */
	float		bias[GG_TILE_ROWS] __attribute__((aligned(64)));
	float		worst[GG_TILE_ROWS] __attribute__((aligned(64)));
	float		tile[TILE_COLUMNS * TILE_COLUMNS] __attribute__((aligned(64)));

	/* pairs to leave out, see join_mark_known() and join_mark_shared() */
	uint32_t	has[GG_TILE_ROWS][GG_TILE_ROWS / TILE_COLUMNS]; /* j is in the list of i */
	uint32_t	had[GG_TILE_ROWS][GG_TILE_ROWS / TILE_COLUMNS]; /* i is in the list of j */
	uint16_t	position[KNOWN_SLOTS];	/* by slot of an id: its place in the join; 0: none */
};

/*
 * Longest piece of a row that is packed at once: the fewer rows a join has, the longer.  Room is
 * for a multiple of step.
 */
static inline uint32_t
tile_piece(uint32_t panels, uint32_t dim, uint32_t step)
{
	uint32_t	piece = PACK_FLOATS / (panels * TILE_COLUMNS) / step * step;

	return piece < dim ? piece : dim;
}

uint64_t
gg_tile_memory_bytes(uint32_t dim)
{
	bool		pieces = dim > tile_piece(GG_TILE_ROWS / TILE_COLUMNS, dim, 1);

	return sizeof(gg_tile_memory) + sizeof(float) *
		(PACK_FLOATS + 16 * (uint64_t) tile_piece(1, dim, 1) +
		 (pieces ? (uint64_t) GG_TILE_ROWS * GG_TILE_ROWS : 0));
}

gg_status
gg_tile_memory_create(gg_tile_memory **result, uint32_t dim)
{
	gg_tile_memory *memory = aligned_alloc(64, (sizeof(*memory) + 63) / 64 * 64);
	bool		pieces = dim > tile_piece(GG_TILE_ROWS / TILE_COLUMNS, dim, 1);

	*result = NULL;
	if (memory)
	{
		memory->piece = tile_piece(1, dim, 1);
		for (uint32_t i = 0; i < KNOWN_SLOTS; i++)
			memory->position[i] = 0;
		memory->pack = aligned_alloc(64, sizeof(float) * PACK_FLOATS);
		memory->rows = malloc(sizeof(float) * 16 * (size_t) memory->piece);
		memory->sums = pieces ? aligned_alloc(64, sizeof(float) * GG_TILE_ROWS * GG_TILE_ROWS) :
			NULL;
		if (memory->pack && memory->rows && (memory->sums || !pieces))
		{
			*result = memory;
			return gg_ok();
		}
	}
	gg_tile_memory_free(memory);
	return gg_fail(GG_ENOMEM, "gg_tile_memory_create", "out of memory for tiles of dimension %u",
				   dim);
}

void
gg_tile_memory_free(gg_tile_memory *memory)
{
	if (!memory)
		return;
	free(memory->pack);
	free(memory->rows);
	free(memory->sums);
	free(memory);
}

/* Are the join's distances negative products? */
static inline bool
join_by_product(const gg_join *join)
{
	return join->rows->data->metric == GG_METRIC_IP;
}

/*
 * Point at elements begin .. end - 1 of the join's rows i .. i + 15.  Where there are fewer rows,
 * the last one stands for the rest.
 */
static void
join_load(gg_tile_memory *memory, const gg_join *join, uint32_t i, uint32_t begin, uint32_t end,
		  const float *source[16])
{
	const gg_rows *rows = join->rows;
	const gg_dataset *data = rows->data;
	bool		as_is = data->element == GG_ELEMENT_F32 && !rows->scale;

	for (uint32_t r = 0; r < 16; r++)
	{
		uint32_t	row = join->ids[i + r < join->m ? i + r : join->m - 1];
		float	   *copy = memory->rows + (size_t) r * memory->piece;

		source[r] = copy;
		if (as_is)
			source[r] = (const float *) data->rows + (size_t) row * data->dim + begin;
		else
			gg_rows_load(rows, row, begin, end, copy);
	}
}

/* Pack elements begin .. end - 1 of the join's rows into panels. */
static void
join_pack(gg_tile_memory *memory, const gg_join *join, const tile_ops *ops,
		  uint32_t begin, uint32_t end, bool norms)
{
	const float *centre = join_by_product(join) ? NULL : join->centre;
	uint32_t	depth = end - begin;

	for (uint32_t i = 0; i < join->m; i += TILE_COLUMNS)
	{
		float	   *panel = memory->pack + (size_t) i * depth;

		/* columns that no row is left for stay as they are, and are masked out */
		for (uint32_t half = 0; half < TILE_COLUMNS && i + half < join->m; half += 16)
		{
			const float *source[16];

			join_load(memory, join, i + half, begin, end, source);
			ops->transpose(source, centre ? centre + begin : NULL, depth, panel + half);
		}
		if (norms)
			ops->panel_norms(panel, depth, memory->bias + i);
	}
}

/* Round the rows, and pack them twice: row by row, each of so many pairs, then as panels. */
static void
join_pack_bf16(gg_tile_memory *memory, const gg_join *join, const bf16_ops *bf16, uint32_t begin,
			   uint32_t end, uint32_t pairs, float *panels)
{
	for (uint32_t i = 0; i < join->m; i += 16)
	{
		const float *source[16];

		join_load(memory, join, i, begin, end, source);
		for (uint32_t r = 0; r < 16; r++)
		{
			float	   *pair = memory->pack + (size_t) (i + r) * pairs;

			bf16->round(source[r], join->centre ? join->centre + begin : NULL, end - begin, pairs,
						(uint32_t *) pair, memory->bias + i + r);
			source[r] = pair;
		}
		gg_tile_ops()->transpose(source, NULL, pairs, panels + i % TILE_COLUMNS +
								 (size_t) (i / TILE_COLUMNS * TILE_COLUMNS) * pairs);
	}
}

static inline void
list_lock(unsigned char *lock)
{
	int			spins = 0;

	while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE))
		if (++spins % 256 == 0)
			sched_yield();		/* its holder may wait for this processor */
}

static inline void
list_unlock(unsigned char *lock)
{
	__atomic_store_n(lock, 0, __ATOMIC_RELEASE);
}

static inline float
list_worst(const gg_lists *lists, uint32_t row)
{
	float		worst;

	__atomic_load(&lists->worst[row], &worst, __ATOMIC_RELAXED);
	return worst;
}

/* A join under way. */
typedef struct join_run
{
	const gg_join *join;
	gg_tile_memory *memory;
	const tile_ops *ops;
	float		factor;			/* this and least: for tile_ops.screen */
	float		least;
	uint64_t	entered;
} join_run;

/* Offer the distances picked by hits to one list; returns its worst afterwards. */
static inline float
list_offer(join_run *run, uint32_t row, uint32_t hits, const float *distances,
		   const uint32_t *labels)
{
	const gg_lists *lists = run->join->lists;
	const tile_ops *ops = run->ops;
	uint32_t   *list_ids = lists->ids + (size_t) row * lists->stride;
	float	   *list_distances = lists->distances + (size_t) row * lists->stride;
	float		worst;

	if (lists->locks)
		list_lock(&lists->locks[row]);
	worst = list_worst(lists, row);
	do
	{
		uint32_t	c = (uint32_t) __builtin_ctz(hits);

		if (run->join->ordered)
		{
			if (distances[c] <= worst && distances[c] < INFINITY)
				worst = ops->enter_ordered(list_ids, list_distances, lists->stride, worst,
										   distances[c], labels[c], &run->entered);
		}
		else if (distances[c] < worst)
			worst = ops->enter(list_ids, list_distances, lists->stride, worst, distances[c],
							   labels[c], &run->entered);
		hits &= hits - 1;
	} while (hits);
	__atomic_store(&lists->worst[row], &worst, __ATOMIC_RELAXED);
	if (lists->locks)
		list_unlock(&lists->locks[row]);
	return worst;
}

/*
 * Note which rows of the join are in each other's lists.  Near rows meet again and again in other
 * cells: of 370 pairs per row that are near enough 140 are entered already (200,000 x 128), and to
 * find that out pair by pair costs more than to go through the lists once.
 *
 * Two ids with the same slot only lose a mark, and another thread may enter a pair meanwhile: lists
 * are still searched before anything is entered.
 */
static void
join_mark_known(gg_tile_memory *memory, const gg_join *join)
{
	const gg_lists *lists = join->lists;
	uint32_t	words = (join->m + TILE_COLUMNS - 1) / TILE_COLUMNS;

	for (uint32_t i = 0; i < join->m; i++)
		memory->position[KNOWN_SLOT(join->ids[i])] = (uint16_t) i;
	for (uint32_t i = 0; i < join->left; i++)
	{
		memset(memory->has[i], 0, sizeof(uint32_t) * words);
		memset(memory->had[i], 0, sizeof(uint32_t) * words);
	}
	for (uint32_t i = 0; i < join->m; i++)
	{
		const uint32_t *ids = lists->ids + (size_t) join->ids[i] * lists->stride;
		uint16_t	found[GG_MAX_DEGREE];
		uint32_t	nfound = 0;

		if (i + KNOWN_AHEAD < join->m)
			for (uint32_t e = 0; e < lists->k; e += 16)
			{
				size_t		at = (size_t) join->ids[i + KNOWN_AHEAD] * lists->stride + e;

				/* the distances are wanted soon, too */
				__builtin_prefetch(lists->ids + at, 1);
				__builtin_prefetch(lists->distances + at, 1);
			}
		/* about a third are found, unpredictably: no branch on it */
		for (uint32_t e = 0; e < lists->k; e++)
		{
			uint32_t	id = GG_ENTRY_ID(__atomic_load_n(&ids[e], __ATOMIC_RELAXED));
			uint16_t	at = memory->position[KNOWN_SLOT(id)];

			found[nfound] = at;
			nfound += (uint32_t) (join->ids[at] == id);
		}
		for (uint32_t f = 0; f < nfound; f++)
		{
			uint32_t	j = found[f];

			if (i < join->left)
				memory->has[i][j / TILE_COLUMNS] |= 1u << j % TILE_COLUMNS;
			if (j < join->left)
				memory->had[j][i / TILE_COLUMNS] |= 1u << i % TILE_COLUMNS;
		}
	}
	for (uint32_t i = 0; i < join->m; i++)
		memory->position[KNOWN_SLOT(join->ids[i])] = 0;
}

/* Note which rows of the join have a bit in common. */
static void
join_mark_shared(gg_tile_memory *memory, const gg_join *join)
{
	for (uint32_t i = 0; i < join->left; i++)
		for (uint32_t j = 0; j < join->m; j += TILE_COLUMNS)
		{
			uint32_t	count = join->m - j < TILE_COLUMNS ? join->m - j : TILE_COLUMNS;
			uint32_t	bits = 0;

			for (uint32_t c = 0; c < count; c++)
				bits |= (uint32_t) ((join->shared[i] & join->shared[j + c]) != 0) << c;
			memory->has[i][j / TILE_COLUMNS] = memory->had[i][j / TILE_COLUMNS] = bits;
		}
}

/* Columns j .. j + 31 that row i is to be compared with. */
static inline uint32_t
join_columns(const gg_join *join, uint32_t i, uint32_t j)
{
	uint32_t	from = i + 1 > join->right ? i + 1 : join->right;
	uint32_t	mask = 0xFFFFFFFFu;

	if (from >= j + 32 || j >= join->m)
		return 0;
	if (from > j)
		mask &= 0xFFFFFFFFu << (from - j);
	if (join->m - j < 32)
		mask &= (1u << (join->m - j)) - 1;
	return mask;
}

/*
 * Where two rows are much nearer to each other than to the centre, most of the digits of
 * |a|^2 + |b|^2 - 2ab are gone: some entries would be too near, and never give way to better ones.
 * Below this share of |a|^2 + |b|^2 (an error of about 10^-4) a pair is measured term by term.
 */
#define CANCELLED		(1.0f / 256)

static void
join_measure_again(gg_tile_memory *memory, const gg_join *join, uint32_t r, uint32_t j,
				   uint32_t hits, float *sums)
{
	bool		loaded = false;
	float	   *own = memory->rows,
			   *other = memory->rows + memory->piece;

	for (; hits; hits &= hits - 1)
	{
		uint32_t	c = (uint32_t) __builtin_ctz(hits);

		if (!(sums[c] < CANCELLED * (memory->bias[r] + memory->bias[j + c])))
			continue;
		if (!loaded)
			gg_rows_load(join->rows, join->ids[r], 0, join->rows->dim, own);
		loaded = true;
		gg_rows_load(join->rows, join->ids[j + c], 0, join->rows->dim, other);
		sums[c] = gg_tile_distance(GG_METRIC_L2, own, other, join->rows->dim);
	}
}

/* The distance below which pairs pass the screen.  It does not decide ties of ordered lists. */
static inline float
bound(const gg_join *join, float worst)
{
	return join->ordered ? nextafterf(worst, INFINITY) : worst;
}

/* Enter what is near enough among the rows i .. i + 7 against the columns j .. j + 31. */
static void
join_select(join_run *run, uint32_t i, uint32_t j, float *sums, uint32_t ld)
{
	const gg_join *join = run->join;
	gg_tile_memory *memory = run->memory;
	const uint32_t *labels = join->labels ? join->labels : join->ids;

	for (uint32_t r = i; r < i + TILE_HEIGHT && r < join->left; r++, sums += ld)
	{
		uint32_t	columns = join_columns(join, r, j);
		tile_hits	hits;

		if (!columns)
			continue;
		hits = run->ops->screen(sums, memory->bias[r], memory->bias + j, run->factor, run->least,
								memory->worst[r], memory->worst + j);
		hits.row &= columns;
		hits.columns &= columns;
		if (join->known || join->shared)
		{
			hits.row &= ~memory->has[r][j / TILE_COLUMNS];
			hits.columns &= ~memory->had[r][j / TILE_COLUMNS];
		}
		if (run->factor < -1 && join->mutual && (hits.row | hits.columns))
			join_measure_again(memory, join, r, j, hits.row | hits.columns, sums);
		if (hits.row)
			memory->worst[r] = bound(join, list_offer(run, join->ids[r], hits.row, sums,
													  labels + j));
		while (hits.columns)
		{
			uint32_t	c = (uint32_t) __builtin_ctz(hits.columns);

			/* hit number 0 of the arrays from column c on: row r's label is meant */
			memory->worst[j + c] = bound(join, list_offer(run, join->ids[j + c], 1, sums + c,
														  labels + r));
			hits.columns &= hits.columns - 1;
		}
	}
}

uint64_t
gg_tile_join(gg_tile_memory *memory, const gg_join *join, gg_worker *worker)
{
	const tile_ops *ops = gg_tile_ops();
	uint32_t	dim = join->rows->dim;
	bool		l1 = join->rows->data->metric == GG_METRIC_L1,
				product = join_by_product(join),
				dot = !l1 && !product && !join->exact;
	const bf16_ops *bf16 = dot && !join->ordered && dim >= BF16_DIM ? gg_bf16_ops() : NULL;
	tile_fn		tile = dot || product ? ops->dot : l1 ? ops->l1 : ops->l2;
	uint32_t	height = bf16 ? bf16->height : TILE_HEIGHT;
	join_run	run = {.join = join, .memory = memory, .ops = ops,
					   .factor = product ? -1.0f : dot ? -2.0f : 1.0f,
					   .least = product ? -INFINITY : 0.0f};
	uint32_t	panels = (join->m + TILE_COLUMNS - 1) / TILE_COLUMNS;
	uint32_t	piece;

	if (join->m < 2 || join->left == 0)
		return 0;
	piece = tile_piece(panels, dim, bf16 ? BF16_STEP : 1);
	for (uint32_t i = 0; i < panels * TILE_COLUMNS; i++)
	{
		memory->bias[i] = 0;
		memory->worst[i] = i < join->m && (join->mutual || i < join->left) ?
			bound(join, list_worst(join->lists, join->ids[i])) : -INFINITY;
	}

	if (join->shared)
		join_mark_shared(memory, join);
	else if (join->known)
		join_mark_known(memory, join);

	for (uint32_t begin = 0; begin < dim; begin += piece)
	{
		uint32_t	end = dim - begin < piece ? dim : begin + piece;
		bool		first = begin == 0,
					last = end == dim,
					whole = first && last;
		uint32_t	depth = end - begin;
		uint32_t	pairs = (depth + BF16_STEP - 1) / BF16_STEP * (BF16_STEP / 2);
		float	   *bf16_panels = memory->pack + (size_t) panels * TILE_COLUMNS * pairs;

		if (bf16)
			join_pack_bf16(memory, join, bf16, begin, end, pairs, bf16_panels);
		else
			join_pack(memory, join, ops, begin, end, dot);
		for (uint32_t p = 0; p * TILE_COLUMNS < join->left; p++)
		{
			uint32_t	from = join->right / TILE_COLUMNS;

			if (gg_worker_stopping(worker))
				return run.entered;
			for (uint32_t q = p > from ? p : from; q < panels; q++)
				for (uint32_t i = p * TILE_COLUMNS; i < (p + 1) * TILE_COLUMNS && i < join->left;
					 i += height)
				{
					uint32_t	j = q * TILE_COLUMNS;
					float	   *sums = whole ? memory->tile :
						memory->sums + (size_t) i * GG_TILE_ROWS + j;
					uint32_t	ld = whole ? TILE_COLUMNS : GG_TILE_ROWS;

					if (bf16)
						bf16->dot((const uint32_t *) memory->pack + (size_t) i * pairs,
								  (const uint32_t *) bf16_panels + (size_t) j * pairs, pairs,
								  first, sums, ld);
					else
						tile(memory->pack + (size_t) p * TILE_COLUMNS * depth +
							 (i - p * TILE_COLUMNS), memory->pack + (size_t) j * depth, depth,
							 first, sums, ld);
					for (uint32_t r = 0; last && r < height && i + r < join->left;
						 r += TILE_HEIGHT)
						join_select(&run, i + r, j, sums + (size_t) r * ld, ld);
				}
		}
	}
	return run.entered;
}
