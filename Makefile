# gpugraph: build, install, test, demo.
#
#	make				the module, with the CUDA engine where nvcc is found
#	make NVCC=			the module with the CPU engine only
#	make install		into the PostgreSQL that pg_config names
#	make test			everything, from a bare machine on (see test/run)
#	make test-all		SQL, isolation, pgTAP and TAP tests with PostgreSQL 15 to 19 (see test/all)
#	make test-KIND		one kind (test/run lists them); TESTS="a b" picks some of it
#	make emulated		the module with the CUDA engine on an emulated device (test/run --emulated)
#	make gpu-bundle		everything that tests on a bare GPU host need, as one file (test/gpu/run)
#	make torture		random statements and crashes for SECONDS from SEED (see test/torture/run)
#	make fuzz			inputs that nobody wrote, SECONDS for each parser (see test/fuzz/run)
#	make demo			a guided tour on real data, from a bare machine on (see test/demo/run)
#	make setup			what the two above need and the machine lacks (needs root)
#	make deb			a Debian package, with CUDA where nvcc is found (see packaging/deb)
#	make dist			the archive for PGXN (see packaging/dist)
#	make release		all that a release publishes, in build/release (see packaging/release)

EXTENSION = gpugraph
MODULE_big = gpugraph
DATA = $(wildcard sql/*--*.sql)
PGFILEDESC = "gpugraph - CAGRA graph index access method"

OBJS = $(patsubst %.c,%.o,$(wildcard src/*.c src/*/*.c src/*/*/*.c src/*/*/*/*.c))
ENGINE_OBJS = $(filter src/engine/%,$(OBJS))

# Both found by pg_regress below the current directory: test/sql/x.sql and expected/x.out.
REGRESS = $(sort $(patsubst test/sql/%.sql,%,$(wildcard test/sql/*.sql)))
REGRESS_OPTS = --inputdir=test --load-extension=vector --load-extension=gpugraph

# make test sets this; not the default, for a compiler newer than ours may warn of something new.
WERROR = 0

PG_CONFIG ?= pg_config

# The last line of make test is its result, also when make calls make.
MAKEFLAGS += --no-print-directory

# ---- CUDA -----------------------------------------------------------------
# nvcc is looked for unless the caller said which, or (NVCC=) none.
ifeq ($(origin NVCC),undefined)
NVCC := $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
endif

CU_SOURCES = $(wildcard kernels/*.cu kernels/*/*.cu)
CU_OBJS =
ifneq ($(strip $(NVCC)),)
CU_OBJS = $(patsubst %.cu,%.o,$(CU_SOURCES))
CUDA_HOME ?= $(patsubst %/bin/,%,$(dir $(realpath $(shell command -v $(firstword $(NVCC))))))
CUDA_VERSION := $(shell $(NVCC) --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')
endif

# Machine code for compute capability 8.0 (A100), 8.6 (A10, RTX 30), 8.9 (L4, L40S, RTX 40), 9.0
# (H100, H200), 10.0 and 12.0 (Blackwell), as far as nvcc knows them, and PTX for what comes after.
# Code for X.y runs on X.z where z is larger: that for 12.0 on 12.1 (GB10), for 10.0 on 10.3.
# Two front ends: what comes before 9.0 has no thread block clusters. To compile for one GPU alone:
# NVCC_GENCODE='-gencode arch=compute_90,code=sm_90', or NVCC_GENCODE=-arch=native.
ifeq ($(origin NVCC_GENCODE),undefined)
ifneq ($(CU_OBJS),)
CUDA_CODES := $(shell $(NVCC) --list-gpu-code 2>/dev/null)
NVCC_GENCODE := $(foreach code,$(filter sm_80 sm_86 sm_89,$(CUDA_CODES)), \
					-gencode arch=compute_80,code=$(code)) \
				$(foreach code,$(filter sm_90 sm_100 sm_120,$(CUDA_CODES)) compute_90, \
					-gencode arch=compute_90,code=$(code)) \
				$(if $(filter sm_120,$(CUDA_CODES)),--compress-mode=size,-Xfatbin -compress-all)
endif
endif
# What the kernels are compiled for, for the message where that is not what the device wants; empty
# where it is not in NVCC_GENCODE (-arch=native).
GENCODE_CODES := $(shell echo '$(NVCC_GENCODE)' | sed 's/arch=compute_[0-9]*[af]*,//g' | \
				   grep -oE '(sm|compute)_[0-9]+[af]?')
empty :=
GENCODE_CODES := $(subst $(empty) $(empty),+,$(strip $(GENCODE_CODES)))
# Hidden symbols: only the ops table crosses to src/, within the one library.
NVCCFLAGS ?= -O3 -std=c++17 -lineinfo
override NVCCFLAGS += $(NVCC_GENCODE) -Isrc -DGG_WITH_CUDA -DGG_CUDA_CODES=$(GENCODE_CODES) \
					  -Xcompiler -fPIC,-Wall,-fvisibility=hidden

# ---- flags ----------------------------------------------------------------
# Lazy (=): includedir_server is PGXS's and known only below. pgvector installs its headers in
# extension/vector there.
PG_CPPFLAGS = -Isrc -I$(includedir_server)/extension $(if $(CU_OBJS),-DGG_WITH_CUDA)

# PostgreSQL's own headers use C99 inline functions with unused parameters and mixed signedness, and
# PGXS asks for declarations before statements, which C99 code need not obey.
PG_CFLAGS = -std=gnu11 -Wextra -Wno-unused-parameter -Wno-sign-compare \
			-Wno-missing-field-initializers -Wno-declaration-after-statement -MMD -MP

ifneq ($(WERROR),0)
PG_CFLAGS += -Werror
override NVCCFLAGS += -Werror all-warnings
endif

# cudart is linked statically, so that the module loads on a host without CUDA; it wants the three
# system libraries, and a kernel file's host code may want the C++ one. Kernel objects are not in
# OBJS, because PGXS would ask clang for bitcode of each.
SHLIB_LINK = -lm -lpthread
ifneq ($(CU_OBJS),)
SHLIB_LINK += $(CU_OBJS) -L$(firstword $(wildcard $(CUDA_HOME)/lib64 $(CUDA_HOME)/lib)) \
			  -lcudart_static -lrt -ldl -Wl,--push-state,--as-needed -lstdc++ -Wl,--pop-state
endif

EXTRA_CLEAN = $(OBJS:.o=.d) $(CU_SOURCES:.cu=.o) $(CU_SOURCES:.cu=.d) build/flags results \
			  regression.diffs regression.out

# No bitcode: the functions that SQL calls wrap loops over rows, and nothing there is worth inlining
# into a query; this also spares the build clang.
override with_llvm = no

# ---- PostgreSQL -----------------------------------------------------------
# On a bare machine there is no PGXS yet; then only the targets that install it work.
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifneq ($(wildcard $(PGXS)),)

all: announce

include $(PGXS)

# Distances and list updates profit from -O3. The engine shares nothing with other libraries but
# what src/ calls, and hidden symbols let the compiler inline across its functions. Private:
# build/flags, which they need, is not to be made with these when one of them is asked for alone.
$(ENGINE_OBJS): private override CFLAGS += -O3 -fvisibility=hidden
# The same bytes on every machine, those that multiply and add in one operation included.
src/engine/cpu/search/codes.o: private override CFLAGS += -ffp-contract=off

# Another PostgreSQL, other flags, with or without CUDA: build again.
$(OBJS) $(CU_OBJS): build/flags
FLAGS_NOW = $(VERSION) $(CC) $(CPPFLAGS) $(CFLAGS) \
			$(if $(CU_OBJS),$(NVCC) $(CUDA_VERSION) $(NVCCFLAGS))
build/flags: FORCE
	@mkdir -p build
	@echo '$(subst ','\'',$(FLAGS_NOW))' | cmp -s - $@ || echo '$(subst ','\'',$(FLAGS_NOW))' >$@

