// How an attention on ranges is cut into tiles: panels of receivers, one to a lane, and the senders of each; and
// how its two passes are shared out.
#pragma once

#include <algorithm>
#include <vector>

#include "tiles/table.hpp"

namespace edgewise::EDGEWISE_ISA {

constexpr int64_t ITEM = int64_t(1) << 17;  // vector operations that are worth handing to a thread ...
constexpr int64_t FEWEST = ITEM / 4;      // ... where there are few of them
constexpr int SPLIT = 8;                  // a backward pass of few heads is cut in about as many pieces

// Receivers row .. row + count - 1, in the lanes of one or two vectors.
struct Panel {
  int64_t row;
  int count, vectors;
};

// Senders of some receiver of a panel, by one of its intervals, and those of all its receivers.
struct Span {
  int64_t first, last, inner_first, inner_last;

  bool empty() const { return first >= last; }
};

// Panels and senders that have nothing to do with any others.
struct Group {
  int64_t first_panel, last_panel, first_sender, last_sender, work;
};

struct PanelRange {
  int64_t first, last;
};

class Plan {
 public:
  std::vector<Panel> panels;
  std::vector<Span> spans;        // [panels, ranges]
  std::vector<PanelRange> tiles;  // a few panels of one run, which share what is read of the senders
  std::vector<Group> groups;
  const Tiling& call;
  const bool alone;

  // `alone`: every receiver has a panel of its own, and no tile holds a pair without an edge.
  Plan(const Tiling& call, int lanes, int panels_in_tile, bool alone = false)
      : call(call), alone(alone), lanes(lanes), rows(alone ? 1 : 2 * lanes) {
    if (alone) panels_in_tile = 1;
    find_runs();
    group_runs();
    for (size_t first = 0; first < runs.size();) {
      size_t last = first;
      Group group{int64_t(panels.size()), 0, runs[first].first_sender, 0, 0};
      for (; last < runs.size() && runs[last].group == runs[first].group; ++last) {
        add_panels(runs[last], panels_in_tile);
        group.first_sender = std::min(group.first_sender, runs[last].first_sender);
        group.last_sender = std::max(group.last_sender, runs[last].last_sender);
      }
      group.last_panel = int64_t(panels.size());
      for (int64_t n = group.first_panel; n < group.last_panel; ++n) group.work += work(n);
      groups.push_back(group);
      first = last;
    }
  }

  const Span& span(int64_t panel, int64_t range) const { return spans[panel * call.ranges + range]; }

  // Senders times vectors.
  int64_t work(int64_t panel) const {
    int64_t senders = 8;  // what a panel costs without any
    for (int64_t r = 0; r < call.ranges; ++r)
      if (!span(panel, r).empty()) senders += span(panel, r).last - span(panel, r).first;
    return senders * panels[panel].vectors;
  }

 private:
  // Consecutive receivers, and the senders between the first and the last of any of them.
  struct Run {
    int64_t first, last, first_sender, last_sender;
    int64_t group;
  };

  const int lanes, rows;  // of a vector, and of a panel
  std::vector<Run> runs;

  int64_t cost(int64_t rows, int64_t senders) const { return (rows + lanes - 1) / lanes * (senders + 8); }

  // Cuts where a receiver shares no sender with the one before, unless panels then stay nearly empty.
  void find_runs() {
    const int64_t R = call.ranges;
    std::vector<Run> separate;
    for (int64_t i = 0; i < call.receivers; ++i) {
      int64_t first = 0, last = 0;
      for (int64_t r = 0; r < R; ++r) {
        const int64_t start = call.starts[i * R + r], stop = call.stops[i * R + r];
        if (start >= stop) continue;
        first = first == last ? start : std::min(first, start);
        last = std::max(last, stop);
      }
      const bool nothing = first == last;
      if (!separate.empty()) {
        Run& run = separate.back();
        const bool silent = run.first_sender == run.last_sender;
        if (nothing || silent || (first < run.last_sender && run.first_sender < last)) {
          run.last = i + 1;
          if (nothing) continue;
          run.first_sender = silent ? first : std::min(run.first_sender, first);
          run.last_sender = silent ? last : std::max(run.last_sender, last);
          continue;
        }
      }
      separate.push_back({i, i + 1, first, last, 0});
    }
    for (const Run& run : separate) {
      if (!runs.empty()) {
        Run& before = runs.back();
        const Run both{before.first, run.last, std::min(before.first_sender, run.first_sender),
                       std::max(before.last_sender, run.last_sender), 0};
        const int64_t apart = cost(before.last - before.first, before.last_sender - before.first_sender) +
                              cost(run.last - run.first, run.last_sender - run.first_sender);
        if (cost(both.last - both.first, both.last_sender - both.first_sender) <= apart) {
          before = both;
          continue;
        }
      }
      runs.push_back(run);
    }
  }

