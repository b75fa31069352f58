#include "runtime/mapped-file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace pagoda {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw std::runtime_error("cannot open " + path + ": " + std::strerror(errno));
  struct stat info;
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size <= 0) {
    close(file);
    throw std::runtime_error(path + " is not a regular file with content");
  }
  size_ = static_cast<uint64_t>(info.st_size);
  void* data = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
  const int error = errno;
  close(file);
  if (data == MAP_FAILED) throw std::runtime_error("cannot map " + path + ": " + std::strerror(error));
  data_ = static_cast<uint8_t*>(data);
}

MappedFile::~MappedFile() {
  if (data_) munmap(data_, size_);
}

const uint8_t* MappedFile::range(uint64_t offset, uint64_t bytes) const {
  if (offset > size_ || bytes > size_ - offset) {
    throw std::runtime_error(path_ + " is too short: bytes " + std::to_string(offset) + " to " + std::to_string(offset + bytes) + " are wanted, the file has " + std::to_string(size_));
  }
  return data_ + offset;
}

void MappedFile::release(uint64_t offset, uint64_t bytes) const {
  const uint64_t page = 4096;
  const uint64_t first = offset & ~(page - 1);
  const uint64_t last = offset + bytes > size_ ? size_ : offset + bytes;
  if (last > first) madvise(data_ + first, last - first, MADV_DONTNEED);
}

}  // namespace pagoda
