// Memory for the arrays of a block.

#pragma once
#include <cstdlib>
#include <cstring>

namespace {

struct Scratch {  // reused between calls: allocating new memory costs more than the computation
    void* memory = nullptr;
    size_t size = 0;
    ~Scratch() { std::free(memory); }
    void* get(size_t wanted) {
        wanted = (wanted + 127) / 128 * 128;
        if (size < wanted) std::free(memory), memory = std::aligned_alloc(128, wanted), size = wanted;
        return memory;
    }
};
thread_local Scratch scratch;

}  // namespace
