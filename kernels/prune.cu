/*
 * prune.cu
 *		Which rows may be among the k nearest of up to PRUNE_QUERIES queries: each row is read once
 *		for all of them, and the tensor cores multiply.  What is left is for exact.cu.
 *
 * Shapes		rows n x dim as stored, queries nq x dim float32, bits of nodes, of each query an
 *				upper bound of its k-th nearest distance -> bits of nodes, of each query.
 * Requires		L2, inner product or cosine; queries that fit shared memory (search_prune_takes).
 * Mapping		A warp takes a word of 32 rows after the other, and puts aside the rows that any
 *				query wants.  Of 32 of those it makes the products with all queries: two
 *				mma.m16n8k8 of TF32 side by side, 8 or 16 queries wide.  Lane l reads piece l % 4 of
 *				64 bytes of rows l / 4 + {0, 8, 16, 24}.  An element is two TF32 numbers, as is one
 *				of a query, and three of their four products count.  Halves are one number.
 *				A row stays for a query where the distance, less what it may be wrong by, is no more
 *				than the bound.  Few do, so their bits are set one by one.
 * Shared		the queries as operands of mma, 8 bytes per element; rows put aside, 64 per warp.
 * Oracle		None: exact.cu's answers over these bits are those over all bits.
 * Cost			The rows once: at 1M x 128 and one row in two 256 MB, which take 65 us of memory;
 *				6M mma for all rows and 16 queries, some 40 us of the tensor cores.  These are
 *				estimates.  exact.cu does the same 8M distances of 16 queries in 0.3 to 0.6 ms.
 */
#include "prune.cuh"
#include "warp.cuh"

#define WARPS 8
#define BLOCKS_PER_SM 2
#define FLIGHTS 2				/* chunks of 64 bytes of a row that are loaded before one is used */

/*
 * What a distance may be wrong by, relative to |row|^2 + |query|^2: TF32 has 11 bits, two of them
 * 21, and the tensor cores cut off what float32 has no room for at each of 3 dim / 8 additions.
 */
#define ERROR_FIXED 1.6e-5f
#define ERROR_PER_ELEMENT 5e-7f
#define ERROR_LEAST 1e-30f		/* products of smaller numbers may be lost altogether */

typedef struct prune_args
{
	const uint32_t *filter;
	uint32_t	filter_stride;
	uint32_t   *to;
	uint32_t	to_stride;
	const float *queries;
	uint32_t	nq;
	uint32_t	k;
	const uint64_t *keys;
	uint32_t	chunks;			/* of 64 bytes of a row */
	float		error;
	search_gate gate;
} prune_args;

/* Queries as the kernel compares with them. */
typedef struct prune_bounds
{
	float		distance[PRUNE_QUERIES];
	float		square[PRUNE_QUERIES];
	float		inverse[PRUNE_QUERIES];
} prune_bounds;

/* Rows that were put aside. */
typedef struct prune_rows
{
	uint32_t	row[64];
	uint32_t	wanted[64];		/* a bit a query */
} prune_rows;

static __device__ __forceinline__ float
high_part(float x)
{
	return __uint_as_float(__float_as_uint(x) & 0xFFFFE000u);
}

/* Operands of mma for a query's part of each chunk, where lane l's 16 bytes of it lie. */
template <typename ELEMENT, int TILES>
static __device__ __forceinline__ void
prepare_queries(const search_view &view, const prune_args &args, float *operands)
{
	const uint32_t elements = 16 / sizeof(ELEMENT);
	const uint32_t quads = elements / 4;
	const uint32_t total = args.chunks * quads * TILES * 32 * 4;

	for (uint32_t i = threadIdx.x; i < total; i += WARPS * 32)
	{
		uint32_t	lane = i / 4 % 32;
		uint32_t	tile = i / 128 % TILES;
		uint32_t	quad = i / 128 / TILES;
		uint32_t	query = tile * 8 + lane / 4;
		uint32_t	at = (quad / quads * 4 + lane % 4) * elements + quad % quads * 4 + i % 4;
		float		value = query < args.nq && at < view.dim ?
			args.queries[(size_t) query * view.dim + at] : 0;
		float	   *to = operands + (quad * TILES + tile) * 256 + lane * 4 + i % 4;

		to[0] = high_part(value);
		to[128] = value - high_part(value);
	}
}

