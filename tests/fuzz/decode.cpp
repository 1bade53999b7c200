// Every codec's encoder and decoder under AddressSanitizer and UBSan: buffers of exactly the promised sizes, wires that nobody
// wrote. Built and run by tests/test_fuzz.py.
//
//   decode PARAMS SEED SECONDS      PARAMS: lines "row-name hex-of-parameters"
//
// A finding is a sanitizer's report or a line "FAULT ..."; both end the program with a status other than 0.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "thinwire/parallel.h"
#include "thinwire/sparse.h"

using namespace thinwire;

namespace {

uint64_t state;
uint64_t next() {                                        // splitmix64
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
size_t below(size_t n) { return size_t(next() % n); }

// A buffer of its own, of exactly n bytes, so that the sanitizer sees a byte too many on either side. An array starts as aligned
// as malloc makes it; a wire may start anywhere.
struct Bytes {
  std::unique_ptr<uint8_t[]> memory;
  size_t n, skip;
  explicit Bytes(size_t n, size_t skip = 0) : memory(new uint8_t[n + skip]), n(n), skip(skip) {}
  uint8_t* data() { return memory.get() + skip; }
  void randomize() { for (size_t i = 0; i < n; ++i) data()[i] = uint8_t(next()); }
};

struct Subject { const Codec* codec; std::vector<uint8_t> params; std::string text; };

[[noreturn]] void fault(const Subject& s, const char* what, size_t n, int dtype) {
  printf("FAULT %s %s: %s, n %zu, dtype %d\n", s.codec->name, s.text.c_str(), what, n, dtype);
  exit(1);
}

size_t accumulator_size(int dtype) { return dtype <= kE5M2 && dtype != kF64 ? 4 : kItemSize[dtype]; }

// Values: bits at random, ordinary floats, extremes, zeros.
void fill(Bytes& x, int dtype) {
  x.randomize();
  const size_t kind = below(4), n = x.n / kItemSize[dtype];
  if (kind == 0) return;
  if (kind == 1) memset(x.data(), 0, x.n);
  if (dtype != kF32 && dtype != kF64) { if (kind == 2) for (size_t i = 0; i < x.n; ++i) x.data()[i] &= 0x3f; return; }
  for (size_t i = 0; i < n && kind > 1; ++i) {
    double v = double(int64_t(next())) * 0x1p-63;
    if (kind == 3) v = std::ldexp(v, int(below(dtype == kF32 ? 300 : 2200)) - (dtype == kF32 ? 170 : 1100));
    if (dtype == kF32) { const float f = float(v); memcpy(x.data() + 4 * i, &f, 4); } else memcpy(x.data() + 8 * i, &v, 8);
  }
}

const size_t kSizes[] = {0, 1, 2, 3, 5, 7, 15, 16, 17, 31, 32, 33, 63, 65, 100, 127, 128, 129, 255, 256, 257, 511, 513, 1009, 1023, 1025, 4095, 4096, 4097, 4111, 8193, 10007};

void decode_all_modes(const Subject& s, Bytes& wire, size_t n, int dtype) {
  for (int mode : {kSet, kAccumulate, kAdd}) {
    Bytes y(n * (mode == kSet ? kItemSize[dtype] : accumulator_size(dtype)));
    memset(y.data(), 0, y.n);
    s.codec->decode(s.params.data(), wire.data(), wire.n, y.data(), n, dtype, mode, mode == kAdd ? 0.25 : 1.0);
    Bytes z(y.n);
    memset(z.data(), 0, z.n);
    decode_parallel(*s.codec, s.params.data(), wire.data(), wire.n, z.data(), n, dtype, mode, 1.0, 1);
  }
}

// Written bytes must not depend on what was in the buffer, and the wire must decode.
void encode(const Subject& s, size_t n, int dtype, std::vector<uint8_t>* kept) {
  const Codec& c = *s.codec;
  const void* p = s.params.data();
  Bytes x(n * kItemSize[dtype]);
  fill(x, dtype);
  const size_t bound = c.bound(p, n, dtype), skip = below(4);
  const uint64_t seed = next();
  Bytes wire(bound, skip), again(bound, 0), residual(n * accumulator_size(dtype));
  memset(wire.data(), 0xa5, bound);
  memset(again.data(), 0x5a, bound);
  const size_t used = c.encode(p, x.data(), n, dtype, wire.data(), seed, 0, nullptr);
  if (used > bound) fault(s, "more bytes than bound", n, dtype);
  if (c.granule(p) && used != bound) fault(s, "not the bytes of bound", n, dtype);
  if (c.encode(p, x.data(), n, dtype, again.data(), seed, 0, nullptr) != used || memcmp(wire.data(), again.data(), used)) fault(s, "encodes differ", n, dtype);
  Bytes exact(used, skip);
  memcpy(exact.data(), wire.data(), used);
  Bytes y(x.n);
  if (c.decode(p, exact.data(), used, y.data(), n, dtype, kSet, 1.0)) fault(s, "cannot decode what it encoded", n, dtype);
  decode_all_modes(s, exact, n, dtype);
  // pieces
  const size_t granule = c.granule(p);
  if (granule && n > granule) {
    const size_t at = granule * (1 + below((n - 1) / granule));
    Bytes head(c.bound(p, at, dtype)), tail(bound - head.n);
    Bytes rest((n - at) * kItemSize[dtype]);
    memcpy(rest.data(), x.data() + at * kItemSize[dtype], rest.n);
    if (c.encode(p, x.data(), at, dtype, head.data(), seed, 0, nullptr) != head.n) fault(s, "a piece has another size", at, dtype);
    if (c.encode(p, rest.data(), n - at, dtype, tail.data(), seed, at, nullptr) != tail.n) fault(s, "a piece has another size", n - at, dtype);
    if (memcmp(head.data(), wire.data(), head.n) || (tail.n && memcmp(tail.data(), wire.data() + head.n, tail.n))) fault(s, "pieces are not the whole", n, dtype);
  }
  // residual: any accumulator values
  if (dtype <= kBF16) {
    fill(residual, dtype == kF64 ? kF64 : kF32);
    const size_t with = c.encode(p, x.data(), n, dtype, again.data(), seed, 2 * below(1000), residual.data());
    if (with > bound) fault(s, "more bytes than bound with a residual", n, dtype);
  }
  kept->assign(exact.data(), exact.data() + used);
}

// Entries of a sparse wire of n values: ascending, below n, as many as announced; or the wire is none.
void unpack_entries(const Subject& s, Bytes& wire, size_t n, int dtype, bool wide, uint64_t base) {
  const Codec& c = *s.codec;
  const size_t count = packed_entries(c, s.params.data(), wire.data(), wire.n, n, dtype);
  if (count == kNoEntries || count == kPoisoned) return;
  if (count > n) fault(s, "more entries than values", n, dtype);
  if (count > 1 << 22) return;                          // two bytes may announce a thousand entries
  Bytes index(count * (wide ? 8 : 4)), value(count * accumulator_size(dtype));
  if (unpack(c, s.params.data(), wire.data(), wire.n, n, dtype, wide, base, index.data(), value.data())) return;
  if (!ascends({count, index.data(), value.data(), wide, base}, n)) fault(s, "indices that do not ascend", n, dtype);
}
// Entries drawn in one of several patterns: single ones, runs, strides, all, the last. As n may be large, no array of n is made here.
void entries(const Subject& s, int dtype) {
  const Codec& c = *s.codec;
  const void* p = s.params.data();
  const size_t shift = below(4) ? below(18) : below(47), n = (size_t(1) << shift) + below(size_t(1) << shift);
  const bool wide = wide_index(n) || below(4) == 0;
  const uint64_t base = below(2) ? 0 : wide ? next() >> 20 : below((size_t(1) << 32) - n + 1);
  std::vector<uint64_t> places;
  const size_t kind = below(5), stride = 1 + below(n < 300 ? n : below(2) ? 300 : n / 100 + 1);
  for (uint64_t at = below(2) ? 0 : below(n); at < n && places.size() < 9000;) {
    places.push_back(at);
    at += kind == 0 ? 1 : kind == 1 ? stride : kind == 2 ? 1 + below(2 * stride) : kind == 3 ? (below(40) ? 1 : 1 + below(2 * stride)) : at == n - 1 ? 1 : n - 1 - at;
  }
  const size_t count = places.size();
  Bytes index(count * (wide ? 8 : 4)), value(count * accumulator_size(dtype)), lost(value.n);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t place = places[i] + base;
    const uint32_t narrow = uint32_t(place);
    if (wide) memcpy(index.data() + 8 * i, &place, 8); else memcpy(index.data() + 4 * i, &narrow, 4);
  }
  fill(value, dtype == kF64 ? kF64 : kF32);
  Bytes wire(pack_bound(c, p, count, n, dtype), below(4));
  const size_t used = pack(c, p, {count, index.data(), value.data(), wide, base}, n, dtype, next(), false, false, wire.data(), below(2) ? lost.data() : nullptr);
  if (used > wire.n) fault(s, "more bytes than pack_bound", n, dtype);
  const size_t found = packed_entries(c, p, wire.data(), used, n, dtype);
  if (found > count) fault(s, "other entries than were packed", n, dtype);   // fewer where a raw escape lost some +0
  Bytes exact(used, below(4)), back(found * (wide ? 8 : 4)), values(found * accumulator_size(dtype));
  memcpy(exact.data(), wire.data(), used);
  if (unpack(c, p, exact.data(), used, n, dtype, wide, base, back.data(), values.data())) fault(s, "cannot unpack what it packed", n, dtype);
  if (found == count && memcmp(back.data(), index.data(), back.n)) fault(s, "other indices than were packed", n, dtype);
  for (int round = 0; round < 8; ++round) {
    const size_t size = below(4) ? used : below(used + 1);
    Bytes bad(size, below(4));
    memcpy(bad.data(), exact.data(), size);
    for (size_t k = below(6); k && size; --k) bad.data()[below(2) ? below(size) : below(size < 48 ? size : 48)] = uint8_t(below(2) ? next() : 1 << below(8));
    unpack_entries(s, bad, below(3) ? n : 1 + below(2 * n), dtype, true, base);
    if (n <= 1 << 18) decode_all_modes(s, bad, n, dtype);
  }
  // sums of them
  if (n > 1 << 18) return;
  Bytes both(2 * index.n), sums(2 * value.n), y(n * accumulator_size(dtype)), z(n * kItemSize[dtype]);
  memset(y.data(), 0, y.n);
  const Entries e = {count, index.data(), value.data(), wide, base}, tail = {count / 2, index.data() + index.n - count / 2 * (wide ? 8 : 4), value.data(), wide, base};
  if (merge(e, tail, dtype == kF64, both.data(), sums.data()) != count) fault(s, "a union of another size", n, dtype);
  if (scatter(e, y.data(), n, dtype, kAdd, 0.5) || scatter(e, y.data(), n, dtype, kAccumulate, 1) || scatter(e, z.data(), n, dtype, kSet, 1)) fault(s, "cannot scatter", n, dtype);
  if (!scatter(e, y.data(), places.back(), dtype, kAdd, 1)) fault(s, "scatters outside", n, dtype);
}
// A selection has no more entries than it says, and they ascend.
void selection(const Subject& s, size_t n, int dtype) {
  const Codec& c = *s.codec;
  Bytes x(n * kItemSize[dtype]), residual(n * accumulator_size(dtype));
  fill(x, dtype);
  fill(residual, dtype == kF64 ? kF64 : kF32);
  const size_t most = c.sparse->capacity(s.params.data(), n);
  Bytes index((most + kSelectSlack) * 4), value((most + kSelectSlack) * accumulator_size(dtype));
  int found;
  const size_t count = c.sparse->select(s.params.data(), x.data(), n, dtype, next(), below(2) ? residual.data() : nullptr, index.data(), value.data(), &found);
  if (count > most) fault(s, "more entries than capacity", n, dtype);
  if (!ascends({count, index.data(), value.data(), false, 0}, n)) fault(s, "a selection that does not ascend", n, dtype);
}

void mutate(const Subject& s, size_t n, int dtype, const std::vector<uint8_t>& good) {
  for (int round = 0; round < 8; ++round) {
    std::vector<uint8_t> bad = good;
    size_t count = n;
    switch (below(6)) {
      case 0: bad.resize(below(bad.size() + 1)); break;
      case 1: bad.resize(bad.size() + 1 + below(70), uint8_t(next())); break;
      case 2: for (uint8_t& b : bad) b = uint8_t(next()); break;
      case 3: count = kSizes[below(sizeof kSizes / sizeof *kSizes)]; break;
      case 4: bad.assign(s.codec->bound(s.params.data(), n, dtype), uint8_t(below(2) ? 0xff : next())); break;
      default: for (size_t k = 1 + below(8); k && !bad.empty(); --k) bad[below(bad.size())] ^= uint8_t(1 << below(8));
    }
    Bytes wire(bad.size(), below(4));
    if (!bad.empty()) memcpy(wire.data(), bad.data(), bad.size());
    decode_all_modes(s, wire, count, dtype);
    if (s.codec->sparse) unpack_entries(s, wire, count, dtype, below(2), 0);
  }
}

}  // namespace

