/*
 * tile.c
 *		All-pairs distances by tiles, entered into bounded neighbour lists.
 *
 * A join packs its rows into panels of TILE_COLUMNS transposed rows, so that the inner loop is one
 * broadcast and two multiply-adds of whole vectors, and compares each distance with the worst entry
 * of both lists while it is still in a register: after the first few hundred candidates nearly
 * all are turned away there, 16 at a time.  Rows that are too long for the packing memory are packed
 * and summed up piecewise.
 *
 * Instruction sets: AVX-512, AVX2 with FMA, NEON, and plain C vectors, chosen at run time.
 */
#include "tile.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define TILE_COLUMNS	32u		/* rows of one panel */
#define TILE_HEIGHT		8u		/* rows of a panel in one tile */

/*
 * Floats of packing memory: 4 MB.  A whole cell of the usual size fits at any usual dimension, so
 * that summing up piecewise (which needs all the sums of a join at once) is left to long rows.
 */
#define PACK_FLOATS		(1024u * 1024u)

/* Slots to look the ids of a join up by: four times as many as ids at most, 8 kB. */
#define KNOWN_BITS		12
#define KNOWN_SLOTS		(1u << KNOWN_BITS)
#define KNOWN_AHEAD		4		/* lists to ask memory for in advance */
#define KNOWN_SLOT(id)	((uint32_t) ((id) * 0x9E3779B1u) >> (32 - KNOWN_BITS))

/* ---- one instruction set -------------------------------------------------- */

typedef void (*tile_fn) (const float *left, const float *right, uint32_t depth, bool first, float *sums, uint32_t ld);

typedef struct tile_ops
{
	const char *name;
	tile_fn		dot;
	tile_fn		l2;
	tile_fn		l1;
	void		(*panel_norms) (const float *panel, uint32_t depth, float *bias);
	float		(*pair_l2) (const float *a, const float *b, uint32_t dim);
	float		(*pair_l1) (const float *a, const float *b, uint32_t dim);

	/* 16 columns of a panel from 16 rows, less centre (if any) */
	void		(*transpose) (const float *const rows[16], const float *centre, uint32_t depth, float *panel);

	/*
	 * One row of a tile: sums to distances max(0, bias + biases[c] + factor * sum), and which of them
	 * are below worst or below worsts[c].
	 */
	void		(*screen) (float *sums, float bias, const float *biases, float factor,
						   float worst, const float *worsts, uint32_t *row_hits, uint32_t *column_hits);

	/* Replace the worst entry (which is worse) unless id is there already; returns the new worst. */
	float		(*enter) (uint32_t *ids, float *distances, uint32_t stride, float worst,
						  float distance, uint32_t id, uint64_t *entered);
} tile_ops;

/* The parts that no instruction set is needed for; inlined into the functions of each. */

static inline __attribute__((always_inline)) void
any_transpose(const float *const rows[16], const float *centre, uint32_t begin, uint32_t end, float *panel)
{
	for (uint32_t k = begin; k < end; k++)
	{
		float		c = centre ? centre[k] : 0.0f;

		for (int r = 0; r < 16; r++)
			panel[(size_t) k * TILE_COLUMNS + r] = rows[r][k] - c;
	}
}

static inline __attribute__((always_inline)) void
any_screen(float *sums, float bias, const float *biases, float factor,
		   float worst, const float *worsts, uint32_t *row_hits, uint32_t *column_hits)
{
	uint32_t	row = 0,
				column = 0;

	for (uint32_t c = 0; c < TILE_COLUMNS; c++)
	{
		float		d = bias + biases[c] + factor * sums[c];

		d = d < 0.0f ? 0.0f : d;	/* NaN stays, and is below nothing */
		sums[c] = d;
		row |= (uint32_t) (d < worst) << c;
		column |= (uint32_t) (d < worsts[c]) << c;
	}
	*row_hits = row;
	*column_hits = column;
}

static inline __attribute__((always_inline)) float
any_enter(uint32_t *ids, float *distances, uint32_t stride, float worst,
		  float distance, uint32_t id, uint64_t *entered)
{
	uint32_t	found = 0,
				at = 0;
	float		max = -INFINITY;

	for (uint32_t i = 0; i < stride; i++)
		found |= (uint32_t) (GG_ENTRY_ID(ids[i]) == id);
	if (found)
		return worst;
	while (distances[at] != worst)
		at++;
	ids[at] = id | GG_ENTRY_NEW;
	distances[at] = distance;
	for (uint32_t i = 0; i < stride; i++)
		max = distances[i] > max ? distances[i] : max;
	++*entered;
	return max;
}

