/*
 * draw.cuh
 *		Rows for benches, drawn on the device.
 *
 * They come from clusters of a low-dimensional space, bent through a small network into dim
 * dimensions, with noise.  A row is a function of its number and of what is drawn from alone.
 */
#ifndef GG_TEST_DRAW_CUH
#define GG_TEST_DRAW_CUH

#include "../../../kernels/common/cuda.h"
#include "../../../kernels/graph/list.cuh"

#include <algorithm>
#include <math.h>
#include <stdlib.h>
#include <vector>

/* What rows are drawn from.  Those of two seeds have one network, but other clusters. */
typedef struct draw_from
{
	uint32_t	dim;
	uint32_t	latent;			/* dimensions of the clusters' space, 1 .. 128 */
	uint32_t	clusters;
	bool		unit;			/* rows of unit length */
	long		seed;			/* DRAW_SEED, or that of other clusters */
} draw_from;
typedef struct model
{
	uint32_t	dim;
	uint32_t	latent;
	uint32_t	hidden;
	uint32_t	clusters;
	bool		unit;
	const float *centers;		/* clusters x latent */
	const float *spreads;
	const float *shares;		/* running sums, last 1 */
	const float *w1;			/* latent x hidden */
	const float *bias;
	const float *w2;			/* hidden x dim */
} model;

__device__ static float
draw_uniform(uint32_t row, uint32_t i, uint32_t seed)
{
	return ((float) gg_mix(gg_mix(row ^ seed) + i * 0x9E3779B1u) + 0.5f) * 2.3283064e-10f;
}

__device__ static float
draw_normal(uint32_t row, uint32_t i, uint32_t seed)
{
	const float a = draw_uniform(row, 2 * i, seed);
	const float b = draw_uniform(row, 2 * i + 1, seed);

	return sqrtf(-2.0f * logf(fmaxf(a, 1e-30f))) * cospif(2.0f * b);
}

/* a block of 128 threads a row */
static __global__ void
draw_rows_kernel(model m, uint32_t seed, uint32_t first, float *rows)
{
	__shared__ float z[128];
	__shared__ float hidden[256];
	__shared__ float norm;
	const uint32_t row = first + blockIdx.x;
	const uint32_t tid = threadIdx.x;
	const float pick = draw_uniform(row, 1000000, seed);
	uint32_t	cluster = 0;
	float		part = 0.0f;

	while (cluster + 1 < m.clusters && m.shares[cluster] < pick)
		cluster++;
	if (tid == 0)
		norm = 0.0f;
	if (tid < m.latent)
		z[tid] = m.centers[cluster * m.latent + tid] +
			m.spreads[cluster] * draw_normal(row, tid, seed);
	__syncthreads();
	for (uint32_t j = tid; j < m.hidden; j += 128)
	{
		float		sum = m.bias[j];

		for (uint32_t i = 0; i < m.latent; i++)
			sum = fmaf(z[i], m.w1[i * m.hidden + j], sum);
		hidden[j] = tanhf(sum);
	}
	__syncthreads();
	for (uint32_t d = tid; d < m.dim; d += 128)
	{
		float		sum = 0.02f * draw_normal(row, 2000 + d, seed);

		for (uint32_t j = 0; j < m.hidden; j++)
			sum = fmaf(hidden[j], m.w2[j * m.dim + d], sum);
		rows[(uint64_t) blockIdx.x * m.dim + d] = sum;
		part = fmaf(sum, sum, part);
	}
	if (!m.unit)
		return;
	atomicAdd(&norm, part);
	__syncthreads();
	for (uint32_t d = tid; d < m.dim; d += 128)
		rows[(uint64_t) blockIdx.x * m.dim + d] *= rsqrtf(norm);
}

static float
host_normal(void)
{
	const double a = drand48();
	const double b = drand48();

	return (float) (sqrt(-2.0 * log(a + 1e-300)) * cos(6.283185307179586 * b));
}

static gg_status
upload(const std::vector<float> &from, gg_cuda_buffer<float> *to)
{
	GG_TRY(to->allocate(from.size()));
	GG_CUDA_TRY(cudaMemcpy(to->get(), from.data(), from.size() * 4, cudaMemcpyHostToDevice));
	return gg_ok();
}

#define DRAW_SEED 7				/* of the network, and of most clusters */

/* The clusters' centers, spreads and shares. */
static void
draw_clusters(const draw_from *from, std::vector<float> *values)
{
	double		total = 0.0;
	double		sum = 0.0;

	for (int i = 0; i < 3; i++)
		values[i].clear();
	for (uint32_t i = 0; i < from->clusters * from->latent; i++)
		values[0].push_back(host_normal());
	for (uint32_t i = 0; i < from->clusters; i++)
	{
		const double u = drand48();

		values[1].push_back(0.25f + 0.5f * (float) drand48());
		values[2].push_back((float) (u * u + 0.05));
		total += u * u + 0.05;
	}
	for (uint32_t i = 0; i < from->clusters; i++)
		values[2][i] = (float) ((sum += values[2][i]) / total);
}

/* Rows number first .. first + n. */
static gg_status
draw_rows(const draw_from &from, uint32_t first, uint32_t n, gg_cuda_buffer<float> *rows)
{
	model		m = {from.dim, from.latent, std::max(2 * from.latent, 64u), from.clusters,
					 from.unit, NULL, NULL, NULL, NULL, NULL, NULL};
	std::vector<float> values[6];
	gg_cuda_buffer<float> buffers[6];

	srand48(DRAW_SEED);
	draw_clusters(&from, values);
	for (uint32_t i = 0; i < from.latent * m.hidden; i++)
		values[3].push_back(host_normal() / sqrtf((float) from.latent));
	for (uint32_t i = 0; i < m.hidden; i++)
		values[4].push_back(0.3f * host_normal());
	for (uint32_t i = 0; i < m.hidden * from.dim; i++)
		values[5].push_back(host_normal() / sqrtf((float) m.hidden));
	if (from.seed != DRAW_SEED)
	{
		srand48(from.seed);
		draw_clusters(&from, values);
	}
	for (int i = 0; i < 6; i++)
		GG_TRY(upload(values[i], &buffers[i]));
	m.centers = buffers[0].get();
	m.spreads = buffers[1].get();
	m.shares = buffers[2].get();
	m.w1 = buffers[3].get();
	m.bias = buffers[4].get();
	m.w2 = buffers[5].get();
	GG_TRY(rows->allocate((uint64_t) n * from.dim));
	draw_rows_kernel<<<n, 128>>>(m, 12345, first, rows->get());
	GG_CUDA_LAUNCHED("draw_rows_kernel");
	GG_CUDA_TRY(cudaDeviceSynchronize());
	return gg_ok();
}

#endif							/* GG_TEST_DRAW_CUH */
