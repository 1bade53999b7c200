// Indices in few bits. See docs/wire.md, "Indices", for the bytes.
//
// Ascending indices are cut into pieces of kIndexPiece. A piece takes whichever of these is shortest:
//   rice   gaps d to the index before, Golomb-Rice of b bits: the remainders as fields of b bits, then the quotients as a bit string, d >> b zeros
//          and a one each. The bits are those of Golomb-Rice coding, but as the i-th one's place is i + the sum of the first i + 1 quotients, neither
//          part is a serial stream: ones are found 64 bits at a time, fields are where they are. With b = 0 this is a bitmap of the piece's places.
//   words  distances from a line of whole slope, in fields of w bits: one index a bin, or a stride
//   runs   of consecutive indices: gaps between runs and lengths, both Golomb-Rice
#pragma once
#include <cstddef>
#include <cstdint>

namespace thinwire {

constexpr size_t kIndexPiece = 4096;
constexpr size_t kIndexSlack = 64;    // bytes behind the section that encode_indices may overwrite
enum IndexMode : uint8_t { kRice, kWords, kRuns };

// Most bytes that `count` indices below n take, or fewer of them.
size_t index_bound(size_t count, size_t n);
// Writes index[0..count) - base; gives the bytes. Needs no more than index_bound + kIndexSlack bytes of room, where the last index - base < n.
size_t encode_indices(const uint32_t* index, size_t count, uint64_t base, uint8_t* out);
size_t encode_indices(const uint64_t* index, size_t count, uint64_t base, uint8_t* out);

// Reads a section piece by piece, trusting nothing.
class IndexReader {
 public:
  IndexReader(const uint8_t* section, size_t bytes, size_t count, size_t n) : at_(section), end_(section + bytes), left_(count), n_(n) {}
  // Indices still to come.
  size_t left() const { return left_; }
  // The next piece, `base` added to each: kIndexPiece of them, or what is left. Ascending, and below n before base is added. Gives their count, 0 if
  // the bytes are none. index has room for kIndexPiece.
  size_t next(uint32_t* index, uint64_t base = 0);
  size_t next(uint64_t* index, uint64_t base = 0);
  // Whether everything was read, and every byte of it.
  bool done() const { return left_ == 0 && at_ == end_; }

 private:
  template <class Index> size_t next_of(Index* index, uint64_t base);
  const uint8_t *at_, *end_;
  size_t left_;
  uint64_t n_, from_ = 0;             // the first place that the next index can have
};

}  // namespace thinwire
