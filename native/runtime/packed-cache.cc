#include "runtime/packed-cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "runtime/checksum.h"

namespace pagoda {
namespace {

constexpr char kMagic[8] = {'P', 'A', 'G', 'O', 'D', 'A', 'P', 'W'};
constexpr size_t kPieceBytes = size_t{4} << 20;
constexpr uint32_t kMaxHeaderBytes = 64u << 20;
constexpr char kSuffix[] = ".packed", kTemporarySuffix[] = ".packed.tmp";

struct Head {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;
  uint64_t content_offset, content_bytes, table_offset, file_bytes;
  uint64_t header_checksum;
  uint64_t head_checksum;  // of everything before it
};
static_assert(sizeof(Head) == 64, "the head has no holes");

uint64_t head_checksum(const Head& head) { return checksum(&head, offsetof(Head, head_checksum)); }
uint64_t num_pieces(uint64_t bytes) { return (bytes + kPieceBytes - 1) / kPieceBytes; }

// Where everything lies, from the two sizes.
Head make_head(const std::string& header, uint64_t content_bytes) {
  Head head = {};
  std::memcpy(head.magic, kMagic, sizeof(kMagic));
  head.version = kPackedCacheVersion;
  head.header_bytes = static_cast<uint32_t>(header.size());
  head.content_offset = (sizeof(Head) + header.size() + 4095) & ~uint64_t{4095};
  head.content_bytes = content_bytes;
  head.table_offset = (head.content_offset + content_bytes + 7) & ~uint64_t{7};
  head.file_bytes = head.table_offset + (num_pieces(content_bytes) + 1) * 8;
  head.header_checksum = checksum(header.data(), header.size());
  head.head_checksum = head_checksum(head);
  return head;
}

std::string system_error(const std::string& what) { return what + ": " + std::strerror(errno); }

class File {
 public:
  File(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~File() { if (fd_ >= 0) close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }

  // False at the end of the file or on an error.
  bool read(void* to, size_t bytes, uint64_t offset) const {
    for (size_t done = 0; done < bytes;) {
      const ssize_t got = pread(fd_, static_cast<uint8_t*>(to) + done, bytes - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      done += static_cast<size_t>(got);
    }
    return true;
  }
  void write(const void* from, size_t bytes) const {
    for (size_t done = 0; done < bytes;) {
      const ssize_t put = ::write(fd_, static_cast<const uint8_t*>(from) + done, bytes - done);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) throw std::runtime_error(system_error("writing failed"));
      done += static_cast<size_t>(put);
    }
  }
  // Closing can be the first to tell that there was no space.
  void finish() {
    const int fd = fd_;
    fd_ = -1;
    if (close(fd) != 0) throw std::runtime_error(system_error("writing failed"));
  }

 private:
  int fd_;
};

// An open file whose head and header are whole.
struct Opened {
  Head head;
  std::string header;
};

Opened open_checked(const File& file) {
  if (!file.is_open()) throw UnusableCache(system_error("it cannot be opened"));
  struct stat info;
  if (fstat(file.fd(), &info) != 0 || !S_ISREG(info.st_mode)) throw UnusableCache("it is no regular file");
  Opened opened;
  Head& head = opened.head;
  if (!file.read(&head, sizeof(head), 0) || std::memcmp(head.magic, kMagic, sizeof(kMagic)) != 0) throw UnusableCache("it is no file of packed weights");
  if (head.version != kPackedCacheVersion) throw UnusableCache("it has version " + std::to_string(head.version) + ", " + std::to_string(kPackedCacheVersion) + " is wanted");
  if (head.head_checksum != head_checksum(head)) throw UnusableCache("its head is damaged");
  if (static_cast<uint64_t>(info.st_size) != head.file_bytes) {
    throw UnusableCache("it has " + std::to_string(info.st_size) + " bytes where " + std::to_string(head.file_bytes) + " are wanted");
  }
  if (head.header_bytes > kMaxHeaderBytes) throw UnusableCache("its head is damaged");
  opened.header.resize(head.header_bytes);
  if (!file.read(&opened.header[0], head.header_bytes, sizeof(Head)) || checksum(opened.header.data(), opened.header.size()) != head.header_checksum) {
    throw UnusableCache("its header is damaged");
  }
  const Head wanted = make_head(opened.header, head.content_bytes);
  if (std::memcmp(&wanted, &head, sizeof(head)) != 0) throw UnusableCache("its head is damaged");
  return opened;
}

bool ends_with(const std::string& text, const std::string& end) { return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0; }

// Under the lock: makes room for `wanted` bytes and removes what dead writers left. `keep` is about to be replaced, so it does not count.
void make_room(const std::string& folder, const std::string& keep, uint64_t wanted, uint64_t max_bytes) {
  struct Entry {
    std::string path;
    uint64_t bytes;
    time_t used;
  };
  std::vector<Entry> entries;
  uint64_t total = wanted;
  DIR* dir = opendir(folder.c_str());
  if (!dir) throw std::runtime_error(system_error("the folder cannot be read"));
  while (const dirent* item = readdir(dir)) {
    const std::string path = folder + "/" + item->d_name;
    if (ends_with(path, kTemporarySuffix)) {
      unlink(path.c_str());
      continue;
    }
    struct stat info;
    if (!ends_with(path, kSuffix) || path == keep || stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    entries.push_back({path, static_cast<uint64_t>(info.st_size), info.st_mtime});
    total += entries.back().bytes;
  }
  closedir(dir);
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= max_bytes) return;
    if (unlink(entry.path.c_str()) == 0) total -= entry.bytes;
  }
}

// The content in pieces, each with its checksum into `table`. False when cancelled.
bool write_content(const File& file, const std::vector<ContentPart>& parts, std::vector<uint64_t>* table, const std::atomic<bool>& cancelled) {
  std::vector<uint8_t> piece;
  piece.reserve(kPieceBytes);
  const auto flush = [&] {
    if (piece.empty()) return;
    table->push_back(checksum(piece.data(), piece.size()));
    file.write(piece.data(), piece.size());
    piece.clear();
  };
  for (const ContentPart& part : parts) {
    for (size_t at = 0; at < part.bytes;) {
      if (cancelled.load()) return false;
      const size_t count = std::min(part.bytes - at, kPieceBytes - piece.size());
      piece.insert(piece.end(), part.data + at, part.data + at + count);
      at += count;
      if (piece.size() == kPieceBytes) flush();
    }
  }
  flush();
  return true;
}

bool write_file(const std::string& path, const std::string& header, const Head& head, const std::vector<ContentPart>& parts, const std::atomic<bool>& cancelled) {
  File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file.is_open()) throw std::runtime_error(system_error("it cannot be created"));
  const std::vector<uint8_t> zeros(4096, 0);
  file.write(&head, sizeof(head));
  file.write(header.data(), header.size());
  file.write(zeros.data(), head.content_offset - sizeof(head) - header.size());
  std::vector<uint64_t> table;
  if (!write_content(file, parts, &table, cancelled)) return false;
  file.write(zeros.data(), head.table_offset - head.content_offset - head.content_bytes);
  table.push_back(checksum(table.data(), table.size() * 8));
  file.write(table.data(), table.size() * 8);
  file.finish();
  return true;
}

}  // namespace