$(shlib): $(CU_OBJS)

# These take minutes: one line tells how far it is, also under make -s.
kernels/%.o: kernels/%.cu
	@n=0; for f in $(CU_SOURCES); do n=$$((n + 1)); [ $$f != $< ] || \
		echo "nvcc $<, file $$n of $(words $(CU_SOURCES))"; done
	$(NVCC) $(NVCCFLAGS) -MMD -MP -MF kernels/$*.d -c -o $@ $<

-include $(OBJS:.o=.d) $(patsubst %.o,%.d,$(CU_OBJS))

# ---- the emulated device --------------------------------------------------
# The module with the CUDA engine, whose device is the processor (test/engine/emulate): for
# test/run --emulated. initial-exec: kernels' fibers look at variables of their thread all the time.
EMULATED = build/emulated
EMULATED_OBJS = $(OBJS:%=$(EMULATED)/%)
EMULATED_ENGINE_OBJS = $(ENGINE_OBJS:%=$(EMULATED)/%)

emulated: $(EMULATED)/gpugraph.so

$(EMULATED)/gpugraph.so: $(EMULATED_OBJS) emulated-kernels
	$(LINK.shared) -o $@ $(EMULATED_OBJS) $(EMULATED)/*.o $(EMULATED)/kernels/*.o \
		$(EMULATED)/kernels/*/*.o $(LDFLAGS) -lm -lpthread -lstdc++

