/*
 * prune.cu
 *		Which rows may be among the k nearest of up to PRUNE_QUERIES queries: each row is read once
 *		for all of them, in halves, and the tensor cores multiply.  What is left is for exact.cu and
 *		deep.cu.
 *
 * Shapes		walk rows n x dim (search_view), queries nq x dim float32, bits of nodes or none,
 *				of each query an upper bound of its k-th nearest distance -> bits of nodes, of each
 *				query.
 * Requires		L2, inner product or cosine; rows in halves, as stored or as the copy for walks; and
 *				queries that fit shared memory (search_prune_takes).
 * Mapping		A warp takes a word of 32 rows after the other, and puts aside the rows that any
 *				query wants.  Of 32 of those it makes the products with all queries: two
 *				mma.m16n8k16 of halves side by side, 8 or 16 queries wide.  Lane l reads quad l % 4
 *				of 64 bytes of rows l / 4 + {0, 8, 16, 24}; its 16 bytes are operands as they are.
 *				A row stays for a query where its distance, less what that may be wrong by, is no
 *				more than the bound.  Few do, so their bits are set one by one.
 * Bound		Let y be the halves of a row x, e what they are off by, b the query in the rows'
 *				coordinates, and c the halves of b, which are off by f.
 *				|e| <= 2^-11 |y| + 2^-25 sqrt(dim): a half keeps 11 bits, and below 2^-14 steps of
 *				2^-24.  Rows stored as halves have e = 0.  |f| is measured.
 *				L2: |x - q| >= |y - c| - |e| - |f|, by the triangle inequality.  Coordinates are
 *				centred and scaled, which scales distances.
 *				Products: <x, q> <= <y, c> + |y| |f| + |e| |b|, by Cauchy-Schwarz; and
 *				<mean, q>, which is the same for all rows.
 *				exact.cu's own distances are off by their sums' rounding, and the products here by
 *				what the tensor cores cut off; ERROR_PER_ELEMENT has both.
 *				Where that is no number, as of halves that overflow, the row stays.
 * Shared		the queries as operands of mma, 2 bytes per element; rows put aside, 64 per warp.
 * Oracle		None: exact.cu's answers over these bits are those over all bits, bit by bit.
 * Cost			Halves of the rows that match, once: at 1M x 768 and one row in two 768 MB, which
 *				take 0.18 ms of memory; at 1M x 128, 128 MB and 30 us.  These are estimates.
 * Tried		TF32 numbers, two for each element of rows stored as float32, and three products:
 *				twice the bytes are read.  It leaves fewer rows, by some percent; an estimate.
 */
#include "exact.cuh"
#include "keys.cuh"
#include "prune.cuh"
#include "query.cuh"
#include "walk.cuh"

#define WARPS 8
#define BLOCKS_PER_SM 2
#define FLIGHTS 4				/* chunks of 64 bytes of a row that are loaded before one is used */

/*
 * What sums may be wrong by, relative to the product of the lengths or the sum of their squares.
 * The tensor cores cut off what float32 has no room for, of each of 17 numbers at each of dim / 16
 * additions: 17 x 2^-23 x dim / 16 is 1.3e-7 x dim.  Sums in float32 lose a tenth of that: no
 * thread adds more than dim / 4 numbers.
 */
#define ERROR_FIXED 4e-6f
#define ERROR_PER_ELEMENT 2e-7f
#define ERROR_LEAST 1e-37f		/* distances: float32 may lose products below it altogether */

/* What a row's halves are off by, relative, and absolute per element; a bit more, for rounding */
#define HALF_ERROR (1.01f / 2048)
#define HALF_LEAST (1.01f / 33554432)

struct prune_args : prune_launch
{
	uint32_t	chunks;			/* of 64 bytes of a row */
	float		error;			/* of sums, relative */
	float		half_error;		/* of a row's halves, relative to their length */
	float		half_least;		/* of a row's halves, absolute */
};