#define ANY_OPS(set) \
	SET_TARGET static void \
	transpose_##set(const float *const rows[16], const float *centre, uint32_t depth, float *panel) \
	{ \
		any_transpose(rows, centre, 0, depth, panel); \
	} \
	SET_TARGET static void \
	screen_##set(float *sums, float bias, const float *biases, float factor, \
				 float worst, const float *worsts, uint32_t *row_hits, uint32_t *column_hits) \
	{ \
		any_screen(sums, bias, biases, factor, worst, worsts, row_hits, column_hits); \
	} \
	SET_TARGET static float \
	enter_##set(uint32_t *ids, float *distances, uint32_t stride, float worst, \
				float distance, uint32_t id, uint64_t *entered) \
	{ \
		return any_enter(ids, distances, stride, worst, distance, id, entered); \
	}

#define OPS_TABLE(set) \
	static const tile_ops ops_##set = { \
		.name = #set, \
		.dot = tile_dot_##set, \
		.l2 = tile_l2_##set, \
		.l1 = tile_l1_##set, \
		.panel_norms = panel_norms_##set, \
		.pair_l2 = pair_l2_##set, \
		.pair_l1 = pair_l1_##set, \
		.transpose = transpose_##set, \
		.screen = screen_##set, \
		.enter = enter_##set \
	};

#define SIMD_LANES	4
#define SIMD_TARGET
#define SET_TARGET
#if defined(__aarch64__)
#define SIMD_NAME(x) x##_neon
#include "tile_simd.h"
ANY_OPS(neon)
OPS_TABLE(neon)
#else
#define SIMD_NAME(x) x##_plain
#include "tile_simd.h"
ANY_OPS(plain)
OPS_TABLE(plain)
#endif
#undef SET_TARGET
#undef SIMD_TARGET
#undef SIMD_LANES
#undef SIMD_NAME

#if defined(__x86_64__)

#define SIMD_NAME(x) x##_avx2
#define SIMD_TARGET	__attribute__((target("avx2,fma")))
#define SIMD_LANES	8
#include "tile_simd.h"

SIMD_TARGET static void
transpose_avx2(const float *const rows[16], const float *centre, uint32_t depth, float *panel)
{
	uint32_t	k = 0;

	for (; k + 8 <= depth; k += 8)
	{
		__m256		middle = centre ? _mm256_loadu_ps(centre + k) : _mm256_setzero_ps();

		for (int half = 0; half < 16; half += 8)
		{
			const float *const *r = rows + half;
			float	   *out = panel + (size_t) k * TILE_COLUMNS + half;
			__m256		a0 = _mm256_sub_ps(_mm256_loadu_ps(r[0] + k), middle);
			__m256		a1 = _mm256_sub_ps(_mm256_loadu_ps(r[1] + k), middle);
			__m256		a2 = _mm256_sub_ps(_mm256_loadu_ps(r[2] + k), middle);
			__m256		a3 = _mm256_sub_ps(_mm256_loadu_ps(r[3] + k), middle);
			__m256		a4 = _mm256_sub_ps(_mm256_loadu_ps(r[4] + k), middle);
			__m256		a5 = _mm256_sub_ps(_mm256_loadu_ps(r[5] + k), middle);
			__m256		a6 = _mm256_sub_ps(_mm256_loadu_ps(r[6] + k), middle);
			__m256		a7 = _mm256_sub_ps(_mm256_loadu_ps(r[7] + k), middle);

			/* two rows interleaved, then four, then eight across the register's halves */
			__m256		b0 = _mm256_unpacklo_ps(a0, a1),
						b1 = _mm256_unpackhi_ps(a0, a1);
			__m256		b2 = _mm256_unpacklo_ps(a2, a3),
						b3 = _mm256_unpackhi_ps(a2, a3);
			__m256		b4 = _mm256_unpacklo_ps(a4, a5),
						b5 = _mm256_unpackhi_ps(a4, a5);
			__m256		b6 = _mm256_unpacklo_ps(a6, a7),
						b7 = _mm256_unpackhi_ps(a6, a7);
			__m256		c0 = _mm256_shuffle_ps(b0, b2, 0x44),
						c1 = _mm256_shuffle_ps(b0, b2, 0xEE);
			__m256		c2 = _mm256_shuffle_ps(b1, b3, 0x44),
						c3 = _mm256_shuffle_ps(b1, b3, 0xEE);
			__m256		c4 = _mm256_shuffle_ps(b4, b6, 0x44),
						c5 = _mm256_shuffle_ps(b4, b6, 0xEE);
			__m256		c6 = _mm256_shuffle_ps(b5, b7, 0x44),
						c7 = _mm256_shuffle_ps(b5, b7, 0xEE);

			_mm256_storeu_ps(out + 0 * TILE_COLUMNS, _mm256_permute2f128_ps(c0, c4, 0x20));
			_mm256_storeu_ps(out + 1 * TILE_COLUMNS, _mm256_permute2f128_ps(c1, c5, 0x20));
			_mm256_storeu_ps(out + 2 * TILE_COLUMNS, _mm256_permute2f128_ps(c2, c6, 0x20));
			_mm256_storeu_ps(out + 3 * TILE_COLUMNS, _mm256_permute2f128_ps(c3, c7, 0x20));
			_mm256_storeu_ps(out + 4 * TILE_COLUMNS, _mm256_permute2f128_ps(c0, c4, 0x31));
			_mm256_storeu_ps(out + 5 * TILE_COLUMNS, _mm256_permute2f128_ps(c1, c5, 0x31));
			_mm256_storeu_ps(out + 6 * TILE_COLUMNS, _mm256_permute2f128_ps(c2, c6, 0x31));
			_mm256_storeu_ps(out + 7 * TILE_COLUMNS, _mm256_permute2f128_ps(c3, c7, 0x31));
		}
	}
	any_transpose(rows, centre, k, depth, panel);
}