/* Of each query, by a warp. */
static __device__ __forceinline__ void
prepare_bounds(const search_view &view, const prune_args &args, prune_bounds *bounds)
{
	const uint32_t lane = threadIdx.x & 31;

	for (uint32_t q = threadIdx.x >> 5; q < PRUNE_QUERIES; q += WARPS)
	{
		const uint64_t key = q < args.nq ? args.keys[(size_t) q * args.k + args.k - 1] : 0;
		float		sum = 0;

		for (uint32_t i = lane; q < args.nq && i < view.dim; i += 32)
		{
			float		x = args.queries[(size_t) q * view.dim + i];

			sum += x * x;
		}
		sum = group_reduce<1, false>(sum, NULL);
		if (lane == 0)
		{
			bounds->distance[q] = key == GG_KEY_NONE ? INFINITY : value_of(key);
			bounds->square[q] = sum;
			bounds->inverse[q] = sum > 0 ? 1 / sqrtf(sum) : 0;
		}
	}
}

/* Products of 16 rows and a tile of queries, by 8 elements of each row. */
static __device__ __forceinline__ void
multiply(float (&sum)[4], const float (&upper)[2], const float (&lower)[2], float2 query)
{
	gg_mma_tf32(sum, upper[0], lower[0], upper[1], lower[1], query.x, query.y);
}

/*
 * One quad of four rows against all queries.  x[r] is of row lane / 4 + 8 r: the first two are an
 * operand, and the others another one.
 */
template <bool ROUNDED, int TILES>
static __device__ __forceinline__ void
multiply_quad(const float (&x)[4][4], const float *operands, uint32_t lane,
			  float (&sums)[2][TILES][4], float (&squares)[4])
{
	float		high[4][4];
	float		low[4][4];

#pragma unroll
	for (int r = 0; r < 4; r++)
#pragma unroll
		for (int i = 0; i < 4; i++)
		{
			squares[r] += x[r][i] * x[r][i];
			high[r][i] = ROUNDED ? x[r][i] : high_part(x[r][i]);
			low[r][i] = x[r][i] - high[r][i];
		}
#pragma unroll
	for (int tile = 0; tile < TILES; tile++)
	{
		const float4 q = *(const float4 *) (operands + tile * 256 + lane * 4);
		const float4 rest = *(const float4 *) (operands + tile * 256 + 128 + lane * 4);

#pragma unroll
		for (int m = 0; m < 2; m++)
#pragma unroll
			for (int step = 0; step < 2; step++)
			{
				const float2 both = step == 0 ? make_float2(q.x, q.y) : make_float2(q.z, q.w);
				const float2 less = step == 0 ? make_float2(rest.x, rest.y) :
					make_float2(rest.z, rest.w);
				const float upper[2] = {high[m * 2][step * 2], high[m * 2][step * 2 + 1]};
				const float lower[2] = {high[m * 2 + 1][step * 2], high[m * 2 + 1][step * 2 + 1]};
				const float upper_low[2] = {low[m * 2][step * 2], low[m * 2][step * 2 + 1]};
				const float lower_low[2] = {low[m * 2 + 1][step * 2],
					low[m * 2 + 1][step * 2 + 1]};

				multiply(sums[m][tile], upper, lower, both);
				multiply(sums[m][tile], upper, lower, less);
				if (!ROUNDED)
					multiply(sums[m][tile], upper_low, lower_low, both);
			}
	}
}

/* May the row be as near as the query's bound?  What is no number is left to exact.cu. */
static __device__ __forceinline__ bool
may_be_near(const search_view &view, const prune_bounds *bounds, uint32_t query, float product,
			float square, bool rounded, float error)
{
	const float other = bounds->square[query];
	float		least;

	if (view.metric == GG_METRIC_L2)
		least = square + other - 2 * product - (square + other) * error;
	else if (view.metric == GG_METRIC_IP)
		least = 0.0f - product - sqrtf(square) * sqrtf(other) * error;
	else
	{
		float		inverse = bounds->inverse[query] * (rounded ? 1 / sqrtf(square) : 1.0f);

		least = 1 - product * inverse - (1 + sqrtf(square) * sqrtf(other) * inverse) * error;
	}
	return !(least - ERROR_LEAST > bounds->distance[query]);
}

