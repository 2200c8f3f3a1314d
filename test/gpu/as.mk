# In a bundle (test/gpu/bundle), where it is called Makefile: the module with other GPU code, for
# test/gpu/run --as and ptx. Needs nvcc and a C++ compiler; src/ has the objects that no GPU matters
# to.
#
#	make FRONT=80 CODE=sm_90		kernels of the front end compute_80 as machine code for
#									capability 9.0
#	make FRONT=90 CODE=compute_90	kernels as PTX alone, which the driver compiles

NVCC ?= nvcc
CUDA_HOME ?= $(patsubst %/bin/,%,$(dir $(realpath $(shell command -v $(firstword $(NVCC))))))
CU_OBJS := $(patsubst %.cu,%.o,$(wildcard kernels/*.cu kernels/*/*.cu))

all: gpugraph.so

# NVCCFLAGS: as in the module's own Makefile
kernels/%.o: kernels/%.cu
	$(NVCC) -O3 -std=c++17 -lineinfo -gencode arch=compute_$(FRONT),code=$(CODE) -Isrc -DGG_WITH_CUDA \
		-DGG_CUDA_CODES=$(CODE) -Xcompiler -fPIC,-Wall,-fvisibility=hidden -c -o $@ $<

gpugraph.so: $(CU_OBJS)
	$(CXX) -shared -o $@ $(wildcard src/*.o src/*/*.o src/*/*/*.o src/*/*/*/*.o) $(CU_OBJS) \
		-L$(firstword $(wildcard $(CUDA_HOME)/lib64 $(CUDA_HOME)/lib)) -lcudart_static -lrt -ldl \
		-lpthread -lm

.PHONY: all