SIMD_TARGET static void
screen_avx2(float *sums, float bias, const float *biases, float factor,
			float worst, const float *worsts, uint32_t *row_hits, uint32_t *column_hits)
{
	uint32_t	row = 0,
				column = 0;

	for (uint32_t c = 0; c < TILE_COLUMNS; c += 8)
	{
		__m256		d = _mm256_fmadd_ps(_mm256_set1_ps(factor), _mm256_loadu_ps(sums + c),
										_mm256_add_ps(_mm256_set1_ps(bias), _mm256_loadu_ps(biases + c)));

		/* of a NaN and zero, max returns the second operand */
		d = _mm256_max_ps(_mm256_setzero_ps(), d);
		_mm256_storeu_ps(sums + c, d);
		row |= (uint32_t) _mm256_movemask_ps(_mm256_cmp_ps(d, _mm256_set1_ps(worst), _CMP_LT_OQ)) << c;
		column |= (uint32_t) _mm256_movemask_ps(_mm256_cmp_ps(d, _mm256_loadu_ps(worsts + c), _CMP_LT_OQ)) << c;
	}
	*row_hits = row;
	*column_hits = column;
}

SIMD_TARGET static float
enter_avx2(uint32_t *ids, float *distances, uint32_t stride, float worst,
		   float distance, uint32_t id, uint64_t *entered)
{
	const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF),
				key = _mm256_set1_epi32((int) id);
	__m256i		found = _mm256_setzero_si256();
	__m256		max = _mm256_set1_ps(-INFINITY);
	__m128		half;
	uint32_t	at = 0,
				where;

	for (uint32_t i = 0; i < stride; i += 8)
		found = _mm256_or_si256(found, _mm256_cmpeq_epi32(key,
							_mm256_and_si256(mask, _mm256_loadu_si256((const __m256i *) (ids + i)))));
	if (!_mm256_testz_si256(found, found))
		return worst;
	while ((where = (uint32_t) _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(distances + at),
											_mm256_set1_ps(worst), _CMP_EQ_OQ))) == 0)
		at += 8;
	at += (uint32_t) __builtin_ctz(where);
	ids[at] = id | GG_ENTRY_NEW;
	distances[at] = distance;
	for (uint32_t i = 0; i < stride; i += 8)
		max = _mm256_max_ps(max, _mm256_loadu_ps(distances + i));
	half = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps(max, 1));
	half = _mm_max_ps(half, _mm_movehl_ps(half, half));
	half = _mm_max_ss(half, _mm_movehdup_ps(half));
	++*entered;
	return _mm_cvtss_f32(half);
}

OPS_TABLE(avx2)
#undef SIMD_LANES
#undef SIMD_TARGET
#undef SIMD_NAME

#define SIMD_NAME(x) x##_avx512
#define SIMD_TARGET	__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define SIMD_LANES	16
#include "tile_simd.h"

