// All of Loam's C++ interface. docs/cpp.md is the guide.
#pragma once

#include "loam/allocator.hpp"
#include "loam/arena.hpp"
#include "loam/block_source.hpp"
#include "loam/buffer_cache.hpp"
#include "loam/class_heap.hpp"
#include "loam/concurrent_functor_queue.hpp"
#include "loam/functor_queue.hpp"
#include "loam/heap.hpp"
#include "loam/memory_resource.hpp"
#include "loam/pool.hpp"
#include "loam/request_histogram.hpp"
