// Edges by receiver, as kernels walk them: a sort, and the check that every number is in bounds.
#pragma once

#include <cstdint>

namespace edgewise {

// An edge list to be sorted by major, then by minor; equal edges keep their order.
struct Edges {
  int threads;
  int64_t count, rows, columns;    // 0 <= major < rows, 0 <= minor < columns
  const int64_t *majors, *minors;  // [count]
  bool minors_ascend;              // in the list as it is, a graph's own: sorting by major alone is then enough
  int64_t *offsets, *sorted, *order;  // out: [rows + 1], minors [count], where each came from [count]
  int64_t* along;                     // out, unless it is null: the majors in that order [count]
};

// False, and nothing written, where an edge leads out of bounds.
[[gnu::visibility("default")]] bool sort_edges(const Edges& list);

// Edges in any order, to be walked receiver by receiver.
struct EdgeList {
  int threads;
  int64_t count, rows, columns;           // numbers of edges, receivers and senders
  const int64_t *receivers, *senders;     // [count]
  int64_t* offsets;                       // out: [rows + 1]
  int32_t *index, *order;                 // out: the senders, and, unless it is null, where each edge came from [count]
};

// False where an edge leads out of bounds, or where 32 bits cannot number the edges or the senders. O(E) where receivers
// ascend as they are; parallel edges keep their order.
[[gnu::visibility("default")]] bool by_receiver(const EdgeList& list);

}  // namespace edgewise