SIMD_TARGET static void
transpose_avx512(const float *const rows[16], const float *centre, uint32_t depth, float *panel)
{
	uint32_t	k = 0;

	for (; k + 16 <= depth; k += 16)
	{
		__m512		middle = centre ? _mm512_loadu_ps(centre + k) : _mm512_setzero_ps();
		float	   *out = panel + (size_t) k * TILE_COLUMNS;
		__m512		a[16],
					b[16];

#pragma GCC unroll 16
		for (int i = 0; i < 16; i++)
			a[i] = _mm512_sub_ps(_mm512_loadu_ps(rows[i] + k), middle);
		/* two rows interleaved, four, eight, sixteen */
#pragma GCC unroll 8
		for (int i = 0; i < 16; i += 2)
		{
			b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
			b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
		}
#pragma GCC unroll 4
		for (int i = 0; i < 16; i += 4)
		{
			a[i] = _mm512_shuffle_ps(b[i], b[i + 2], 0x44);
			a[i + 1] = _mm512_shuffle_ps(b[i], b[i + 2], 0xEE);
			a[i + 2] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0x44);
			a[i + 3] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0xEE);
		}
		/* a[4q + e]: in lane l, element 4l + e of rows 4q .. 4q + 3 */
#pragma GCC unroll 4
		for (int e = 0; e < 4; e++)
		{
			__m512		low01 = _mm512_shuffle_f32x4(a[e], a[4 + e], 0x44);
			__m512		high01 = _mm512_shuffle_f32x4(a[e], a[4 + e], 0xEE);
			__m512		low23 = _mm512_shuffle_f32x4(a[8 + e], a[12 + e], 0x44);
			__m512		high23 = _mm512_shuffle_f32x4(a[8 + e], a[12 + e], 0xEE);

			_mm512_storeu_ps(out + (0 + e) * TILE_COLUMNS, _mm512_shuffle_f32x4(low01, low23, 0x88));
			_mm512_storeu_ps(out + (4 + e) * TILE_COLUMNS, _mm512_shuffle_f32x4(low01, low23, 0xDD));
			_mm512_storeu_ps(out + (8 + e) * TILE_COLUMNS, _mm512_shuffle_f32x4(high01, high23, 0x88));
			_mm512_storeu_ps(out + (12 + e) * TILE_COLUMNS, _mm512_shuffle_f32x4(high01, high23, 0xDD));
		}
	}
	any_transpose(rows, centre, k, depth, panel);
}

SIMD_TARGET static void
screen_avx512(float *sums, float bias, const float *biases, float factor,
			  float worst, const float *worsts, uint32_t *row_hits, uint32_t *column_hits)
{
	const __m512 f = _mm512_set1_ps(factor),
				b = _mm512_set1_ps(bias),
				w = _mm512_set1_ps(worst),
				zero = _mm512_setzero_ps();
	__m512		d0 = _mm512_fmadd_ps(f, _mm512_loadu_ps(sums), _mm512_add_ps(b, _mm512_loadu_ps(biases)));
	__m512		d1 = _mm512_fmadd_ps(f, _mm512_loadu_ps(sums + 16), _mm512_add_ps(b, _mm512_loadu_ps(biases + 16)));

	/* of a NaN and zero, max returns the second operand */
	d0 = _mm512_max_ps(zero, d0);
	d1 = _mm512_max_ps(zero, d1);
	_mm512_storeu_ps(sums, d0);
	_mm512_storeu_ps(sums + 16, d1);
	*row_hits = (uint32_t) _mm512_cmp_ps_mask(d0, w, _CMP_LT_OQ) |
		(uint32_t) _mm512_cmp_ps_mask(d1, w, _CMP_LT_OQ) << 16;
	*column_hits = (uint32_t) _mm512_cmp_ps_mask(d0, _mm512_loadu_ps(worsts), _CMP_LT_OQ) |
		(uint32_t) _mm512_cmp_ps_mask(d1, _mm512_loadu_ps(worsts + 16), _CMP_LT_OQ) << 16;
}

