# In a bundle (test/gpu/bundle), where it is called Makefile: the module with other GPU code, for
# test/gpu/run --as. Needs nvcc and a C++ compiler; src/ has the objects that no GPU matters to.
#
#	make SM=90			kernels of the front end compute_80 as machine code for capability 9.0

NVCC ?= nvcc
CUDA_HOME ?= $(patsubst %/bin/,%,$(dir $(realpath $(shell command -v $(firstword $(NVCC))))))
CU_OBJS := $(patsubst %.cu,%.o,$(wildcard kernels/*.cu))

all: gpugraph.so

# NVCCFLAGS: as in the module's own Makefile
kernels/%.o: kernels/%.cu
	$(NVCC) -O3 -std=c++17 -lineinfo -gencode arch=compute_80,code=sm_$(SM) -Isrc -DGG_WITH_CUDA \
		-DGG_CUDA_CODES=sm_$(SM) -Xcompiler -fPIC,-Wall,-fvisibility=hidden -c -o $@ $<

gpugraph.so: $(CU_OBJS)
	$(CXX) -shared -o $@ $(wildcard src/*.o src/*/*.o) $(CU_OBJS) \
		-L$(firstword $(wildcard $(CUDA_HOME)/lib64 $(CUDA_HOME)/lib)) -lcudart_static -lrt -ldl \
		-lpthread -lm

.PHONY: all