/* A query as halves, multiplied by a power of two. */
typedef struct prune_query
{
	float		length;			/* of the halves; L2: without the power */
	float		lost;			/* length of what they are off by, at most; L2: without the power */
	float		twice;			/* L2: twice a product, without the power */
	float		bound;			/* L2: of the length of the difference; else of the product */
} prune_query;

/* Rows that were put aside. */
typedef struct prune_rows
{
	uint32_t	row[64];
	uint32_t	wanted[64];		/* a bit a query */
} prune_rows;

/* ---- queries ----------------------------------------------------------------------- */

/* Element i of a query: for L2 in the rows' coordinates, else what the rows' are multiplied by. */
static __device__ __forceinline__ float
element_of(const search_view &view, const float *raw, float inverse, uint32_t i)
{
	const float value = i < view.dim ? raw[i] * inverse : 0;

	if (view.metric != GG_METRIC_L2)
		return value;
	return (value - (view.mean != NULL && i < view.dim ? view.mean[i] : 0)) * view.scale;
}

/* What least_product() knows of a query. */
typedef struct halved_query
{
	float		given;			/* length of the query as it came */
	float		length;			/* of the query times unit, at most */
	float		mean;			/* length of the mean in the rows' coordinates */
	float		offset;			/* <mean, query>, as a distance has it */
	float		unit;			/* the power of two of the halves */
} halved_query;

/* The least product of a row as near as `distance` with the query, scaled as the halves are. */
static __device__ __forceinline__ float
least_product(const search_view &view, const halved_query &query, float distance, float error)
{
	const bool	cosine = view.metric == GG_METRIC_COSINE;
	const double scale = (double) view.scale * query.unit;
	/* where exact.cu's sums may overflow, distances say nothing */
	const bool	sound = (double) query.given *
		(query.mean + 65536 * sqrtf((float) view.dim)) / view.scale < 1e38;
	const double one = cosine ? 1 : 0;

	/* cosine distances end at 2 */
	if (!sound || !isfinite(distance) || (cosine && distance >= 2))
		return -INFINITY;
	return (float) ((one - distance - query.offset - error * one - ERROR_LEAST) * scale -
					(double) error * query.mean * query.length);
}

/* Make query q a column of the operand, and set what it asks of rows.  By a warp. */
template <int TILES>
static __device__ __forceinline__ void
prepare_query(const search_view &view, const prune_args &args, uint32_t q, __half *operand,
			  prune_query *query, uint32_t lane)
{
	const float *raw = args.queries + (size_t) q * view.dim;
	const uint64_t key = args.bounds != NULL ? args.bounds[(size_t) q * args.bounds_stride] :
		args.last[q];
	const float distance = key == GG_KEY_NONE ? INFINITY : value_of(key);
	const float inverse = view.metric == GG_METRIC_COSINE ? exact_inverse(raw, view.dim, lane) : 1;
	float		largest = 0;
	float		length = 0;		/* these four: sums of squares at first */
	float		lost = 0;
	float		given = 0;
	float		mean = 0;
	float		offset = 0;
	float		unit;

	for (uint32_t i = lane; i < view.dim; i += 32)
		largest = fmaxf(largest, fabsf(element_of(view, raw, inverse, i)));
	unit = query_scale(group_reduce<1, true>(largest, NULL));
	for (uint32_t i = lane; i < args.chunks * 32; i += 32)
	{
		const float value = element_of(view, raw, inverse, i) * unit;
		const __half half = __float2half_rn(value);
		const float rounded = __half2float(half);

		operand[(i / 32 * TILES * 8 + q) * 32 + lane] = half;
		length += rounded * rounded;
		lost += (value - rounded) * (value - rounded);
		if (i >= view.dim)
			break;
		given += raw[i] * raw[i];
		if (view.mean != NULL)
		{
			const float centre = view.mean[i] * view.scale;	/* squares that do not vanish */

			mean += centre * centre;
			offset += view.mean[i] * raw[i] * inverse;
		}
	}
	length = sqrtf(group_reduce<1, false>(length, NULL));
	/* float32 rounded, too, on the way to `value` */
	lost = sqrtf(group_reduce<1, false>(lost, NULL)) * 1.01f + length * 2.4e-7f;
	given = sqrtf(group_reduce<1, false>(given, NULL));
	mean = sqrtf(group_reduce<1, false>(mean, NULL));
	offset = group_reduce<1, false>(offset, NULL);
	if (lane != 0)
		return;
	if (view.metric == GG_METRIC_L2)
	{
		*query = {length / unit, lost / unit, 2 / unit, 0};
		query->bound = view.scale * sqrtf(distance + ERROR_LEAST) * (1 + args.error) + query->lost;
	}
	else
		*query = {length, lost, 0, least_product(view, {given, length + lost, mean, offset, unit},
												 distance, args.error)};
}

