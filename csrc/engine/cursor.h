// Where one of a program's two lists stands.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hocket {

// Walks the (record, segment) pairs of one list in the order (step + segment, step, index).
template <class Record>
class Cursor {
 public:
  Cursor(const std::vector<Record>& records, uint64_t segment, bool signals)
      : records_(records), segment_(segment), signals_(signals) {
    settle();
  }

  bool done() const { return first_ == records_.size(); }
  const Record& record() const { return records_[at_]; }
  int32_t index() const { return static_cast<int32_t>(at_); }
  uint64_t segment() const { return diagonal_ - record().step; }
  uint64_t offset() const { return segment() * segment_; }
  uint64_t bytes() const { return std::min(segment_, record().bytes - offset()); }
  bool is_at(const Cursor& other) const { return diagonal_ == other.diagonal_ && at_ == other.at_; }

  // Whether this cursor has left (index, segment) behind.
  bool passed(int32_t index, uint64_t segment) const {
    const uint64_t diagonal = records_[index].step + segment;
    return done() || diagonal < diagonal_ || (diagonal == diagonal_ && static_cast<size_t>(index) < at_);
  }

  void advance() {
    ++at_;
    settle();
  }

 private:
  uint64_t segments(const Record& r) const {
    return r.bytes == 0 ? (signals_ ? 1 : 0) : (r.bytes + segment_ - 1) / segment_;
  }

  // From (diagonal, at) on, stands on the next pair that exists.
  void settle() {
    for (;;) {
      for (; at_ < records_.size() && records_[at_].step <= diagonal_; ++at_) {
        if (diagonal_ - records_[at_].step < segments(records_[at_])) return;
      }
      ++diagonal_;
      while (first_ < records_.size() && records_[first_].step + segments(records_[first_]) <= diagonal_) ++first_;
      if (done()) return;
      diagonal_ = std::max<uint64_t>(diagonal_, records_[first_].step);
      at_ = first_;
    }
  }

  const std::vector<Record>& records_;
  const uint64_t segment_;
  const bool signals_;
  uint64_t diagonal_ = 0;
  size_t at_ = 0;
  size_t first_ = 0;  // all before it are finished
};

}  // namespace hocket
