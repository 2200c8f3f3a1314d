/*
 * emulator.cpp
 *		Fibers, their barriers, and the operations of warps (emulator.h).
 */
#include <algorithm>
#include <atomic>
#include <dlfcn.h>
#include <memory>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#include "include/cuda_fp16.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define STACK_BYTES ((size_t) 256 << 10)
#else
#define STACK_BYTES ((size_t) 64 << 10)
#endif

/* Stacks of a warp's lanes begin on other lines of the processor's cache. */
#define STACK_STEP 320
#define GUARD_BYTES ((size_t) 4096)
#define MOST_THREADS 1024		/* of a block */
#define MOST_LOOKS ((uint64_t) 10 << 20)	/* with nothing else between them */
#define FILL 0xA5				/* bytes of memory that nobody has written */

__thread dim3 gridDim;
__thread dim3 blockDim;

namespace emulate
{

__thread fiber *self;

static std::atomic<uint32_t> launches;

/* ---- failures ------------------------------------------------------------------ */

/* Which threads wait, by warps and what for. */
static void
tell_threads(const group *g)
{
	int			lines = 0;

	for (const warp &w : g->warps)
	{
		uint32_t	told = w.ended;

		for (uint32_t lane = 0; lane < 32; lane++)
		{
			const fiber *one = &w.fibers[lane];
			uint32_t	same = 0;

			if (!(w.lanes >> lane & 1) || (told >> lane & 1))
				continue;
			for (uint32_t l = lane; l < 32; l++)
				if ((w.lanes >> l & 1) && !(told >> l & 1) &&
					w.fibers[l].waits_for == one->waits_for && w.fibers[l].mask == one->mask)
					same |= 1u << l;
			told |= same;
			if (lines++ == 40)
				fprintf(stderr, "  ...\n");
			if (lines > 40)
				return;
			fprintf(stderr, "  block %u %u, warp %u, lanes %08x: %s", w.its_block->index.x,
					w.its_block->index.y, (uint32_t) (&w - &g->warps[0]) %
					(uint32_t) (g->warps.size() / g->blocks), same,
					one->waits_for != NULL ? one->waits_for : "run, or could");
			fprintf(stderr, one->mask != 0 ? " of %08x\n" : "\n", one->mask);
		}
		if (w.ended != 0 && w.ended != w.lanes)
			fprintf(stderr, "  block %u %u: lanes %08x ended\n", w.its_block->index.x,
					w.its_block->index.y, w.ended);
	}
}

static void
fail_in(const group *g, const char *format, va_list arguments)
{
	fflush(stdout);
	fprintf(stderr, "emulated device: ");
	vfprintf(stderr, format, arguments);
	fprintf(stderr, "\n");
	if (g != NULL)
	{
		fprintf(stderr, "in the kernel launched at %s:%d, %u x %u x %u blocks of %u x %u x %u\n",
				g->file, g->line, g->grid.x, g->grid.y, g->grid.z, g->threads.x, g->threads.y,
				g->threads.z);
		if (self != NULL)
			fprintf(stderr, "by thread %u %u %u of block %u %u %u\n", self->index.x, self->index.y,
					self->index.z, self->its_block->index.x, self->its_block->index.y,
					self->its_block->index.z);
		tell_threads(g);
	}
	abort();
}

static void
fail_outside(const group *g, const char *format,...)
{
	va_list		arguments;

	va_start(arguments, format);
	fail_in(g, format, arguments);
	va_end(arguments);
}

void
fail(const char *format,...)
{
	va_list		arguments;

	va_start(arguments, format);
	fail_in(self != NULL ? self->its_block->its_group : NULL, format, arguments);
	va_end(arguments);
	abort();
}

/* ---- switching -------------------------------------------------------------------- */

static void fiber_main(void);

/* Fibers of a host thread, with their stacks; kept for the next launch. */
struct fiber_pool
{
	std::unique_ptr<fiber[]> fibers;
	size_t		count = 0;
	std::vector<char *> stacks;