/* Set the bits of those of up to 32 rows that may be near a query which wants them. */
template <typename ELEMENT, int TILES>
static __device__ __forceinline__ void
prune_32(const search_view &view, const prune_args &args, const prune_rows *aside, uint32_t count,
		 const float *operands, const prune_bounds *bounds, uint32_t lane)
{
	const int	elements = 16 / (int) sizeof(ELEMENT);
	const int	quads = elements / 4;
	const uint32_t pieces = (view.dim + elements - 1) / elements;
	const uint32_t member = lane % 4;
	const char *rows[4];
	float		sums[2][TILES][4];
	float		squares[4];

#pragma unroll
	for (int r = 0; r < 4; r++)
	{
		uint32_t	slot = lane / 4 + 8 * r;

		rows[r] = view.rows + (size_t) aside->row[slot < count ? slot : 0] * view.row_stride;
		squares[r] = 0;
	}
#pragma unroll
	for (int i = 0; i < 2 * TILES * 4; i++)
		sums[i / (TILES * 4)][i / 4 % TILES][i % 4] = 0;

#pragma unroll 1
	for (uint32_t chunk = 0; chunk < args.chunks; chunk += FLIGHTS)
	{
		uint4		loaded[FLIGHTS][4];

#pragma unroll
		for (int u = 0; u < FLIGHTS; u++)
#pragma unroll
			for (int r = 0; r < 4; r++)
				loaded[u][r] = load_piece(rows[r], (chunk + u) * 4 + member,
										  (chunk + u) * 4 + member < pieces);
#pragma unroll
		for (int u = 0; u < FLIGHTS; u++)
		{
			if (chunk + u >= args.chunks)
				break;
#pragma unroll
			for (int quad = 0; quad < quads; quad++)
			{
				float		x[4][4];

#pragma unroll
				for (int i = 0; i < 16; i++)
					x[i / 4][i % 4] =
						(float) ((const ELEMENT *) &loaded[u][i / 4])[quad * 4 + i % 4];
				multiply_quad<sizeof(ELEMENT) == 2, TILES>
					(x, operands + ((chunk + u) * quads + quad) * TILES * 256, lane, sums,
					 squares);
			}
		}
	}
#pragma unroll
	for (int r = 0; r < 4; r++)
	{
		squares[r] += __shfl_xor_sync(GG_FULL_WARP, squares[r], 1);
		squares[r] += __shfl_xor_sync(GG_FULL_WARP, squares[r], 2);
	}
#pragma unroll
	for (int r = 0; r < 4; r++)
	{
		const uint32_t slot = lane / 4 + 8 * r;
		const uint32_t wanted = slot < count ? aside->wanted[slot] : 0;

#pragma unroll
		for (int i = 0; i < TILES * 2; i++)
		{
			const uint32_t query = i / 2 * 8 + member * 2 + i % 2;

			if ((wanted >> query & 1) != 0 &&
				may_be_near(view, bounds, query, sums[r / 2][i / 2][r % 2 * 2 + i % 2],
							squares[r], sizeof(ELEMENT) == 2, args.error))
				atomicOr(args.to + (size_t) query * args.to_stride + aside->row[slot] / 32,
						 1u << (aside->row[slot] % 32));
		}
	}
}