  // Runs that share senders belong together.
  void group_runs() {
    std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.first_sender < b.first_sender; });
    int64_t group = -1, reached = 0;
    for (Run& run : runs) {
      if (group < 0 || run.first_sender >= reached) ++group;
      run.group = group;
      reached = std::max(reached, run.last_sender);
    }
    std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
      return a.group != b.group ? a.group < b.group : a.first < b.first;
    });
  }

  void add_panels(const Run& run, int panels_in_tile) {
    int in_tile = 0;
    for (int64_t row = run.first; row < run.last; row += rows) {
      const int count = int(std::min<int64_t>(rows, run.last - row));
      if (in_tile == 0) tiles.push_back({int64_t(panels.size()), 0});
      panels.push_back({row, count, count > lanes ? 2 : 1});
      for (int64_t r = 0; r < call.ranges; ++r) spans.push_back(span_of(row, count, r));
      tiles.back().last = int64_t(panels.size());
      in_tile = (in_tile + 1) % panels_in_tile;
    }
  }

  Span span_of(int64_t row, int count, int64_t r) const {
    Span span{call.senders, 0, 0, call.senders};
    for (int64_t i = row; i < row + count; ++i) {
      const int64_t start = call.starts[i * call.ranges + r], stop = call.stops[i * call.ranges + r];
      span.inner_first = std::max(span.inner_first, start);
      span.inner_last = std::min(span.inner_last, stop);
      if (start >= stop) continue;
      span.first = std::min(span.first, start);
      span.last = std::max(span.last, stop);
    }
    return span;
  }
};

// Senders of one tile of a backward pass, and the panels that have something to do with it.
struct SenderTile {
  int64_t first, last, first_panel, last_panel, work;
};

// A part of the backward pass of one head. Where several share panels, each sums dq for itself, from `partial` on.
struct Piece {
  int64_t first_tile, last_tile, first_panel, last_panel, partial, work;
};

// The tiles of senders of every group, and the pieces they are worked through in: the same at any number of threads.
struct BackwardPlan {
  std::vector<SenderTile> tiles;
  std::vector<Piece> pieces;
  int64_t partials = 0;            // panels of partial sums of dq, for one head

  BackwardPlan(const Tiling& call, const Plan& plan, int senders_in_tile) {
    int64_t total = 0;
    for (const Group& group : plan.groups) total += group.work;
    const int64_t parts_each = (SPLIT + call.batch * call.heads - 1) / (call.batch * call.heads);
    for (const Group& group : plan.groups) {
      const int64_t first = int64_t(tiles.size());
      add_tiles(plan, group, senders_in_tile);
      const int64_t count = int64_t(tiles.size()) - first, width = call.channels + call.values;
      int64_t parts = std::min(group.work * parts_each / std::max<int64_t>(1, total), group.work * width / ITEM);
      parts = std::clamp<int64_t>(parts, 1, std::max<int64_t>(1, count));
      if (parts == 1) pieces.push_back({first, first + count, group.first_panel, group.last_panel, -1, group.work * width});
      else split(first, first + count, parts);
    }
  }

 private:
  void add_tiles(const Plan& plan, const Group& group, int size) {
    const int64_t before = int64_t(tiles.size());
    for (int64_t j = group.first_sender; j < group.last_sender; j += size)
      tiles.push_back({j, std::min(j + size, group.last_sender), group.last_panel, group.first_panel, 0});
    for (int64_t n = group.first_panel; n < group.last_panel; ++n)
      for (int64_t r = 0; r < plan.call.ranges; ++r) {
        const Span& span = plan.span(n, r);
        if (span.empty()) continue;
        for (int64_t t = (span.first - group.first_sender) / size; t <= (span.last - 1 - group.first_sender) / size; ++t) {
          SenderTile& tile = tiles[before + t];
          tile.first_panel = std::min(tile.first_panel, n);
          tile.last_panel = std::max(tile.last_panel, n + 1);
          tile.work += plan.panels[n].vectors;
        }
      }
  }

  void split(int64_t first, int64_t last, int64_t parts) {
    int64_t total = 0, done = 0, part = 0;
    for (int64_t t = first; t < last; ++t) total += tiles[t].work;
    for (int64_t t = first; t < last; ++t) {
      if (t == first || done * parts >= total * part) {
        pieces.push_back({t, t, tiles[t].first_panel, tiles[t].last_panel, 0, ITEM});
        part = done * parts / std::max<int64_t>(1, total) + 1;
      }
      Piece& piece = pieces.back();
      piece.last_tile = t + 1;
      piece.first_panel = std::min(piece.first_panel, tiles[t].first_panel);
      piece.last_panel = std::max(piece.last_panel, tiles[t].last_panel);
      done += tiles[t].work;
    }
    for (int64_t n = int64_t(pieces.size()) - part_count(first); n < int64_t(pieces.size()); ++n) {
      pieces[n].partial = partials;
      partials += std::max<int64_t>(0, pieces[n].last_panel - pieces[n].first_panel);
    }
  }

  int64_t part_count(int64_t first_tile) const {
    int64_t count = 0;
    while (count < int64_t(pieces.size()) && pieces[pieces.size() - 1 - count].first_tile >= first_tile) ++count;
    return count;
  }
};

// Parts of a pass that follow one another, for some heads: what one thread does at a time.
struct Share {
  int64_t first, last;
  int first_head, last_head;
};

// Small parts are taken together, with all heads, whose rows lie side by side; large ones head by head.
template <class Work>
std::vector<Share> shared_out(int heads, int64_t count, const Work& work) {
  std::vector<Share> shares;
  int64_t pending = 0, total = 0;
  for (int64_t n = 0; n < count; ++n) total += work(n) * heads;
  const int64_t item = std::clamp(total / SPLIT, FEWEST, ITEM);
  for (int64_t n = 0; n < count; ++n) {
    const int64_t own = work(n);
    if (own >= item) {
      for (int h = 0; h < heads; ++h) shares.push_back({n, n + 1, h, h + 1});
      pending = 0;
      continue;
    }
    if (pending == 0) shares.push_back({n, n, 0, heads});
    shares.back().last = n + 1;
    pending = pending + own * heads >= item ? 0 : pending + std::max<int64_t>(1, own * heads);
  }
  return shares;
}

}  // namespace edgewise::EDGEWISE_ISA