/* Prepare all queries.  Columns beyond them become zeros. */
template <int TILES>
static __device__ __forceinline__ void
prepare_queries(const search_view &view, const prune_args &args, uint4 *operand,
				prune_query *queries)
{
	const uint32_t lane = threadIdx.x & 31;

	for (uint32_t q = threadIdx.x >> 5; q < TILES * 8; q += WARPS)
	{
		if (q < args.nq)
			prepare_query<TILES>(view, args, q, (__half *) operand, &queries[q], lane);
		else
			for (uint32_t i = lane; i < args.chunks * 4; i += 32)
				operand[(i / 4 * TILES * 8 + q) * 4 + i % 4] = make_uint4(0, 0, 0, 0);
	}
}

/* ---- rows -------------------------------------------------------------------------- */

/* May a row of this length be as near as the query's bound?  Yes where NaN comes out. */
static __device__ __forceinline__ bool
may_be_near(const search_view &view, const prune_args &args, const prune_query &query,
			float product, float length)
{
	const float lost = length * args.half_error + args.half_least;

	if (view.metric == GG_METRIC_L2)
	{
		const float squares = length * length + query.length * query.length;
		const float limit = query.bound + lost;

		return !(squares - query.twice * product - squares * args.error > limit * limit);
	}
	else
	{
		const float most = product + length * (query.lost + query.length * args.error) +
			lost * (query.length + query.lost);
		/* rows of float32 have unit length under cosine */
		const bool	divides = view.metric == GG_METRIC_COSINE && view.element == GG_ELEMENT_F16;

		return !(most < (divides ? query.bound * length : query.bound));
	}
}

static __device__ __forceinline__ float
add_squares(const uint4 &quad, float sum)
{
	const __half2 *halves = (const __half2 *) &quad;

#pragma unroll
	for (int i = 0; i < 4; i++)
	{
		const float2 x = __half22float2(halves[i]);

		sum = fmaf(x.x, x.x, fmaf(x.y, x.y, sum));
	}
	return sum;
}