template <typename ELEMENT, int TILES>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS_PER_SM)
prune_kernel(const __grid_constant__ search_view view, const __grid_constant__ prune_args args)
{
	extern __shared__ __align__(16) char shared[];
	__shared__ prune_bounds bounds;
	__shared__ prune_rows put_aside[WARPS];
	float	   *operands = (float *) shared;
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t words = (view.n + 31) / 32;
	const uint32_t step = gridDim.x * WARPS;
	const bool	apart = args.filter_stride > 0;
	/* whose filter this lane reads: one lane is enough where all have the same */
	const bool	reads = lane < (apart ? args.nq : 1);
	const uint32_t *filter = args.filter + (size_t) (reads ? lane : 0) * args.filter_stride;
	prune_rows *aside = &put_aside[threadIdx.x >> 5];
	uint32_t	word = blockIdx.x * WARPS + (threadIdx.x >> 5);
	uint32_t	next;
	uint32_t	waiting = 0;

	if (!gate_lets_run(args.gate))
		return;
	prepare_queries<ELEMENT, TILES>(view, args, operands);
	prepare_bounds(view, args, &bounds);
	__syncthreads();

	next = reads && word < words ? __ldg(filter + word) : 0;
	for (; word < words; word += step)
	{
		uint32_t	mine = next;
		uint32_t	any;
		uint32_t	wanted = 0;

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
		prune_32<ELEMENT, TILES>(view, args, aside, 32, operands, &bounds, lane);
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
		prune_32<ELEMENT, TILES>(view, args, aside, waiting, operands, &bounds, lane);
}

/* ---- launching ------------------------------------------------------------------ */

static uint32_t
chunks_of(const search_view *view)
{
	return (view->dim * (view->element == GG_ELEMENT_F32 ? 4 : 2) + 63) / 64;
}

static uint32_t
shared_bytes(const search_view *view, uint32_t tiles)
{
	return chunks_of(view) * (view->element == GG_ELEMENT_F32 ? 1 : 2) * tiles * 1024;
}

bool
search_prune_takes(const search_view *view, const search_device *device)
{
	/* what the kernel has in static shared memory comes out of the same */
	return view->metric != GG_METRIC_L1 &&
		shared_bytes(view, PRUNE_QUERIES / 8) + 8192 <= (uint32_t) device->shared_bytes;
}

template <typename ELEMENT, int TILES>
static kernel_state *
prune_state(void)
{
	static kernel_state state;

	return &state;
}

template <typename ELEMENT, int TILES>
static cudaError_t
ready_prune(const search_device *device)
{
	cudaError_t error = kernel_load((const void *) prune_kernel<ELEMENT, TILES>);
	kernel_state *state = prune_state<ELEMENT, TILES>();

	if (error != cudaSuccess || state->context.load(std::memory_order_relaxed) == device->context)
		return error;
	error = cudaFuncSetAttribute((const void *) prune_kernel<ELEMENT, TILES>,
								 cudaFuncAttributeMaxDynamicSharedMemorySize,
								 device->shared_bytes - 8192);
	if (error == cudaSuccess)
		state->context.store(device->context, std::memory_order_relaxed);
	return error;
}

template <typename ELEMENT, int TILES>
static cudaError_t
launch_prune(const search_view *view, const prune_args *args, const search_device *device,
			 cudaStream_t stream)
{
	const uint32_t shared = shared_bytes(view, TILES);
	const uint32_t useful = ((view->n + 31) / 32 + WARPS - 1) / WARPS;
	uint32_t	blocks;
	int			per_sm;
	cudaError_t error;

	error = ready_prune<ELEMENT, TILES>(device);
	if (error == cudaSuccess)
		error = kernel_blocks_per_sm(prune_state<ELEMENT, TILES>(),
									 (const void *) prune_kernel<ELEMENT, TILES>, WARPS * 32,
									 shared, device, &per_sm);
	if (error != cudaSuccess)
		return error;
	blocks = (uint32_t) (device->sms * per_sm);
	prune_kernel<ELEMENT, TILES><<<blocks < useful ? blocks : useful, WARPS * 32, shared, stream>>>
		(*view, *args);
	return cudaGetLastError();
}

cudaError_t
search_prune_ready(const search_view *view, const search_device *device)
{
	cudaError_t error;

	if (!search_prune_takes(view, device))
		return cudaSuccess;
	if (view->element == GG_ELEMENT_F32)
	{
		error = ready_prune<float, 1>(device);
		return error == cudaSuccess ? ready_prune<float, 2>(device) : error;
	}
	error = ready_prune<__half, 1>(device);
	return error == cudaSuccess ? ready_prune<__half, 2>(device) : error;
}

cudaError_t
search_prune_launch(const search_view *view, const prune_launch *launch,
					const search_device *device, cudaStream_t stream)
{
	const prune_args args = {
		launch->filter, launch->filter_stride, launch->to, launch->to_stride, launch->queries,
		launch->nq, launch->k, launch->keys, chunks_of(view),
		ERROR_FIXED + ERROR_PER_ELEMENT * (float) view->dim, launch->gate
	};
	const bool	one = launch->nq <= 8;

	if (view->element == GG_ELEMENT_F32)
		return one ? launch_prune<float, 1>(view, &args, device, stream) :
			launch_prune<float, 2>(view, &args, device, stream);
	return one ? launch_prune<__half, 1>(view, &args, device, stream) :
		launch_prune<__half, 2>(view, &args, device, stream);
}