emulated-kernels:
	@$(MAKE) -C test/engine/emulate objects BUILD=$(CURDIR)/$(EMULATED) SIZES= \
		PIC='-fPIC -fvisibility=hidden -ftls-model=initial-exec'

$(EMULATED_ENGINE_OBJS): private override CFLAGS += -O3 -fvisibility=hidden
$(EMULATED)/src/engine/cpu/search/codes.o: private override CFLAGS += -ffp-contract=off

$(EMULATED)/src/%.o: src/%.c build/flags
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(CPPFLAGS) -DGG_WITH_CUDA -c -o $@ $<

-include $(EMULATED_OBJS:.o=.d)

else

all install installcheck clean:
	@echo "PostgreSQL's server headers were not found by '$(PG_CONFIG) --pgxs':" >&2
	@echo "run 'make setup' as root, or install them with your package manager" >&2
	@echo "(Debian: postgresql-server-dev-NN)." >&2
	@false

endif

announce:
ifeq ($(strip $(NVCC)),)
	@echo "CUDA: nvcc not found, building the CPU engine only"
else ifeq ($(CU_SOURCES),)
	@echo "CUDA: nvcc $(CUDA_VERSION) found, but no kernels are there: building the CPU engine only"
else
	@echo "CUDA: nvcc $(CUDA_VERSION) found"
endif

FORCE:

# ---- packages -------------------------------------------------------------
deb:
	@PG_CONFIG='$(PG_CONFIG)' NVCC='$(NVCC)' bash packaging/deb

dist:
	@bash packaging/dist

release:
	@bash packaging/release

.PHONY: deb dist release

# ---- tests and demo -------------------------------------------------------
setup:
	@bash test/setup

test:
	@bash test/run

test-all:
	@bash test/all

test-style test-engine test-sql test-pgtap test-tap test-torture test-isolation test-versions \
test-clients test-frameworks test-adapters test-demo test-readme test-levels:
	@bash test/run $(patsubst test-%,%,$@)

# PARTS="a b" runs some of it, ROUND=N one round.
torture:
	@TORTURE_SECONDS='$(SECONDS)' TORTURE_SEED='$(SEED)' TORTURE_ROUND='$(ROUND)' \
		bash test/torture/run $(PARTS)

sanitize:
	@bash test/run sanitizers

fuzz:
	@bash test/fuzz/run $(or $(SECONDS),60) $(PARTS)

gpu-bundle:
	@bash test/gpu/bundle

demo:
	@bash test/demo/run $(if $(KEEP),--keep)

.PHONY: all install installcheck clean announce FORCE setup test demo gpu-bundle emulated \
		emulated-kernels torture fuzz sanitize \
		test-all test-style test-engine test-sql test-pgtap test-tap test-torture test-isolation \
		test-versions test-clients test-frameworks test-adapters test-demo test-readme \
		test-levels