SIMD_TARGET static float
enter_avx512(uint32_t *ids, float *distances, uint32_t stride, float worst,
			 float distance, uint32_t id, uint64_t *entered)
{
	const __m512i mask = _mm512_set1_epi32(0x7FFFFFFF),
				key = _mm512_set1_epi32((int) id);
	const __m512 w = _mm512_set1_ps(worst);
	__mmask16	found = 0;
	__m512		max = _mm512_set1_ps(-INFINITY);
	uint32_t	at = 0,
				where;

	for (uint32_t i = 0; i < stride; i += 16)
		found |= _mm512_cmpeq_epi32_mask(key, _mm512_and_si512(mask, _mm512_loadu_si512(ids + i)));
	if (found)
		return worst;
	while ((where = _mm512_cmp_ps_mask(_mm512_loadu_ps(distances + at), w, _CMP_EQ_OQ)) == 0)
		at += 16;
	/* a vector read of what was just written would wait for the write: blend it in instead */
	where &= -where;
	for (uint32_t i = 0; i < stride; i += 16)
	{
		__m512		x = _mm512_loadu_ps(distances + i);

		if (i == at)
			x = _mm512_mask_mov_ps(x, (__mmask16) where, _mm512_set1_ps(distance));
		max = _mm512_max_ps(max, x);
	}
	at += (uint32_t) __builtin_ctz(where);
	ids[at] = id | GG_ENTRY_NEW;
	distances[at] = distance;
	++*entered;
	return _mm512_reduce_max_ps(max);
}

OPS_TABLE(avx512)
#undef SIMD_LANES
#undef SIMD_TARGET
#undef SIMD_NAME

#endif							/* __x86_64__ */

static const tile_ops *forced_ops;	/* by gg_tile_use() */