/* Set the bits of those of up to 32 rows that may be near a query which wants them. */
template <int TILES>
static __device__ __forceinline__ void
prune_32(const search_view &view, const prune_args &args, const prune_rows *aside, uint32_t count,
		 const uint4 *operand, const prune_query *queries, uint32_t lane)
{
	const uint32_t quads = (view.dim + 7) / 8;
	const uint32_t member = lane % 4;
	const char *rows[4];
	float		sums[2][TILES][4];
	float		squares[4];

#pragma unroll
	for (int r = 0; r < 4; r++)
	{
		uint32_t	slot = lane / 4 + 8 * r;

		rows[r] = view.walk_rows + (size_t) aside->row[slot < count ? slot : 0] * view.walk_stride;
		squares[r] = 0;
	}
#pragma unroll
	for (int i = 0; i < 2 * TILES * 4; i++)
		sums[i / (TILES * 4)][i / 4 % TILES][i % 4] = 0;

#pragma unroll 1
	for (uint32_t chunk = 0; chunk < args.chunks; chunk += FLIGHTS)
	{
		uint4		x[FLIGHTS][4];

#pragma unroll
		for (int u = 0; u < FLIGHTS; u++)
#pragma unroll
			for (int r = 0; r < 4; r++)
				x[u][r] = load_quad(rows[r], (chunk + u) * 4 + member,
									(chunk + u) * 4 + member < quads);
#pragma unroll
		for (int u = 0; u < FLIGHTS; u++)
		{
			if (chunk + u >= args.chunks)
				break;
#pragma unroll
			for (int tile = 0; tile < TILES; tile++)
			{
				const uint4 q = operand[((chunk + u) * TILES + tile) * 32 + lane];

#pragma unroll
				for (int m = 0; m < 2; m++)
				{
					const uint4 &upper = x[u][m * 2];
					const uint4 &lower = x[u][m * 2 + 1];

					gg_mma(sums[m][tile], upper.x, lower.x, upper.y, lower.y, q.x, q.y);
					gg_mma(sums[m][tile], upper.z, lower.z, upper.w, lower.w, q.z, q.w);
				}
			}
#pragma unroll
			for (int r = 0; r < 4; r++)
				squares[r] = add_squares(x[u][r], squares[r]);
		}
	}
#pragma unroll
	for (int r = 0; r < 4; r++)
	{
		const uint32_t slot = lane / 4 + 8 * r;
		const uint32_t wanted = slot < count ? aside->wanted[slot] : 0;
		float		length = squares[r] + __shfl_xor_sync(GG_FULL_WARP, squares[r], 1);

		length = sqrtf(length + __shfl_xor_sync(GG_FULL_WARP, length, 2));
#pragma unroll
		for (int i = 0; i < TILES * 2; i++)
		{
			const uint32_t query = i / 2 * 8 + member * 2 + i % 2;

			if ((wanted >> query & 1) != 0 &&
				may_be_near(view, args, queries[query], sums[r / 2][i / 2][r % 2 * 2 + i % 2],
							length))
				atomicOr(args.to + (size_t) query * args.to_stride + aside->row[slot] / 32,
						 1u << (aside->row[slot] % 32));
		}
	}
}

template <int TILES>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS_PER_SM)
prune_kernel(const __grid_constant__ search_view view, const __grid_constant__ prune_args args)
{
	extern __shared__ __align__(16) char shared[];
	__shared__ prune_query queries[TILES * 8];
	__shared__ prune_rows put_aside[WARPS];
	uint4	   *operand = (uint4 *) shared;
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t words = (view.n + 31) / 32;
	const uint32_t step = gridDim.x * WARPS;
	const bool	apart = args.filter_stride > 0;
	/* whose filter this lane reads: one lane is enough where all have the same */
	const bool	reads = lane < (apart ? args.nq : 1);
	const uint32_t *filter = args.filter + (size_t) (reads ? lane : 0) * args.filter_stride;
	const bool	all = args.filter == NULL;
	prune_rows *aside = &put_aside[threadIdx.x >> 5];
	uint32_t	word = blockIdx.x * WARPS + (threadIdx.x >> 5);
	uint32_t	next;
	uint32_t	waiting = 0;

	if (!gate_lets_run(args.gate))
		return;
	prepare_queries<TILES>(view, args, operand, queries);
	__syncthreads();

	next = all ? GG_FULL_WARP : reads && word < words ? __ldg(filter + word) : 0;
	for (; word < words; word += step)
	{
		uint32_t	mine = next;
		uint32_t	any;
		uint32_t	wanted = 0;

		if (!all)
			next = reads && word + step < words ? __ldg(filter + word + step) : 0;
		if (word == words - 1 && (view.n & 31) != 0)
			mine &= (1u << (view.n & 31)) - 1;
		any = __reduce_or_sync(GG_FULL_WARP, mine);
		if (lane < args.nq)
			args.to[(size_t) lane * args.to_stride + word] = 0;
		if (any == 0)
			continue;
		if (apart)
			for (uint32_t q = 0; q < args.nq; q++)
				wanted |= (__shfl_sync(GG_FULL_WARP, mine, q) >> lane & 1) << q;
		else
			wanted = (1u << args.nq) - 1;
		if (any >> lane & 1)
		{
			uint32_t	at = waiting + __popc(any & gg_lanes_below(lane));

			aside->row[at] = word * 32 + lane;
			aside->wanted[at] = wanted;
		}
		waiting += __popc(any);
		__syncwarp();			/* of what was put aside, and of the zeros before bits are set */
		if (waiting < 32)
			continue;
		prune_32<TILES>(view, args, aside, 32, operand, queries, lane);
		waiting -= 32;
		__syncwarp();
		if (lane < waiting)
		{
			aside->row[lane] = aside->row[lane + 32];
			aside->wanted[lane] = aside->wanted[lane + 32];
		}
		__syncwarp();
	}
	if (waiting > 0)
		prune_32<TILES>(view, args, aside, waiting, operand, queries, lane);
}