std::string read_packed_header(const std::string& path) {
  const File file(path, O_RDONLY);
  return open_checked(file).header;
}

AlignedBuffer read_packed_cache(const std::string& path, const std::string& expected_header, ThreadPool* pool, size_t* content_bytes) {
  const File file(path, O_RDONLY);
  const Opened opened = open_checked(file);
  if (opened.header != expected_header) throw UnusableCache("it belongs to something else");
  const Head& head = opened.head;
  const uint64_t count = num_pieces(head.content_bytes);
  std::vector<uint64_t> table(count + 1);
  if (!file.read(table.data(), table.size() * 8, head.table_offset) || checksum(table.data(), count * 8) != table[count]) throw UnusableCache("its table is damaged");
  // A piece is two huge pages: whoever reads it is the first to touch them.
  AlignedBuffer content(head.content_bytes + 4096);
  std::atomic<uint64_t> next{0};
  std::atomic<bool> damaged{false};
  pool->parallel([&](int) {
    for (uint64_t piece = next.fetch_add(1); piece < count && !damaged.load(); piece = next.fetch_add(1)) {
      const uint64_t first = piece * kPieceBytes;
      const size_t bytes = static_cast<size_t>(std::min<uint64_t>(kPieceBytes, head.content_bytes - first));
      if (!file.read(content.data() + first, bytes, head.content_offset + first) || checksum(content.data() + first, bytes) != table[piece]) damaged.store(true);
    }
  });
  if (damaged.load()) throw UnusableCache("its content is damaged");
  *content_bytes = static_cast<size_t>(head.content_bytes);
  return content;
}

