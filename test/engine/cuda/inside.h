/*
 * inside.h
 *		What tests ask of the inside of the CUDA engine, in host memory.
 */
#ifndef GG_TEST_CUDA_INSIDE_H
#define GG_TEST_CUDA_INSIDE_H

#include "../../../src/engine/engine.h"

/* Stages of a build, as stage_optimize() and stage_diversify() run the CPU engine's. */
extern gg_status inside_cuda_optimize(const uint32_t *knn, uint32_t n, uint32_t k, uint32_t degree,
									  const gg_control *control, uint32_t *graph);
extern gg_status inside_cuda_diversify(const gg_dataset *data, const gg_build_params *params,
									   const uint32_t *knn, const gg_control *control,
									   uint32_t *graph);

/* The codes of the first n rows of a finished index, side by side. */
extern gg_status inside_cuda_codes(const gg_index *index, uint32_t n, uint8_t *records);

#endif							/* GG_TEST_CUDA_INSIDE_H */