int main(int, char** argv) {
  std::map<std::string, const Codec*> rows;
  for (size_t i = 0; i < kCodecCount; ++i) rows[kCodecs[i]->name] = kCodecs[i];
  std::vector<Subject> subjects;
  std::ifstream file(argv[1]);
  for (std::string name, hex; file >> name >> hex;) {
    Subject s{rows.at(name), {}, hex};
    if (hex == "-") hex.clear();
    for (size_t i = 0; i + 1 < hex.size(); i += 2) s.params.push_back(uint8_t(std::stoi(hex.substr(i, 2), nullptr, 16)));
    if (s.params.size() != s.codec->params_size) fault(s, "parameters of another size", s.params.size(), 0);
    s.params.reserve(1);                                  // data() of no parameters is an address, too
    subjects.push_back(std::move(s));
  }
  state = std::strtoull(argv[2], nullptr, 10);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(std::atof(argv[3]));
  size_t cases = 0;
  std::vector<uint8_t> wire;
  // once over everything, then on at random until the time is up
  for (size_t round = 0; round == 0 || std::chrono::steady_clock::now() < end; ++round)
    for (const Subject& s : subjects)
      for (int dtype = 1; dtype < kDtypeEnd; ++dtype) {
        if (!(s.codec->dtypes >> dtype & 1)) continue;
        for (int k = 0; k < 3; ++k, ++cases) {
          const size_t n = below(8) ? kSizes[below(sizeof kSizes / sizeof *kSizes)] : below(6000);
          encode(s, n, dtype, &wire);
          mutate(s, n, dtype, wire);
          if (s.codec->sparse) { selection(s, n, dtype); entries(s, dtype); }
        }
      }
  printf("%zu cases of %zu codecs\n", cases, subjects.size());
}
