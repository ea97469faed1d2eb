#include "cupti_api.h"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace curvescope {

namespace {

constexpr char kLibrary[] = "libcupti.so";

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::vector<std::string> loaded_objects() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) noexcept {
        try {
          if (info->dlpi_name != nullptr && *info->dlpi_name != 0)
            static_cast<std::vector<std::string>*>(out)->emplace_back(info->dlpi_name);
        } catch (...) {
          return 1;
        }
        return 0;
      },
      &paths);
  return paths;
}

// The CUDA that a libcupti came with, of which its version is another number; the lowest if several have that number.
int cuda_major(std::uint32_t cupti_version) {
  constexpr std::uint32_t kFirstOf12 = 19;  // 18 is CUDA 11.8, 12.0 and 12.1
  constexpr std::uint32_t kFirstWithMajor = 130000;
  if (cupti_version >= kFirstWithMajor) return static_cast<int>(cupti_version / 10000);
  return cupti_version >= kFirstOf12 ? 12 : 11;
}

// Libraries in a folder that the driver supports by their names, newest first. libcupti.so.12 belongs to CUDA 12; what
// libcupti.so is, load_cupti asks.
void add_of_folder(const std::string& folder, int driver_major, std::vector<std::string>* out) {
  DIR* entries = opendir(folder.c_str());
  if (entries == nullptr) return;
  std::vector<std::pair<std::vector<int>, std::string>> found;
  while (const dirent* entry = readdir(entries)) {
    const std::string name = entry->d_name;
    if (name.rfind(kLibrary, 0) != 0) continue;
    std::vector<int> version;
    for (std::size_t at = name.find('.', sizeof(kLibrary) - 1); at != std::string::npos; at = name.find('.', at + 1))
      version.push_back(static_cast<int>(std::strtol(name.c_str() + at + 1, nullptr, 10)));
    // Names by year (libcupti.so.2024.3.2) are skipped: a link named by toolkit version exists beside them.
    const int major = version.empty() ? 0 : version[0];
    if (major < 1000 && (driver_major == 0 || major <= driver_major)) found.emplace_back(version, folder + "/" + name);
  }
  closedir(entries);
  std::sort(found.rbegin(), found.rend());
  for (auto& [version, path] : found) out->push_back(std::move(path));
}

// Each file once, though links name it too. A name without a folder is the loader's to find.
std::vector<std::string> without_repeats(const std::vector<std::string>& paths) {
  std::vector<std::string> kept;
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    char file[PATH_MAX];
    const std::string real = realpath(path.c_str(), file) != nullptr ? file : path;
    if (std::find(files.begin(), files.end(), real) != files.end()) continue;
    files.push_back(real);
    kept.push_back(path);
  }
  return kept;
}

std::vector<std::string> candidates(int driver_major) {
  std::vector<std::string> found;
  const std::vector<std::string> loaded = loaded_objects();
  for (const std::string& path : loaded) {
    if (name_of(path).rfind(kLibrary, 0) == 0) found.push_back(path);
  }
  std::vector<std::string> sites;
  for (const std::string& path : loaded) {
    for (const char* packages : {"/site-packages/", "/dist-packages/"}) {
      const std::size_t at = path.find(packages);
      if (at == std::string::npos) continue;
      const std::string site = path.substr(0, at + std::strlen(packages));
      if (std::find(sites.begin(), sites.end(), site) == sites.end()) sites.push_back(site);
    }
  }
  for (const std::string& site : sites) {
    add_of_folder(site + "nvidia/cu13/lib", driver_major, &found);
    add_of_folder(site + "nvidia/cuda_cupti/lib", driver_major, &found);
  }
  std::vector<std::string> toolkits;
  for (const std::string& path : loaded) {
    if (name_of(path).rfind("libcudart.so", 0) == 0) toolkits.push_back(folder_of(folder_of(path)));
  }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(variable); root != nullptr && *root != 0) toolkits.emplace_back(root);
  }
  toolkits.emplace_back("/usr/local/cuda");
  for (const std::string& root : toolkits) {
    for (const char* folder : {"/extras/CUPTI/lib64", "/lib64", "/lib"}) {
      add_of_folder(root + folder, driver_major, &found);
    }
  }
  if (const char* more = std::getenv("CURVESCOPE_CUPTI_FOLDERS"); more != nullptr) {
    const std::string folders = more;
    for (std::size_t at = 0, end = 0; at < folders.size(); at = end + 1) {
      end = std::min(folders.find(':', at), folders.size());
      add_of_folder(folders.substr(at, end - at), driver_major, &found);
    }
  }
  for (int major = driver_major == 0 ? 13 : driver_major; major >= 12; --major)
    found.push_back(std::string(kLibrary) + "." + std::to_string(major));
  found.emplace_back(kLibrary);
  return without_repeats(found);
}

// Empty if all functions exist, else the name of a missing one.
std::string fill(void* library, CuptiApi* api) {
#define CURVESCOPE_CUPTI_FILL(name) api->name = reinterpret_cast<decltype(api->name)>(dlsym(library, "cupti" #name));
#define CURVESCOPE_CUPTI_CHECK(name) \
  if (api->name == nullptr) return "cupti" #name;
  CURVESCOPE_CUPTI_REQUIRED(CURVESCOPE_CUPTI_FILL)
  CURVESCOPE_CUPTI_OPTIONAL(CURVESCOPE_CUPTI_FILL)
  CURVESCOPE_CUPTI_REQUIRED(CURVESCOPE_CUPTI_CHECK)
#undef CURVESCOPE_CUPTI_FILL
#undef CURVESCOPE_CUPTI_CHECK
  return "";
}

}  // namespace

CuptiSearch search_cupti(int driver_version) {
  CuptiSearch search;
  const char* choice = std::getenv("CURVESCOPE_CUPTI");
  if (choice != nullptr && std::strcmp(choice, "off") == 0) {
    search.why_not = "CURVESCOPE_CUPTI=off: GPU work was not recorded.";
  } else if (choice != nullptr && *choice != 0) {
    search.paths.emplace_back(choice);
  } else {
    search.paths = candidates(driver_version / 1000);
  }
  return search;
}

CuptiFound load_cupti(const std::string& path, int driver_version) {
  CuptiFound found;
  found.path = path;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = dlerror();
    found.why_not = "libcupti was not found (" + (error != nullptr ? std::string(error) : path) +
                    "): install nvidia-cuda-cupti, or give its path in CURVESCOPE_CUPTI.";
    return found;
  }
  found.exists = true;
  const std::string missing = fill(library, &found.api);
  const int driver_major = driver_version / 1000;
  if (!missing.empty()) {
    found.why_not = path + " has no " + missing + ": it is not a libcupti of CUDA 11 or newer.";
  } else if (found.api.GetVersion(&found.version) != CUPTI_SUCCESS) {
    found.why_not = path + " does not say its version.";
  } else if (driver_major != 0 && cuda_major(found.version) > driver_major) {
    found.why_not = path + " is of CUDA " + std::to_string(cuda_major(found.version)) + ", newer than the driver's " +
                    std::to_string(driver_major) + ": install the nvidia-cuda-cupti of the driver's CUDA.";
  } else {
    found.usable = true;
  }
  if (!found.usable) dlclose(library);
  return found;
}

}  // namespace curvescope