static const tile_ops *
tile_find(const char *name)
{
#if defined(__x86_64__)
	if ((!name || strcmp(name, "avx512") == 0) &&
		__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		return &ops_avx512;
	if ((!name || strcmp(name, "avx2") == 0) &&
		__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return &ops_avx2;
#endif
#if defined(__aarch64__)
	if (!name || strcmp(name, "neon") == 0)
		return &ops_neon;
#else
	if (!name || strcmp(name, "plain") == 0)
		return &ops_plain;
#endif
	return NULL;
}

static inline const tile_ops *
tile_choose(void)
{
	return forced_ops ? forced_ops : tile_find(NULL);
}

bool
gg_tile_use(const char *simd)
{
	const tile_ops *ops = simd ? tile_find(simd) : NULL;

	if (simd && !ops)
		return false;
	forced_ops = ops;
	return true;
}

float
gg_tile_distance(gg_metric metric, const float *a, const float *b, uint32_t dim)
{
	const tile_ops *ops = tile_choose();
	float		d = metric == GG_METRIC_L1 ? ops->pair_l1(a, b, dim) : ops->pair_l2(a, b, dim);

	return isnan(d) ? INFINITY : d;
}

/* ---- rows ------------------------------------------------------------------ */

typedef struct norms_ctx
{
	gg_rows    *rows;
	float	   *norms;			/* |x|^2 */
} norms_ctx;

static void
norms_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	norms_ctx  *ctx = arg;
	const gg_dataset *data = ctx->rows->data;

	(void) worker;
	for (uint64_t i = begin; i < end; i++)
	{
		float		piece[256];
		double		sum = 0;

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
}

gg_status
gg_rows_prepare(gg_rows *rows, const gg_dataset *data, gg_pool *pool)
{
	norms_ctx	ctx = {rows, NULL};
	gg_status	status;

	rows->data = data;
	rows->dim = data->dim;
	rows->scale = NULL;
	rows->extra = NULL;
	if (data->metric != GG_METRIC_IP &&
		!(data->metric == GG_METRIC_COSINE && data->element == GG_ELEMENT_F16))
		return gg_cpu_ok();

	ctx.norms = malloc(sizeof(float) * ((size_t) data->n + 1));
	if (!ctx.norms)
		return gg_cpu_fail(GG_ENOMEM, "gg_rows_prepare", "out of memory for %u row norms", data->n);
	status = gg_pool_run(pool, norms_run, &ctx, data->n, 1 + (1u << 18) / data->dim);
	if (status.code != GG_OK)
	{
		free(ctx.norms);
		return status;
	}
	if (data->metric == GG_METRIC_COSINE)
	{
		for (uint32_t i = 0; i < data->n; i++)
			ctx.norms[i] = ctx.norms[i] > 0 && isfinite(ctx.norms[i]) ? 1.0f / sqrtf(ctx.norms[i]) : 0.0f;
		rows->scale = ctx.norms;
	}
	else
	{
		float		max = 0;

		for (uint32_t i = 0; i < data->n; i++)
			if (isfinite(ctx.norms[i]) && ctx.norms[i] > max)
				max = ctx.norms[i];
		for (uint32_t i = 0; i < data->n; i++)
			ctx.norms[i] = ctx.norms[i] < max ? sqrtf(max - ctx.norms[i]) : 0.0f;
		rows->extra = ctx.norms;
		rows->dim++;
	}
	return gg_cpu_ok();
}

void
gg_rows_free(gg_rows *rows)
{
	free(rows->scale);
	free(rows->extra);
	rows->scale = rows->extra = NULL;
}

void
gg_rows_load(const gg_rows *rows, uint32_t row, uint32_t begin, uint32_t end, float *out)
{
	const gg_dataset *data = rows->data;
	size_t		at = (size_t) row * data->dim + begin;
	uint32_t	count = (end < data->dim ? end : data->dim) - begin;

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
	if (end > data->dim)
		out[count] = rows->extra[row];
}

/* ---- lists ------------------------------------------------------------------ */

static void
lists_clear_run(gg_worker *worker, void *arg, uint64_t begin, uint64_t end)
{
	gg_lists   *lists = arg;

	(void) worker;
	for (uint64_t row = begin; row < end; row++)
	{
		uint32_t   *ids = lists->ids + row * lists->stride;
		float	   *distances = lists->distances + row * lists->stride;

		for (uint32_t i = 0; i < lists->stride; i++)
		{
			ids[i] = GG_NO_NODE;
			distances[i] = i < lists->k ? INFINITY : -INFINITY;
		}
		lists->worst[row] = INFINITY;
	}
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
		status = gg_pool_run(pool, lists_clear_run, lists, n, 1024);
	else
		status = gg_cpu_fail(GG_ENOMEM, "gg_lists_create", "out of memory for %u lists of %u", n, k);
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

/*
 * Keys are (distance bits, entry): distances are not negative, so that their bits order as they
 * do.  Runs of 8 by insertion, then merged: lists are short and their order is unpredictable.
 */
void
gg_lists_sort(gg_lists *lists, uint32_t row)
{
	uint32_t   *ids = lists->ids + (size_t) row * lists->stride;
	float	   *distances = lists->distances + (size_t) row * lists->stride;
	uint32_t	k = lists->k;
	uint64_t	buffer[2][GG_MAX_DEGREE];
	uint64_t   *from = buffer[0],
			   *to = buffer[1];
	bool		sorted = true;

	for (uint32_t i = 0; i < k; i++)
	{
		uint32_t	bits;

		memcpy(&bits, &distances[i], sizeof(bits));
		/* the mark goes last, and GG_NO_NODE behind every id */
		from[i] = (uint64_t) bits << 32 | (uint32_t) (ids[i] << 1 | ids[i] >> 31);
		sorted = sorted && (i == 0 || from[i - 1] <= from[i]);
	}
	if (sorted)
		return;
	for (uint32_t b = 0; b < k; b += 8)
	{
		uint32_t	e = k - b < 8 ? k : b + 8;

		for (uint32_t i = b + 1; i < e; i++)
		{
			uint64_t	key = from[i];
			uint32_t	j = i;

			for (; j > b && from[j - 1] > key; j--)
				from[j] = from[j - 1];
			from[j] = key;
		}
	}
	for (uint32_t run = 8; run < k; run *= 2)
	{
		for (uint32_t b = 0; b < k; b += 2 * run)
		{
			uint32_t	i = b,
						i_end = k - b < run ? k : b + run,
						j = i_end,
						j_end = k - i_end < run ? k : i_end + run,
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
	for (uint32_t i = 0; i < k; i++)
	{
		uint32_t	bits = (uint32_t) (from[i] >> 32),
					entry = (uint32_t) from[i];

		memcpy(&distances[i], &bits, sizeof(bits));
		ids[i] = entry >> 1 | entry << 31;
	}
}

/* ---- joins ------------------------------------------------------------------ */

struct gg_tile_memory
{
	float	   *pack;			/* PACK_FLOATS */
	float	   *sums;			/* GG_TILE_ROWS x GG_TILE_ROWS, only for rows that need pieces */
	float	   *rows;			/* 16 x piece: rows that are not float32 as they are */
	uint32_t	piece;			/* elements that fit into one row of rows */
	float		bias[GG_TILE_ROWS] __attribute__((aligned(64)));
	float		worst[GG_TILE_ROWS] __attribute__((aligned(64)));
	float		tile[TILE_HEIGHT * TILE_COLUMNS] __attribute__((aligned(64)));

	/* pairs of a mutual join that are in a list already, see join_mark_known() */
	uint32_t	has[GG_TILE_ROWS][GG_TILE_ROWS / TILE_COLUMNS]; /* j is in the list of i */
	uint32_t	had[GG_TILE_ROWS][GG_TILE_ROWS / TILE_COLUMNS]; /* i is in the list of j */
	uint16_t	position[KNOWN_SLOTS];	/* of an id in the join; 0 where there is none */
};

/* Longest piece of a row that is packed at once: the fewer rows a join has, the longer. */
static inline uint32_t
tile_piece(uint32_t panels, uint32_t dim)
{
	uint32_t	piece = PACK_FLOATS / (panels * TILE_COLUMNS);

	return piece < dim ? piece : dim;
}

uint64_t
gg_tile_memory_bytes(uint32_t dim)
{
	return sizeof(gg_tile_memory) + sizeof(float) *
		(PACK_FLOATS + 16 * (uint64_t) tile_piece(1, dim) +
		 (dim > tile_piece(GG_TILE_ROWS / TILE_COLUMNS, dim) ? (uint64_t) GG_TILE_ROWS * GG_TILE_ROWS : 0));
}

gg_status
gg_tile_memory_create(gg_tile_memory **result, uint32_t dim)
{
	gg_tile_memory *memory = aligned_alloc(64, (sizeof(*memory) + 63) / 64 * 64);
	bool		pieces = dim > tile_piece(GG_TILE_ROWS / TILE_COLUMNS, dim);

	*result = NULL;
	if (memory)
	{
		memory->piece = tile_piece(1, dim);
		for (uint32_t i = 0; i < KNOWN_SLOTS; i++)
			memory->position[i] = 0;
		memory->pack = aligned_alloc(64, sizeof(float) * PACK_FLOATS);
		memory->rows = malloc(sizeof(float) * 16 * (size_t) memory->piece);
		memory->sums = pieces ? aligned_alloc(64, sizeof(float) * GG_TILE_ROWS * GG_TILE_ROWS) : NULL;
		if (memory->pack && memory->rows && (memory->sums || !pieces))
		{
			*result = memory;
			return gg_cpu_ok();
		}
	}
	gg_tile_memory_free(memory);
	return gg_cpu_fail(GG_ENOMEM, "gg_tile_memory_create", "out of memory for tiles of dimension %u", dim);
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

/* Pack elements begin .. end - 1 of the join's rows into panels. */
static void
join_pack(gg_tile_memory *memory, const gg_join *join, const tile_ops *ops,
		  uint32_t begin, uint32_t end, bool norms)
{
	const gg_rows *rows = join->rows;
	const gg_dataset *data = rows->data;
	bool		as_is = data->element == GG_ELEMENT_F32 && !rows->scale && !rows->extra;
	uint32_t	depth = end - begin;

	for (uint32_t i = 0; i < join->m; i += TILE_COLUMNS)
	{
		float	   *panel = memory->pack + (size_t) i * depth;

		for (uint32_t half = 0; half < TILE_COLUMNS; half += 16)
		{
			const float *source[16];

			for (uint32_t r = 0; r < 16; r++)
			{
				uint32_t	at = i + half + r;
				uint32_t	row = join->ids[at < join->m ? at : join->m - 1];

				if (as_is)
					source[r] = (const float *) data->rows + (size_t) row * data->dim + begin;
				else
				{
					float	   *copy = memory->rows + (size_t) r * memory->piece;

					gg_rows_load(rows, row, begin, end, copy);
					source[r] = copy;
				}
			}
			ops->transpose(source, join->centre ? join->centre + begin : NULL, depth, panel + half);
		}
		if (norms)
			ops->panel_norms(panel, depth, memory->bias + i);
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

/* Offer the distances picked by hits to one list; returns its worst afterwards. */
static inline float
list_offer(const gg_lists *lists, const tile_ops *ops, uint32_t row, uint32_t hits,
		   const float *distances, const uint32_t *labels, uint64_t *entered)
{
	uint32_t   *list_ids = lists->ids + (size_t) row * lists->stride;
	float	   *list_distances = lists->distances + (size_t) row * lists->stride;
	float		worst;

	if (lists->locks)
		list_lock(&lists->locks[row]);
	worst = list_worst(lists, row);
	do
	{
		uint32_t	c = (uint32_t) __builtin_ctz(hits);

		if (distances[c] < worst)
			worst = ops->enter(list_ids, list_distances, lists->stride, worst, distances[c], labels[c], entered);
		hits &= hits - 1;
	} while (hits);
	__atomic_store(&lists->worst[row], &worst, __ATOMIC_RELAXED);
	if (lists->locks)
		list_unlock(&lists->locks[row]);
	return worst;
}

/*
 * Note which rows of the join are in each other's lists.  Near rows meet again and again, in other
 * cells and around other nodes: after the first cell most pairs that are near enough to be entered
 * are entered already (of 1,400 a row in a start and three iterations 1,160, 200,000 x 128), and
 * finding that out in the list itself, pair by pair, cost more than all the distances.
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
				__builtin_prefetch(lists->ids + (size_t) join->ids[i + KNOWN_AHEAD] * lists->stride + e);
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

/* Enter what is near enough among the rows i .. i + 7 against the columns j .. j + 31. */
static void
join_select(gg_tile_memory *memory, const gg_join *join, const tile_ops *ops, float factor,
			uint32_t i, uint32_t j, float *sums, uint32_t ld, uint64_t *entered)
{
	const uint32_t *labels = join->labels ? join->labels : join->ids;

	for (uint32_t r = i; r < i + TILE_HEIGHT && r < join->left; r++, sums += ld)
	{
		uint32_t	columns = join_columns(join, r, j);
		uint32_t	row_hits,
					column_hits;

		if (!columns)
			continue;
		ops->screen(sums, memory->bias[r], memory->bias + j, factor,
					memory->worst[r], memory->worst + j, &row_hits, &column_hits);
		row_hits &= columns;
		column_hits &= columns;
		if (join->mutual)
		{
			row_hits &= ~memory->has[r][j / TILE_COLUMNS];
			column_hits &= ~memory->had[r][j / TILE_COLUMNS];
		}
		if (row_hits)
			memory->worst[r] = list_offer(join->lists, ops, join->ids[r], row_hits, sums, labels + j, entered);
		while (column_hits)
		{
			uint32_t	c = (uint32_t) __builtin_ctz(column_hits);

			/* hit number 0 of the arrays from column c on: row r's label is meant */
			memory->worst[j + c] = list_offer(join->lists, ops, join->ids[j + c], 1, sums + c, labels + r, entered);
			column_hits &= column_hits - 1;
		}
	}
}

uint64_t
gg_tile_join(gg_tile_memory *memory, const gg_join *join, gg_worker *worker)
{
	const tile_ops *ops = tile_choose();
	bool		dot = join->rows->data->metric != GG_METRIC_L1 && !join->exact;
	tile_fn		tile = dot ? ops->dot : join->rows->data->metric == GG_METRIC_L1 ? ops->l1 : ops->l2;
	float		factor = dot ? -2.0f : 1.0f;
	uint32_t	dim = join->rows->dim;
	uint32_t	panels = (join->m + TILE_COLUMNS - 1) / TILE_COLUMNS;
	uint32_t	piece;
	uint64_t	entered = 0;

	if (join->m < 2 || join->left == 0)
		return 0;
	piece = tile_piece(panels, dim);
	for (uint32_t i = 0; i < panels * TILE_COLUMNS; i++)
	{
		memory->bias[i] = 0;
		memory->worst[i] = i < join->m && (join->mutual || i < join->left) ?
			list_worst(join->lists, join->ids[i]) : -INFINITY;
	}

	if (join->mutual)
		join_mark_known(memory, join);

	for (uint32_t begin = 0; begin < dim; begin += piece)
	{
		uint32_t	end = dim - begin < piece ? dim : begin + piece;
		bool		first = begin == 0,
					last = end == dim;
		uint32_t	depth = end - begin;

		join_pack(memory, join, ops, begin, end, dot);
		for (uint32_t p = 0; p * TILE_COLUMNS < join->left; p++)
		{
			uint32_t	from = join->right / TILE_COLUMNS;

			if (gg_worker_stopping(worker))
				return entered;
			for (uint32_t q = p > from ? p : from; q < panels; q++)
				for (uint32_t i = p * TILE_COLUMNS; i < (p + 1) * TILE_COLUMNS && i < join->left; i += TILE_HEIGHT)
				{
					uint32_t	j = q * TILE_COLUMNS;
					bool		whole = first && last;
					float	   *sums = whole ? memory->tile : memory->sums + (size_t) i * GG_TILE_ROWS + j;
					uint32_t	ld = whole ? TILE_COLUMNS : GG_TILE_ROWS;

					tile(memory->pack + (size_t) p * TILE_COLUMNS * depth + (i - p * TILE_COLUMNS),
						 memory->pack + (size_t) j * depth, depth, first, sums, ld);
					if (last)
						join_select(memory, join, ops, factor, i, j, sums, ld, &entered);
				}
		}
	}
	return entered;
}
