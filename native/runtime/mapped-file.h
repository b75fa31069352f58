// A checkpoint file mapped read-only. A file that shrinks while it is mapped would end the process, so loading maps, packs and
// unmaps at once, and ranges are checked against the size at opening.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace pagoda {

class MappedFile {
 public:
  explicit MappedFile(const std::string& path);  // throws std::runtime_error
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  uint64_t size() const { return size_; }
  // Pointer to [offset, offset + bytes); throws std::runtime_error when the range is not inside the file.
  const uint8_t* range(uint64_t offset, uint64_t bytes) const;
  // Gives the pages of a range that was read back to the system, so that a load never holds the file twice.
  void release(uint64_t offset, uint64_t bytes) const;

 private:
  std::string path_;
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace pagoda