	fiber	   *take(size_t wanted);
	~fiber_pool();
};

static thread_local fiber_pool pool;

/* Where the launch goes on; of its host thread. */
static __thread fiber *host;

fiber *
fiber_pool::take(size_t wanted)
{
	if (count >= wanted)
		return fibers.get();
	while (stacks.size() < wanted)
	{
		char	   *stack = (char *) mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
										  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (stack == MAP_FAILED || mprotect(stack, GUARD_BYTES, PROT_NONE) != 0)
			fail("no memory for the stacks of %zu threads", wanted);
		stacks.push_back(stack);
	}
	fibers.reset(new fiber[wanted] ());
	count = wanted;
	for (size_t i = 0; i < wanted; i++)
	{
		fibers[i].stack = stacks[i];
		fibers[i].stack_bytes = STACK_BYTES;
	}
	return fibers.get();
}

fiber_pool::~fiber_pool()
{
	for (char *stack : stacks)
	{
#ifdef __SANITIZE_ADDRESS__
		/* fibers never return: their last frames would spoil what is mapped there next */
		__asan_unpoison_memory_region(stack, STACK_BYTES);
#endif
		(void) munmap(stack, STACK_BYTES);
	}
}

#ifdef __x86_64__

static void
prepare_context(fiber *f)
{
	void	  **top = (void **) (f->stack + STACK_BYTES - f->lane * STACK_STEP) - 3;

	/* fiber_main() begins as after a call, which is at a multiple of 16 */
	top[0] = NULL;
	top[-1] = (void *) fiber_main;
	f->context = top - 1;
}

/*
 * Where a fiber goes on lies on its stack, and on that the frame's register, which no list of
 * clobbers may have.  The compiler keeps the other registers.  A jump in place of a return: its
 * target is that of the fibers before, for all wait at few places.
 */
static inline __attribute__((always_inline)) void
switch_context(fiber *from, fiber *to)
{
	void	  **kept = &from->context;
	void	   *next = to->context;

	__asm__ volatile("subq $128, %%rsp\n\t"	/* what a leaf may have below its stack */
					 "pushq %%rbp\n\t"
					 "leaq 1f(%%rip), %%rcx\n\t"
					 "pushq %%rcx\n\t"
					 "movq %%rsp, (%%rax)\n\t"
					 "movq %%rdx, %%rsp\n\t"
					 "popq %%rcx\n\t"
					 "jmp *%%rcx\n"
					 "1:\n\t"
					 "popq %%rbp\n\t"
					 "addq $128, %%rsp\n\t"
					 : "+a" (kept), "+d" (next)
					 :
					 : "rbx", "rcx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
					 "r15", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
					 "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",
					 "xmm14", "xmm15");
}

#else

static void
prepare_context(fiber *f)
{
	if (f->context == NULL)
		f->context = new ucontext_t;
	ucontext_t *context = (ucontext_t *) f->context;

	(void) getcontext(context);
	context->uc_stack.ss_sp = f->stack;
	context->uc_stack.ss_size = STACK_BYTES;
	context->uc_link = NULL;
	makecontext(context, fiber_main, 0);
}

static inline void
switch_context(fiber *from, fiber *to)
{
	if (from->context == NULL)
		from->context = new ucontext_t;
	(void) swapcontext((ucontext_t *) from->context, (ucontext_t *) to->context);
}

#endif

/* over: `from` does not come back. */
static inline __attribute__((always_inline)) void
switch_fiber(fiber *from, fiber *to, bool over)
{
	self = to == host ? NULL : to;
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_start_switch_fiber(over ? NULL : &from->fake_stack, to->stack, to->stack_bytes);
	switch_context(from, to);
	__sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#else
	(void) over;
	switch_context(from, to);
#endif
}

/* A fiber of the warp that can go on; it is not ready any more. */
static inline fiber *
take_ready(warp *w, bool descending)
{
	const uint32_t lane = (uint32_t) (descending ? 31 - __builtin_clz(w->ready) :
									  __builtin_ctz(w->ready));

	w->ready &= ~(1u << lane);
	return &w->fibers[lane];
}

/* The next that can go on, from this warp on; the host when there is none. */
static fiber *
next_fiber(group *g, warp *from)
{
	warp	   *const first = &g->warps.front();
	warp	   *const last = &g->warps.back();
	warp	   *w = from;

	do
	{
		if (w->ready != 0)
			return take_ready(w, g->descending);
		if (g->descending)
			w = w == first ? last : w - 1;
		else
			w = w == last ? first : w + 1;
	} while (w != from);
	return host;
}

/* The running fiber waits for others. */
static inline __attribute__((always_inline)) void
wait_for(const char *what, uint32_t mask)
{
	fiber	   *const f = self;
	group	   *const g = f->its_block->its_group;

	f->waits_for = what;
	f->mask = mask;
	g->looks = 0;
	switch_fiber(f, next_fiber(g, f->its_warp), false);
	f->waits_for = NULL;
	f->mask = 0;
}

void
look_again(void)
{
	fiber	   *const f = self;
	group	   *const g = f->its_block->its_group;
	warp	   *w = f->its_warp;
	fiber	   *next;

	if (++g->looks > MOST_LOOKS)
		fail("a thread looks for what no other writes");
	f->its_warp->ready |= 1u << f->lane;
	/* other warps first: this one's ready lane may be this one */
	if (g->descending)
		w = w == &g->warps.front() ? &g->warps.back() : w - 1;
	else
		w = w == &g->warps.back() ? &g->warps.front() : w + 1;
	next = next_fiber(g, w);
	if (next != f)
		switch_fiber(f, next, false);
}

/* ---- barriers and warps --------------------------------------------------------------- */

static void
release_block(block *b, warp *warps, size_t nwarps)
{
	for (size_t i = 0; i < nwarps; i++)
		warps[i].ready |= warps[i].lanes & ~warps[i].ended;
	b->found = b->truths;
	b->took_part = b->arrived;
	b->truths = 0;
	b->arrived = 0;
	b->barrier = NULL;
}

static size_t
block_warps(const group *g)
{
	return g->warps.size() / g->blocks;
}

void
block_barrier(const char *name, bool truth)
{
	fiber	   *const f = self;
	block	   *const b = f->its_block;
	group	   *const g = b->its_group;

	if (b->arrived > 0 && b->barrier != name && strcmp(b->barrier, name) != 0)
		fail("threads of a block are at different barriers, %s and %s", name, b->barrier);
	b->barrier = name;
	b->arrived++;
	b->truths += truth;
	if (b->arrived < b->live)
	{
		wait_for(name, 0);
		return;
	}
	release_block(b, &g->warps[b->rank * block_warps(g)], block_warps(g));
	f->its_warp->ready &= ~(1u << f->lane);
}

static void
release_group(group *g)
{
	for (warp &w : g->warps)
		w.ready |= w.lanes & ~w.ended;
	g->arrived = 0;
}

void
cluster_barrier(void)
{
	fiber	   *const f = self;
	group	   *const g = f->its_block->its_group;

	if (!g->cluster)
		fail("a cluster's barrier in a launch without clusters");
	if (++g->arrived < g->live)
	{
		wait_for("the cluster's barrier", 0);
		return;
	}
	release_group(g);
	f->its_warp->ready &= ~(1u << f->lane);
}

void
warp_operation(uint32_t mask, const char *name, completion complete)
{
	fiber	   *const f = self;
	warp	   *const w = f->its_warp;
	const uint32_t own = 1u << f->lane;
	uint32_t	i = 0;
	uint32_t	arrived;

	if (!(mask & own))
		fail("%s: the mask %08x is without the lane %u that names it", name, mask, f->lane);
	while (i < w->waiting && w->at[i].mask != mask)
		i++;
	if (i == w->waiting)
	{
		w->at[i] = {mask, 0, name, complete};
		w->waiting++;
	}
	if (w->at[i].name != name && strcmp(w->at[i].name, name) != 0)
		fail("lanes of the mask %08x are at different operations, %s and %s", mask, name,
			 w->at[i].name);
	arrived = w->at[i].arrived |= own;
	if (arrived != (mask & w->lanes & ~w->ended))
	{
		wait_for(name, mask);
		return;
	}
	w->at[i] = w->at[--w->waiting];
	complete(w, arrived);
	w->ready |= arrived & ~own;
}

/* The running fiber has come to its end. */
static void
end_thread(void)
{
	fiber	   *const f = self;
	warp	   *const w = f->its_warp;
	block	   *const b = f->its_block;
	group	   *const g = b->its_group;

	w->ended |= 1u << f->lane;
	f->copies.clear();
	f->copy_groups.clear();
	b->live--;
	g->live--;
	g->looks = 0;
	/* an operation is for the lanes of its mask that have not ended */
	for (uint32_t i = 0; i < w->waiting;)
	{
		const uint32_t arrived = w->at[i].arrived;

		if (arrived != (w->at[i].mask & w->lanes & ~w->ended))
		{
			i++;
			continue;
		}
		w->at[i].complete(w, arrived);
		w->ready |= arrived;
		w->at[i] = w->at[--w->waiting];
	}
	if (b->live > 0 && b->arrived == b->live)
		release_block(b, &g->warps[b->rank * block_warps(g)], block_warps(g));
	if (g->live > 0 && g->arrived == g->live)
		release_group(g);
	switch_fiber(f, next_fiber(g, w), true);
}

static void
fiber_main(void)
{
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
	{
		fiber	   *const f = self;

		f->its_block->begun = true;
		f->its_block->its_group->run(f->its_block->its_group->work);
	}
	end_thread();
	abort();
}

/* ---- operations of a warp ------------------------------------------------------------------ */

void
complete_nothing(warp *, uint32_t)
{
}

void
complete_exchange(warp *w, uint32_t lanes)
{
	for (uint32_t l = 0; l < 32; l++)
	{
		const uint32_t source = (uint32_t) w->fibers[l].in[1] & 31;

		if (!(lanes >> l & 1))
			continue;
		if (!(lanes >> source & 1))
			fail("lane %u reads from lane %u, which does not take part in %08x", l, source, lanes);
		w->fibers[l].out[0] = w->fibers[source].in[0];
	}
}

void
complete_ballot(warp *w, uint32_t lanes)
{
	uint32_t	yes = 0;

	for (uint32_t l = 0; l < 32; l++)
		if ((lanes >> l & 1) && w->fibers[l].in[0] != 0)
			yes |= 1u << l;
	for (uint32_t l = 0; l < 32; l++)
		if (lanes >> l & 1)
		{
			w->fibers[l].out[0] = yes;
			w->fibers[l].out[1] = lanes;
		}
}

void
complete_match(warp *w, uint32_t lanes)
{
	for (uint32_t l = 0; l < 32; l++)
		if (lanes >> l & 1)
		{
			w->fibers[l].out[0] = 0;
			for (uint32_t other = 0; other < 32; other++)
				if ((lanes >> other & 1) && w->fibers[other].in[0] == w->fibers[l].in[0])
					w->fibers[l].out[0] |= 1u << other;
		}
}

static void
all_lanes(uint32_t lanes, const char *name)
{
	if (lanes != 0xFFFFFFFFu)
		fail("%s by the lanes %08x alone", name, lanes);
}

/* Lane l gets of matrix i the elements 2 (l % 4) and the next of row l / 4, which lane 8 i + l / 4
 * names. */
void
complete_matrix(warp *w, uint32_t lanes)
{
	all_lanes(lanes, "ldmatrix");
	for (uint32_t l = 0; l < 32; l++)
		for (uint32_t i = 0; i < 4; i++)
		{
			const char *row = (const char *) w->fibers[8 * i + l / 4].in[0];

			memcpy((uint32_t *) w->fibers[l].in[1] + i, row + l % 4 * 4, 4);
		}
}

/* m16n8k16: as the PTX manual lays the operands out over the lanes. */
void
complete_product(warp *w, uint32_t lanes)
{
	uint16_t	halves[16 + 8][16];	/* a, then b, whose rows of 8 lie two in one */
	float		a[16 + 8][16];
	float		(*const b)[8] = (float (*)[8]) a[16];
	float		sums[16][8];

	all_lanes(lanes, "mma");
	for (uint32_t l = 0; l < 32; l++)
	{
		const fiber *f = &w->fibers[l];
		const float *own = (const float *) f->in[3];
		const uint32_t g = l / 4;
		const uint32_t t = l % 4 * 2;

		for (uint32_t half = 0; half < 2; half++)
		{
			halves[g][t + half] = (uint16_t) (f->in[0] >> 16 * half);
			halves[g + 8][t + half] = (uint16_t) (f->in[0] >> (32 + 16 * half));
			halves[g][t + 8 + half] = (uint16_t) (f->in[1] >> 16 * half);
			halves[g + 8][t + 8 + half] = (uint16_t) (f->in[1] >> (32 + 16 * half));
			halves[16 + t / 2][half * 8 + g] = (uint16_t) (f->in[2] >> 16 * half);
			halves[20 + t / 2][half * 8 + g] = (uint16_t) (f->in[2] >> (32 + 16 * half));
			sums[g][t + half] = own[half];
			sums[g + 8][t + half] = own[2 + half];
		}
	}
	for (uint32_t i = 0; i < 24 * 16; i++)
		(&a[0][0])[i] = float_of_half((&halves[0][0])[i]);
	for (uint32_t row = 0; row < 16; row++)
		for (uint32_t k = 0; k < 16; k++)
			for (uint32_t column = 0; column < 8; column++)
				sums[row][column] += a[row][k] * b[k][column];
	for (uint32_t l = 0; l < 32; l++)
	{
		float	   *own = (float *) w->fibers[l].in[3];

		for (uint32_t half = 0; half < 2; half++)
		{
			own[half] = sums[l / 4][l % 4 * 2 + half];
			own[2 + half] = sums[l / 4 + 8][l % 4 * 2 + half];
		}
	}
}

/* m16n8k32, of unsigned bytes and signed ones. */
void
complete_byte_product(warp *w, uint32_t lanes)
{
	uint8_t		a[16][32];
	int8_t		b[32][8];

	all_lanes(lanes, "mma of bytes");
	for (uint32_t l = 0; l < 32; l++)
	{
		const fiber *f = &w->fibers[l];
		const uint32_t g = l / 4;

		for (uint32_t i = 0; i < 4; i++)
		{
			const uint32_t k = l % 4 * 4 + i;

			a[g][k] = (uint8_t) (f->in[0] >> 8 * i);
			a[g + 8][k] = (uint8_t) (f->in[0] >> (32 + 8 * i));
			a[g][k + 16] = (uint8_t) (f->in[1] >> 8 * i);
			a[g + 8][k + 16] = (uint8_t) (f->in[1] >> (32 + 8 * i));
			b[k][g] = (int8_t) (f->in[2] >> 8 * i);
			b[k + 16][g] = (int8_t) (f->in[2] >> (32 + 8 * i));
		}
	}
	for (uint32_t l = 0; l < 32; l++)
		for (uint32_t i = 0; i < 4; i++)
		{
			const uint32_t row = l / 4 + i / 2 * 8;
			const uint32_t column = l % 4 * 2 + i % 2;
			uint32_t	sum = 0;

			for (uint32_t k = 0; k < 32; k++)
				sum += (uint32_t) (a[row][k] * b[k][column]);
			((uint32_t *) w->fibers[l].in[3])[i] += sum;
		}
}

/* ---- shared memory ------------------------------------------------------------------------- */

static const char dynamic_key = 0;

static char *
add_variable(block *b, const void *key, size_t bytes, size_t align)
{
	variable	v = {key, NULL, bytes};

	if (posix_memalign((void **) &v.memory, align < sizeof(void *) ? sizeof(void *) : align,
					   bytes) != 0)
		fail("out of memory");
	memset(v.memory, FILL, bytes);
	b->shared.push_back(v);
	return v.memory;
}

void *
dynamic_shared(void)
{
	return self->its_block->shared[0].memory;
}

void *
static_shared(const void *key, size_t bytes, size_t align)
{
	block	   *const b = self->its_block;
	const size_t asked = b->its_group->asked_bytes;
	const size_t most = asked > 0 ? EMULATE_SHARED_BYTES : EMULATE_SHARED_USUAL;
	size_t		total = asked;

	for (const variable &v : b->shared)
	{
		if (v.key == key)
			return v.memory;
		if (v.key != &dynamic_key)
			total += v.bytes;
		else if (v.bytes > asked)
			total = v.bytes;
	}
	if (total + bytes > most)
		fail("%zu bytes of shared memory, %zu at most", total + bytes, most);
	return add_variable(b, key, bytes, align);
}

void *
cluster_address(const void *address, uint32_t rank)
{
	block	   *const own = self->its_block;
	group	   *const g = own->its_group;

	if (!g->cluster || rank >= g->blocks)
		fail("there is no block %u in the cluster", rank);
	block	   *const other = &g->members[rank];

	if (!other->begun)
		fail("shared memory of block %u, which has not begun", rank);
	if (other->live == 0)
		fail("shared memory of block %u, which has ended", rank);
	for (const variable &v : own->shared)
		if ((const char *) address >= v.memory && (const char *) address < v.memory + v.bytes)
			for (const variable &theirs : other->shared)
				if (theirs.key == v.key)
					return theirs.memory + ((const char *) address - v.memory);
	fail("%p is not in shared memory that both blocks have", address);
}

uint32_t
cluster_blocks(void)
{
	return self->its_block->its_group->blocks;
}

uint32_t
cluster_rank(void)
{
	return self->its_block->rank;
}

/* ---- asynchronous copies ------------------------------------------------------------------- */

void
copy_later(void *to, const void *from, uint32_t bytes, uint32_t taken)
{
	self->copies.push_back({to, from, bytes, taken});
}

void
copies_commit(void)
{
	self->copy_groups.push_back((uint32_t) self->copies.size());
}

void
copies_wait(uint32_t pending)
{
	fiber	   *const f = self;
	const size_t groups = f->copy_groups.size();
	uint32_t	end;

	if (groups <= pending)
		return;
	end = f->copy_groups[groups - pending - 1];
	for (uint32_t i = 0; i < end; i++)
	{
		const copy &c = f->copies[i];

		memcpy(c.to, c.from, c.taken);
		memset((char *) c.to + c.taken, 0, c.bytes - c.taken);
	}
	f->copies.erase(f->copies.begin(), f->copies.begin() + end);
	f->copy_groups.erase(f->copy_groups.begin(), f->copy_groups.end() - pending);
	for (uint32_t &at : f->copy_groups)
		at -= end;
}

/* ---- launches ------------------------------------------------------------------------------- */

static void
begin_block(group *g, uint32_t rank, uint64_t number, fiber *fibers)
{
	block	   *b = &g->members[rank];
	const uint32_t threads = g->threads.x * g->threads.y * g->threads.z;
	warp	   *warps = &g->warps[rank * block_warps(g)];

	b->index = {(unsigned) (number % g->grid.x), (unsigned) (number / g->grid.x % g->grid.y),
				(unsigned) (number / g->grid.x / g->grid.y)};
	b->rank = rank;
	b->its_group = g;
	b->begun = false;
	b->live = threads;
	b->arrived = b->truths = b->found = b->took_part = 0;
	b->barrier = NULL;
	if (b->shared.empty())
		(void) add_variable(b, &dynamic_key, g->dynamic_bytes, 1024);
	else
		for (variable &v : b->shared)
			memset(v.memory, FILL, v.bytes);
	for (size_t i = 0; i < block_warps(g); i++)
	{
		const uint32_t left = threads - (uint32_t) i * 32;

		warps[i].its_block = b;
		warps[i].fibers = fibers + i * 32;
		warps[i].lanes = left >= 32 ? 0xFFFFFFFFu : (1u << left) - 1;
		warps[i].ready = warps[i].lanes;
		warps[i].ended = 0;
		warps[i].waiting = 0;
	}
	for (uint32_t i = 0; i < threads; i++)
	{
		fiber	   *f = &fibers[i];

		f->index = {i % g->threads.x, i / g->threads.x % g->threads.y,
					i / g->threads.x / g->threads.y};
		f->lane = i % 32;
		f->its_warp = &warps[i / 32];
		f->its_block = b;
		f->waits_for = NULL;
		f->mask = 0;
		prepare_context(f);
	}
}

static void
run_group(group *g, uint64_t first)
{
	const uint32_t threads = g->threads.x * g->threads.y * g->threads.z;
	const size_t room = block_warps(g) * 32;
	fiber	   *fibers = pool.take(room * g->blocks);

	for (uint32_t rank = 0; rank < g->blocks; rank++)
		begin_block(g, rank, first + rank, fibers + rank * room);
	g->live = threads * g->blocks;
	g->arrived = 0;
	g->looks = 0;
	switch_fiber(host, next_fiber(g, g->descending ? &g->warps.back() : &g->warps.front()), false);
	if (g->live > 0)
		fail_outside(g, "all threads wait, for what does not come");
}

/* The stack of the host thread, of which AddressSanitizer wants to hear. */
static void
know_stack(fiber *f)
{
#ifdef __SANITIZE_ADDRESS__
	pthread_attr_t attributes;
	void	   *stack = NULL;

	if (pthread_getattr_np(pthread_self(), &attributes) != 0)
		return;
	(void) pthread_attr_getstack(&attributes, &stack, &f->stack_bytes);
	(void) pthread_attr_destroy(&attributes);
	f->stack = (char *) stack;
#else
	(void) f;
#endif
}

/* GG_EMULATE_LAUNCHES in the environment: a line for each launch, which `launches` reads. */
static void
tell(const group &g, const void *kernel, uint64_t blocks)
{
	size_t		shared = 0;
	Dl_info		its;			/* the program, or the library, that the kernel is in */

	if (getenv("GG_EMULATE_LAUNCHES") == NULL || dladdr(kernel, &its) == 0)
		return;
	for (const variable &v : g.members[0].shared)
		shared += v.bytes;
	printf("launch %lx %lu %zu\n",
		   (unsigned long) ((const char *) kernel - (const char *) its.dli_fbase),
		   (unsigned long) blocks, shared);
}

cudaError_t
launch_grid(const grid &shape, const void *kernel, void (*run) (void *work), void *work)
{
	const uint64_t blocks = (uint64_t) shape.blocks.x * shape.blocks.y * shape.blocks.z;
	const uint64_t threads = (uint64_t) shape.threads.x * shape.threads.y * shape.threads.z;
	const uint64_t together = shape.cooperative ? blocks : shape.cluster > 0 ? shape.cluster : 1;
	group		g = {};
	fiber		caller = {};
	uint64_t	groups;

	if (self != NULL)
		fail("a launch by a kernel");
	if (blocks == 0 || threads == 0 || threads > MOST_THREADS || shape.blocks.y > 65535 ||
		shape.blocks.z > 65535)
		return remember(cudaErrorInvalidConfiguration);
	if (!is_of_device(shape.stream))
		return remember(cudaErrorInvalidResourceHandle);
	if (shape.shared_bytes > function_shared_limit(kernel))
		return remember(cudaErrorInvalidValue);
	if (shape.cooperative && blocks > (uint64_t) multiprocessors())
		return remember(cudaErrorCooperativeLaunchTooLarge);
	if (shape.cluster > 16 || together > (uint64_t) multiprocessors() ||
		shape.blocks.x % together != 0)
		return remember(cudaErrorInvalidClusterSize);
	g.grid = shape.blocks;
	g.threads = shape.threads;
	g.blocks = (uint32_t) together;
	g.cluster = shape.cluster > 0;
	g.descending = launches.fetch_add(1) & 1;
	g.file = shape.file;
	g.line = shape.line;
	g.members.resize(together);
	g.warps.resize(together * ((threads + 31) / 32));
	g.dynamic_bytes = shape.shared_bytes;
	g.asked_bytes = function_shared_asked(kernel);
	g.run = run;
	g.work = work;
	know_stack(&caller);
	host = &caller;
	gridDim = shape.blocks;
	blockDim = shape.threads;
	groups = blocks / together;
	for (uint64_t i = 0; i < groups; i++)
		run_group(&g, (g.descending ? groups - 1 - i : i) * together);
	tell(g, kernel, blocks);
	for (block &b : g.members)
		for (variable &v : b.shared)
			free(v.memory);
	return cudaSuccess;
}

}