/* ---- launching ------------------------------------------------------------------ */

static uint32_t
chunks_of(const search_view *view)
{
	return (view->dim * 2 + 63) / 64;
}

static uint32_t
shared_bytes(const search_view *view, uint32_t tiles)
{
	return chunks_of(view) * tiles * 512;
}

bool
search_prune_takes(const search_view *view, const search_device *device)
{
	/* what walks read is centred only where it is a copy in halves; it may be codes */
	const bool	halves = view->code_bits == 0 &&
		(view->element == GG_ELEMENT_F16 || view->mean != NULL);

	/* what the kernel has in static shared memory comes out of the same limit */
	return halves && view->metric != GG_METRIC_L1 &&
		shared_bytes(view, PRUNE_QUERIES / 8) + 8192 <= (uint32_t) device->shared_bytes;
}

template <int TILES>
static cudaError_t
ready_prune(const search_device *device)
{
	cudaError_t error = kernel_load((const void *) prune_kernel<TILES>);
	kernel_state *state = kernel_state_of<prune_kernel<TILES>>();

	if (error != cudaSuccess || state->context.load(std::memory_order_relaxed) == device->context)
		return error;
	error = cudaFuncSetAttribute((const void *) prune_kernel<TILES>,
								 cudaFuncAttributeMaxDynamicSharedMemorySize,
								 device->shared_bytes - 8192);
	if (error == cudaSuccess)
		state->context.store(device->context, std::memory_order_relaxed);
	return error;
}

template <int TILES>
static cudaError_t
launch_prune(const search_view *view, const prune_args *args, const search_device *device,
			 cudaStream_t stream)
{
	const uint32_t shared = shared_bytes(view, TILES);
	const uint32_t useful = ((view->n + 31) / 32 + WARPS - 1) / WARPS;
	uint32_t	blocks;
	int			per_sm;
	cudaError_t error;

	error = ready_prune<TILES>(device);
	if (error == cudaSuccess)
		error = kernel_blocks_per_sm<prune_kernel<TILES>>(WARPS * 32, shared, device, &per_sm);
	if (error != cudaSuccess)
		return error;
	blocks = (uint32_t) (device->sms * per_sm);
	prune_kernel<TILES><<<blocks < useful ? blocks : useful, WARPS * 32, shared, stream>>>
		(*view, *args);
	return cudaGetLastError();
}

cudaError_t
search_prune_ready(const search_view *view, const search_device *device)
{
	cudaError_t error;

	if (!search_prune_takes(view, device))
		return cudaSuccess;
	error = ready_prune<1>(device);
	return error == cudaSuccess ? ready_prune<2>(device) : error;
}

cudaError_t
search_prune_launch(const search_view *view, const prune_launch *launch,
					const search_device *device, cudaStream_t stream)
{
	const bool	rounded = view->element == GG_ELEMENT_F32;
	const prune_args args = {
		*launch, chunks_of(view), ERROR_FIXED + ERROR_PER_ELEMENT * (float) view->dim,
		rounded ? HALF_ERROR : 0, rounded ? HALF_LEAST * sqrtf((float) view->dim) : 0
	};

	return launch->nq <= 8 ? launch_prune<1>(view, &args, device, stream) :
		launch_prune<2>(view, &args, device, stream);
}