CacheWrite write_packed_cache(const std::string& path, const std::string& header, const std::vector<ContentPart>& parts, uint64_t max_bytes, const std::atomic<bool>& cancelled) {
  if (header.size() > kMaxHeaderBytes || !ends_with(path, kSuffix)) throw std::runtime_error("the name or the header is impossible");
  uint64_t content_bytes = 0;
  for (const ContentPart& part : parts) content_bytes += part.bytes;
  const Head head = make_head(header, content_bytes);
  if (head.file_bytes > max_bytes) return CacheWrite::TooLarge;
  const std::string folder = path.substr(0, path.find_last_of('/'));
  const File lock(folder + "/lock", O_RDWR | O_CREAT);
  if (!lock.is_open()) throw std::runtime_error(system_error("the folder cannot be written"));
  if (flock(lock.fd(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return CacheWrite::Busy;
    throw std::runtime_error(system_error("the folder cannot be locked"));
  }
  make_room(folder, path, head.file_bytes, max_bytes);
  const std::string temporary = path + ".tmp";
  try {
    if (!write_file(temporary, header, head, parts, cancelled)) {
      unlink(temporary.c_str());
      return CacheWrite::Cancelled;
    }
    if (rename(temporary.c_str(), path.c_str()) != 0) throw std::runtime_error(system_error("it cannot be renamed"));
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
  return CacheWrite::Written;
}

uint64_t packed_layout_id(const Kernels& kernels) {
  constexpr int32_t kRows = kPanelRows + 3, kCols = 544;  // a panel that is not full, blocks that are no whole super-blocks
  uint64_t id = 0, state = 1;
  for (int f = 0; f < kNumFormats; f++) {
    const Format format = static_cast<Format>(f);
    const int32_t cols = source_row_bytes(format, kCols) > 0 ? kCols : 512;
    const size_t row_bytes = source_row_bytes(format, cols);
    std::vector<uint8_t> source(row_bytes * kRows);
    for (uint8_t& byte : source) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      byte = static_cast<uint8_t>(state >> 56);
    }
    const uint8_t* rows[2 * kPanelRows] = {};
    for (int32_t r = 0; r < kRows; r++) rows[r] = source.data() + row_bytes * r;
    AlignedBuffer packed(packed_weight_bytes(kernels, format, kRows, cols, 1));
    PackedWeight weight{format, kRows, cols, 2, kernels.packed_panel_bytes(format, cols), packed.data()};
    kernels.pack_panels(&weight, rows, 0, 2);
    id = checksum(packed.data(), weight.panel_bytes * 2, id);
  }
  return id;
}

uint64_t packed_weight_bytes(const Kernels& kernels, Format format, int64_t rows, int32_t cols, int32_t num_parts) {
  if (rows < 1 || cols < 1 || num_parts < 1 || rows % num_parts != 0 || source_row_bytes(format, cols) == 0) return 0;
  const uint64_t part_panels = static_cast<uint64_t>(rows / num_parts + kPanelRows - 1) / kPanelRows;
  return kernels.packed_panel_bytes(format, cols) * part_panels * static_cast<uint64_t>(num_parts);
}

}  // namespace pagoda
