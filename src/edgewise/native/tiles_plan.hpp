// How an attention on ranges is cut into tiles: panels of receivers, one to a lane, and the senders each listens to.
#pragma once

#include <algorithm>
#include <vector>

#include "tiles_table.hpp"

namespace edgewise::EDGEWISE_ISA {

// Receivers row .. row + count - 1, in the lanes of one or two vectors.
struct Panel {
  int64_t row;
  int count, vectors;
};

// Senders that some receiver of a panel listens to by one of its intervals, and those that all of them listen to.
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

  Plan(const Tiling& call, int lanes, int panels_in_tile) : call(call), lanes(lanes) {
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
  // Consecutive receivers, and the senders between the first and the last that any of them listens to.
  struct Run {
    int64_t first, last, first_sender, last_sender;
    int64_t group;
  };

  const int lanes;
  std::vector<Run> runs;

  int64_t cost(int64_t rows, int64_t senders) const { return (rows + lanes - 1) / lanes * (senders + 8); }

  // Cuts where a receiver shares no sender with the one before, unless panels then stay nearly empty.
  void find_runs() {
    const int64_t R = call.ranges;
    std::vector<Run> found;
    for (int64_t i = 0; i < call.receivers; ++i) {
      int64_t first = 0, last = 0;
      for (int64_t r = 0; r < R; ++r) {
        const int64_t start = call.starts[i * R + r], stop = call.stops[i * R + r];
        if (start >= stop) continue;
        first = first == last ? start : std::min(first, start);
        last = std::max(last, stop);
      }
      const bool nothing = first == last;
      if (!found.empty()) {
        Run& run = found.back();
        const bool silent = run.first_sender == run.last_sender;
        if (nothing || silent || (first < run.last_sender && run.first_sender < last)) {
          run.last = i + 1;
          if (nothing) continue;
          run.first_sender = silent ? first : std::min(run.first_sender, first);
          run.last_sender = silent ? last : std::max(run.last_sender, last);
          continue;
        }
      }
      found.push_back({i, i + 1, first, last, 0});
    }
    for (const Run& run : found) {
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
    for (int64_t row = run.first; row < run.last; row += 2 * lanes) {
      const int count = int(std::min<int64_t>(2 * lanes, run.last - row));
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

}  // namespace edgewise::EDGEWISE_ISA
