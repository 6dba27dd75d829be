// Models of pictures on their tiny ones (tests/picture_models): ids of Hugging Face transformers
// (tests/golden/pictures), and the same outcome however a request is run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <span>
#include <string_view>

#include "base/blended_plane.h"
#include "base/json.h"
#include "base/json_members.h"
#include "base/rng.h"
#include "base/testing/source_dir.h"
#include "io/safetensors.h"
#include "runtime/prompts/pictures.h"
#include "runtime/testing/exactness.h"
#include "runtime/testing/test_config.h"
#include "tensor/dtype.h"

namespace nereid::runtime::exactness {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kRepository = source_dir();

struct Model {
  const char* name;
  TokenId placeholder;
  int32_t least_tokens = 5;  // of a step: more where tokens attend to one another
};

std::vector<TokenId> ids_of(const json::value& list) {
  std::vector<TokenId> out;
  for (const json::value& v : list.as_array()) out.push_back(v.to_number<TokenId>());
  return out;
}

std::vector<uint16_t> rounded(std::span<const float> numbers) {
  std::vector<uint16_t> out;
  for (const float x : numbers) out.push_back(to_bf16(x).bits);
  return out;
}

// Patches of pixel values [channels, side, side], row by row.
std::vector<float> patches_of(std::span<const float> pixels, int64_t side, int64_t patch) {
  std::vector<float> out;
  const int64_t channels = std::ssize(pixels) / (side * side);
  for (int64_t row = 0; row < side; row += patch)
    for (int64_t col = 0; col < side; col += patch)
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t y = row; y < row + patch; ++y)
          for (int64_t x = col; x < col + patch; ++x)
            out.push_back(pixels[static_cast<size_t>((c * side + y) * side + x)]);
  return out;
}

// The picture of the golden file, without its place.
Picture golden_picture(const std::string& model, const PictureFacts& facts) {
  const auto file =
      io::TensorFile::open(kRepository / "tests/golden/pictures" / (model + ".safetensors"));
  Picture out;
  if (!file.ok()) return out;
  for (const io::StoredTensor& tensor : file->tensors()) {
    if (tensor.name == "image_grid_thw") {
      const auto* const grid = reinterpret_cast<const int64_t*>(tensor.data.data());
      out.frames = static_cast<int32_t>(grid[0]);
      out.height = static_cast<int32_t>(grid[1]), out.width = static_cast<int32_t>(grid[2]);
    }
    if (tensor.name == "image_tiles") {
      const auto* const tiles = reinterpret_cast<const int64_t*>(tensor.data.data());
      out.tile_rows = static_cast<int32_t>(tiles[0]);
      out.tile_columns = static_cast<int32_t>(tiles[1]);
      out.cut_rows = static_cast<int32_t>(tiles[2]);
      out.cut_columns = static_cast<int32_t>(tiles[3]);
    }
    if (tensor.name != "pixel_values") continue;
    const std::span numbers(reinterpret_cast<const float*>(tensor.data.data()),
                            tensor.data.size() / sizeof(float));
    if (tensor.shape.size() == 2) {
      out.patches = rounded(numbers);
    } else {
      out.height = out.width = facts.grid;
      out.patches = rounded(patches_of(numbers, tensor.shape[3], tensor.shape[3] / facts.grid));
    }
  }
  return out;
}

void place(Picture& picture, int32_t first, const PictureFacts& facts) {
  picture.first_token = first;
  if (facts.max_across > 0) {
    picture.num_tokens = 1;
    return;
  }
  const int32_t height = picture.height / facts.merge, width = picture.width / facts.merge;
  if (facts.tiles_in_plane) {
    const PlaneSize plane = blended_size({picture.tile_rows * height - 2 * picture.cut_rows,
                                          picture.tile_columns * width - 2 * picture.cut_columns},
                                         height, facts.blended_tiles);
    const int32_t half = (height + 1) / 2 * ((width + 1) / 2);
    picture.num_tokens =
        picture.tile_rows > 0
            ? static_cast<int32_t>(height * width + plane.rows * (plane.columns + 1))
        : picture.frames == 1 ? height * width + 1
                              : picture.frames * half + 1;
    return;
  }
  picture.num_tokens = picture.frames * (picture.height / facts.merge) *
                       (picture.width / facts.merge + (facts.row_breaks ? 1 : 0));
}

struct PictureCase {
  Request request;
  std::vector<TokenId> greedy;
  std::vector<double> log_probs;  // of the prompt's last tokens; empty: not in the file
};

std::vector<PictureCase> golden_cases(const Model& model, const PictureFacts& facts) {
  const json::value golden =
      read_json_file(kRepository / "tests/golden/pictures" / (std::string(model.name) + ".json"))
          .value();
  std::vector<PictureCase> all;
  for (const json::value& v : golden.at("cases").as_array()) {
    PictureCase& c = all.emplace_back();
    Request& r = c.request;
    r.input_token_ids = ids_of(v.at("prompt_ids"));
    const auto first = std::ranges::find(r.input_token_ids, model.placeholder);
    r.pictures.push_back(golden_picture(model.name, facts));
    place(r.pictures[0], static_cast<int32_t>(first - r.input_token_ids.begin()), facts);
    c.greedy = ids_of(v.at("greedy_ids"));
    for (const json::value& p : array_member(v, "prompt_log_probs"))
      c.log_probs.push_back(p.to_number<double>());
    r.max_tokens = static_cast<int32_t>(c.greedy.size());
    r.output.return_log_probs = true;
  }
  return all;
}

// A picture of noise.
Picture noise(const PictureFacts& facts, int32_t height, int32_t width, uint64_t seed) {
  Picture out;
  out.height = height, out.width = width;
  const int64_t count = int64_t{height} * width * facts.patch_width;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = philox(seed, static_cast<uint64_t>(i), 0)[0];
    out.patches.push_back(to_bf16(static_cast<float>(bits) * 0x1p-31f - 1).bits);
  }
  return out;
}

// A picture in `rows` x `columns` tiles behind the whole one.
Picture tiled(const PictureFacts& facts, int32_t rows, int32_t columns, uint64_t seed) {
  Picture out = noise(facts, (1 + rows * columns) * facts.grid, facts.grid, seed);
  out.frames = 1 + rows * columns, out.height = facts.grid;
  out.tile_rows = rows, out.tile_columns = columns;
  (rows < columns ? out.cut_rows : out.cut_columns) = 1;
  return out;
}

// A picture of `rows` x `columns` tiles alone.
Picture of_tiles(const PictureFacts& facts, int32_t rows, int32_t columns, uint64_t seed) {
  Picture out = noise(facts, rows * columns * facts.grid, facts.grid, seed);
  out.frames = rows * columns, out.height = facts.grid;
  out.tile_rows = rows, out.tile_columns = columns;
  return out;
}

// A prompt of text with a picture in front, one in the middle and one at the end.
Request several(const Model& model, const PictureFacts& facts) {
  Request r;
  const auto add_text = [&](int32_t count) {
    for (int32_t i = 0; i < count; ++i)
      r.input_token_ids.push_back(static_cast<TokenId>(20 + 7 * r.input_token_ids.size() % 400));
  };
  const auto add = [&](Picture picture) {
    place(picture, static_cast<int32_t>(r.input_token_ids.size()), facts);
    r.input_token_ids.insert(r.input_token_ids.end(), static_cast<size_t>(picture.num_tokens),
                             model.placeholder);
    r.pictures.push_back(std::move(picture));
  };
  const bool fixed = facts.grid > 0;
  const auto sized = [&](int32_t height, int32_t width, uint64_t seed) {
    if (facts.max_across > 0) return of_tiles(facts, height / 4, (width + 2) / 4, seed);
    if (facts.tiles_in_plane) return tiled(facts, height / 4, (width + 2) / 4, seed);
    return fixed ? noise(facts, facts.grid, facts.grid, seed) : noise(facts, height, width, seed);
  };
  add(sized(4, 6, 1));
  add_text(5);
  // Without tiles where a model takes both.
  add(facts.blended_tiles > 0 ? noise(facts, facts.grid, facts.grid, 2) : sized(8, 4, 2));
  if (facts.max_frames > 1 && !facts.tiles_in_plane) {  // a video, or tiles
    const int32_t height = fixed ? facts.grid : 4, width = fixed ? facts.grid : 6;
    Picture video = noise(facts, 3 * height, width, 3);
    video.frames = 3, video.height = height;
    if (facts.max_across > 0) video.tile_rows = 1, video.tile_columns = 3;
    add(std::move(video));
  }
  if (facts.blended_tiles > 0) {  // a blended one, and a video
    add(tiled(facts, 2, facts.max_frames / 2, 4));
    Picture video = noise(facts, 2 * facts.grid, facts.grid, 6);
    video.frames = 2, video.height = facts.grid;
    add(std::move(video));
  }
  add_text(9);
  add(sized(4, 6, 1));  // the first one again
  r.max_tokens = 12;
  r.output.return_log_probs = true;
  return r;
}

ExecutorConfig picture_config() {
  ExecutorConfig config = test_config();
  config.num_threads = 2;
  config.max_batch_size = 8;
  config.max_beam_width = 4;
  config.kv_cache.max_tokens = 2048;
  config.kv_cache.tokens_per_block = 16;
  config.cache_dir = std::filesystem::path(testing::TempDir()) / "nereid_picture_test";
  return config;
}

std::unique_ptr<Executor> open(const Model& model, const ExecutorConfig& config) {
  auto executor = Executor::create(kRepository / "tests/picture_models" / model.name, config);
  EXPECT_TRUE(executor.ok()) << executor.status();
  return executor.ok() ? *std::move(executor) : nullptr;
}

int64_t figure(const Executor& executor, std::string_view name) {
  const ExecutorStats stats = executor.stats();
  for (int64_t i = 0; i < stats.num_module_figures; ++i)
    if (stats.module_figures[static_cast<size_t>(i)].name == name)
      return stats.module_figures[static_cast<size_t>(i)].value;
  return -1;
}

// Mean distance of `expected` from the last of `got`.
double distance(const std::vector<double>& expected, const std::vector<float>& got) {
  double sum = 0;
  const size_t first = got.size() - expected.size();
  for (size_t i = 0; i < expected.size(); ++i) sum += std::abs(expected[i] - got[first + i]);
  return sum / static_cast<double>(expected.size());
}

class Pictures : public ::testing::TestWithParam<Model> {};

TEST_P(Pictures, GreedyIdsEqualTransformers) {
  const auto executor = open(GetParam(), picture_config());
  ASSERT_NE(executor, nullptr);
  Client client;
  const std::vector<PictureCase> cases = golden_cases(GetParam(), executor->pictures());
  ASSERT_EQ(cases.size(), 4u);
  for (const PictureCase& c : cases) {
    const Outcome got = client.run(*executor, c.request);
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.sequences[0][0].tokens, c.greedy);
    if (c.log_probs.empty()) continue;
    Request scored = c.request;
    scored.output.num_prompt_log_probs = 0;
    const Outcome scores = client.run(*executor, scored);
    ASSERT_TRUE(scores.status.ok()) << scores.status;
    ASSERT_GT(scores.prompt_log_probs.size(), c.log_probs.size());
    EXPECT_LT(distance(c.log_probs, scores.prompt_log_probs), 0.03);
  }
}

// Alone, in company, streamed, in chunks that end inside pictures, paused, with few features kept.
TEST_P(Pictures, OutcomesDoNotDependOnTheWay) {
  const Model model = GetParam();
  const auto first = open(model, picture_config());
  ASSERT_NE(first, nullptr);
  const PictureFacts facts = first->pictures();
  Client client;
  std::vector<Request> requests = {several(model, facts)};
  for (const PictureCase& c : golden_cases(model, facts)) requests.push_back(c.request);
  requests.resize(4);
  requests.push_back(requests[0]);
  requests.back().sampling.beam_width = 3;
  requests.push_back(requests[1]);
  requests.back().sampling.temperature = 3;
  requests.back().sampling.top_k = 50;
  requests.back().sampling.seed = 7;
  std::vector<Outcome> expected;
  for (const Request& request : requests) {
    ExecutorConfig fresh = picture_config();
    fresh.kv_cache.enable_block_reuse = false;
    const auto executor = open(model, fresh);
    expected.push_back(client.run(*executor, request));
    ASSERT_TRUE(expected.back().status.ok()) << expected.back().status;
  }
  struct Way {
    const char* name;
    std::function<void(ExecutorConfig&)> set;
    bool streams = false;
  };
  const Way ways[] = {
      {"in company", [](ExecutorConfig&) {}},
      {"streamed", [](ExecutorConfig&) {}, true},
      {"one thread, no overlap",
       [](ExecutorConfig& c) {
         c.num_threads = 1;
         c.enable_overlap = false;
       }},
      {"in chunks", [&](ExecutorConfig& c) { c.max_num_tokens = model.least_tokens; }},
      {"in chunks, equal progress",
       [&](ExecutorConfig& c) {
         c.max_num_tokens = std::max(24, model.least_tokens);
         c.scheduler.chunking_policy = ChunkingPolicy::kEqualProgress;
       }},
      {"not in chunks",
       [](ExecutorConfig& c) {
         c.scheduler.enable_chunked_context = false;
         c.max_num_tokens = 160;
       }},
      {"paused",
       [](ExecutorConfig& c) {
         c.kv_cache.max_tokens = 240;
         c.scheduler.capacity_policy = CapacityPolicy::kMaxUtilization;
       }},
      {"few features kept",
       [&](ExecutorConfig& c) {
         // A prompt that attends to itself needs the features of all of its pictures at once.
         c.kv_cache.cross_fraction = model.least_tokens > 64 ? 0.1 : 1e-9;
       }},
      {"n-gram drafts", [](ExecutorConfig& c) { c.speculation = "ngram"; }},
  };
  for (const Way& way : ways) {
    ExecutorConfig config = picture_config();
    config.max_encoder_input_len = facts.grid == 0 ? 256 : 0;
    way.set(config);
    const auto executor = open(model, config);
    ASSERT_NE(executor, nullptr) << way.name;
    std::vector<RequestId> sent;
    std::vector<size_t> which;
    for (int round = 0; round < 2; ++round)
      for (size_t i = 0; i < requests.size(); ++i) {
        Request request = requests[i];
        request.streaming = way.streams;
        sent.push_back(client.send(*executor, request));
        which.push_back(i);
      }
    for (size_t i = 0; i < sent.size(); ++i)
      EXPECT_EQ(difference(expected[which[i]], client.wait(sent[i])), "")
          << way.name << ", request " << which[i];
  }
}

// Equal pictures are encoded once; a prompt that is found in the cache encodes nothing; pictures of
// one size with other contents share nothing.
TEST_P(Pictures, ContentsDecideWhatIsShared) {
  const Model model = GetParam();
  const auto executor = open(model, picture_config());
  ASSERT_NE(executor, nullptr);
  const PictureFacts facts = executor->pictures();
  Client client;
  Request one = golden_cases(model, facts)[3].request;
  Request other = one;
  other.pictures[0].patches[5] ^= 0x40;
  const Outcome first = client.run(*executor, one);
  ASSERT_TRUE(first.status.ok()) << first.status;
  EXPECT_EQ(figure(*executor, "encoder_inputs_computed"), 1);
  EXPECT_EQ(difference(first, client.run(*executor, one)), "");
  EXPECT_EQ(figure(*executor, "encoder_inputs_computed"), 1);
  // The whole prompt was found; tokens to come read a picture by cross attention.
  EXPECT_EQ(figure(*executor, "encoder_results_found"), facts.max_across > 0 ? 1 : 0);
  const Outcome changed = client.run(*executor, other);
  EXPECT_EQ(figure(*executor, "encoder_inputs_computed"), 2);
  EXPECT_NE(difference(first, changed), "");
  ExecutorConfig fresh = picture_config();
  fresh.kv_cache.enable_block_reuse = false;
  const auto apart = open(model, fresh);
  EXPECT_EQ(difference(changed, client.run(*apart, other)), "");
  EXPECT_EQ(difference(first, client.run(*apart, one)), "");
  EXPECT_EQ(difference(changed, client.run(*apart, other)), "");
  EXPECT_EQ(figure(*apart, "encoder_inputs_computed"), 2);
  EXPECT_EQ(figure(*apart, "encoder_results_found"), 1);
  one.cache_salt = "another client";
  EXPECT_EQ(difference(first, client.run(*apart, one)), "");
  EXPECT_EQ(figure(*apart, "encoder_inputs_computed"), 3);
}

TEST_P(Pictures, TensorRanksGiveTheSameBits) {
  ExecutorConfig config = picture_config();
  config.tp_invariant = true;
  const auto one = open(GetParam(), config);
  ASSERT_NE(one, nullptr);
  config.tensor_parallel = "2";
  if (std::string_view(GetParam().name).ends_with("_moe")) config.expert_parallel = 2;
  const auto two = open(GetParam(), config);
  ASSERT_NE(two, nullptr);
  Client client;
  for (const PictureCase& c : golden_cases(GetParam(), one->pictures()))
    EXPECT_EQ(difference(client.run(*one, c.request), client.run(*two, c.request)), "");
}

TEST_P(Pictures, PicturesAreChecked) {
  const auto executor = open(GetParam(), picture_config());
  ASSERT_NE(executor, nullptr);
  const PictureCase good = golden_cases(GetParam(), executor->pictures())[0];
  const auto error = [&](const std::function<void(Picture&)>& edit) {
    Request request = good.request;
    edit(request.pictures[0]);
    const auto id = executor->enqueue(request);
    return id.ok() ? "" : std::string(id.status().message());
  };
  EXPECT_THAT(error([](Picture& p) { p.frames = 0; }), HasSubstr("pictures[0]: frames: 0"));
  EXPECT_THAT(error([](Picture& p) { p.height = -2; }),
              HasSubstr("pictures[0]: height, width: -2"));
  EXPECT_THAT(error([](Picture& p) { p.height = 1 << 30, p.width = 1 << 30; }),
              HasSubstr("pictures[0]: height, width"));
  EXPECT_THAT(error([](Picture& p) { ++p.num_tokens; }), HasSubstr("pictures[0]: num_tokens"));
  EXPECT_THAT(error([](Picture& p) { p.first_token = -1; }), HasSubstr("first_token: -1"));
  EXPECT_THAT(error([](Picture& p) { p.first_token += 1000; }), HasSubstr("first_token"));
  EXPECT_THAT(error([](Picture& p) { p.patches.pop_back(); }), HasSubstr("patches: "));
  EXPECT_THAT(error([](Picture& p) { p.patches[3] = 0x7f80; }),
              HasSubstr("patches: number 3 is not finite"));
  Request twice = good.request;
  twice.pictures.push_back(twice.pictures[0]);
  EXPECT_THAT(std::string(executor->enqueue(twice).status().message()),
              HasSubstr("pictures[1]: first_token"));
  Request text = good.request;
  text.pictures.clear();
  Client client;
  if (executor->pictures().max_across > 0)  // the mark is no word
    EXPECT_THAT(std::string(executor->enqueue(text).status().message()),
                HasSubstr("input_token_ids[2]: 512 is not in [0, 512)"));
  else
    EXPECT_TRUE(client.run(*executor, text).status.ok());
  EXPECT_TRUE(client.run(*executor, good.request).status.ok());
}

INSTANTIATE_TEST_SUITE_P(
    Models, Pictures,
    ::testing::Values(Model{"llava", 512}, Model{"llava_next", 500}, Model{"llava_onevision", 500},
                      Model{"llava_onevision_video", 500}, Model{"qwen2_vl", 510},
                      Model{"qwen2_5_vl", 500}, Model{"qwen3_vl", 500}, Model{"qwen3_vl_moe", 500},
                      Model{"mistral3", 500}, Model{"pixtral", 500}, Model{"idefics3", 500},
                      Model{"internvl", 500}, Model{"mllama", 512}, Model{"gemma3", 500, 17},
                      Model{"paligemma", 500, 88}, Model{"paligemma2", 500, 88}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(PictureOptions, TilesAreChecked) {
  const Model model{"llava_next", 500};
  const auto executor = open(model, picture_config());
  ASSERT_NE(executor, nullptr);
  const PictureCase good = golden_cases(model, executor->pictures())[0];
  const auto error = [&](const std::function<void(Picture&)>& edit) {
    Request request = good.request;
    edit(request.pictures[0]);
    const auto id = executor->enqueue(request);
    return id.ok() ? "" : std::string(id.status().message());
  };
  EXPECT_THAT(error([](Picture& p) { p.tile_rows = 0; }),
              HasSubstr("pictures[0]: tile_rows, tile_columns: 0 x 2 tiles; 3 frames have 2"));
  EXPECT_THAT(error([](Picture& p) { p.tile_rows = 1 << 30, p.tile_columns = 1 << 30; }),
              HasSubstr("tile_rows, tile_columns: 1073741824"));
  EXPECT_THAT(error([](Picture& p) { p.cut_rows = 3; }),
              HasSubstr("cut_rows, cut_columns: 3, 0; allowed are [0, 2] and [0, 4]"));
  EXPECT_THAT(error([](Picture& p) { p.cut_columns = -1; }), HasSubstr("cut_rows, cut_columns"));
  EXPECT_THAT(error([](Picture& p) { p.cut_rows = 0; }), HasSubstr("num_tokens: 34"));
  // Equal pixels in another layout of tiles share no result of the encoder.
  Client client;
  Request other = good.request;
  other.pictures[0].cut_rows = 0, other.pictures[0].cut_columns = 1;
  place(other.pictures[0], other.pictures[0].first_token, executor->pictures());
  other.input_token_ids.insert(
      other.input_token_ids.begin() + other.pictures[0].first_token,
      static_cast<size_t>(other.pictures[0].num_tokens - good.request.pictures[0].num_tokens),
      model.placeholder);
  const Outcome alone = client.run(*executor, other);
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  ASSERT_TRUE(client.run(*executor, good.request).status.ok());
  EXPECT_EQ(difference(alone, client.run(*executor, other)), "");
}

// Tokens read the pictures of the last group of marks in front of them.
TEST(PictureOptions, TokensReadThePicturesInFrontOfThem) {
  const Model model{"mllama", 512};
  const auto executor = open(model, picture_config());
  ASSERT_NE(executor, nullptr);
  const PictureFacts facts = executor->pictures();
  const auto log_probs = [&](std::vector<Picture> pictures, std::vector<int32_t> marks) {
    Request r;
    for (int32_t i = 0; i < 30; ++i) r.input_token_ids.push_back(20 + 7 * i);
    for (size_t i = 0; i < marks.size(); ++i) {
      r.input_token_ids[static_cast<size_t>(marks[i])] = model.placeholder;
      place(pictures[i], marks[i], facts);
    }
    r.pictures = std::move(pictures);
    r.max_tokens = 1;
    r.output.num_prompt_log_probs = 0;
    Client client;
    const Outcome got = client.run(*executor, r);
    EXPECT_TRUE(got.status.ok()) << got.status;
    return got.prompt_log_probs;
  };
  // Whether the log-probabilities of tokens [begin, end) are equal: those of the rows in front.
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b, size_t begin,
                       size_t end) {
    const size_t skipped = 30 - a.size();
    return std::equal(a.begin() + static_cast<ptrdiff_t>(std::max(begin, skipped) - skipped),
                      a.begin() + static_cast<ptrdiff_t>(end - skipped),
                      b.begin() + static_cast<ptrdiff_t>(std::max(begin, skipped) - skipped));
  };
  const Picture one = of_tiles(facts, 1, 1, 1), wide = of_tiles(facts, 1, 2, 2),
                high = of_tiles(facts, 2, 1, 2), four = of_tiles(facts, 2, 2, 3);
  const auto base = log_probs({one, wide}, {5, 15});
  ASSERT_GE(base.size(), 29u);
  const auto other_second = log_probs({one, four}, {5, 15});
  EXPECT_TRUE(same(base, other_second, 0, 16));
  EXPECT_FALSE(same(base, other_second, 16, 30));
  const auto turned = log_probs({one, high}, {5, 15});  // equal pixels in another arrangement
  EXPECT_FALSE(same(base, turned, 16, 30));
  const auto other_first = log_probs({four, wide}, {5, 15});
  EXPECT_TRUE(same(base, other_first, 0, 6));
  EXPECT_FALSE(same(base, other_first, 6, 16));
  // Both of a group are read behind it.
  const auto group = log_probs({one, wide}, {5, 6});
  EXPECT_FALSE(same(group, log_probs({four, wide}, {5, 6}), 7, 30));
  EXPECT_FALSE(same(group, log_probs({one, four}, {5, 6}), 7, 30));
}

TEST(PictureOptions, ArrangementsAreChecked) {
  const Model model{"mllama", 512};
  const auto executor = open(model, picture_config());
  ASSERT_NE(executor, nullptr);
  const PictureCase good = golden_cases(model, executor->pictures())[0];
  const auto error = [&](const std::function<void(Request&)>& edit) {
    Request request = good.request;
    edit(request);
    const auto id = executor->enqueue(request);
    return id.ok() ? "" : std::string(id.status().message());
  };
  EXPECT_THAT(error([](Request& r) { r.pictures[0].tile_rows = 2; }),
              HasSubstr("pictures[0]: tile_rows, tile_columns: 2 x 2 tiles of 2 frames"));
  EXPECT_THAT(error([](Request& r) { r.pictures[0].tile_rows = r.pictures[0].tile_columns = 0; }),
              HasSubstr("tile_rows, tile_columns: 0 x 0"));
  EXPECT_THAT(error([](Request& r) { r.pictures[0].cut_columns = 1; }),
              HasSubstr("cut_rows, cut_columns: 0, 1"));
  EXPECT_THAT(error([](Request& r) { r.input_token_ids[0] = 512; }),
              HasSubstr("input_token_ids[0]: 512 is not in [0, 512)"));
  EXPECT_THAT(error([](Request& r) {
                r.input_token_ids.assign(5, 512);
                r.pictures.resize(5, r.pictures[0]);
                for (int32_t i = 0; i < 5; ++i) r.pictures[static_cast<size_t>(i)].first_token = i;
              }),
              HasSubstr("pictures: 5 of them; at most 4 are allowed"));
}

// Without the encoder the layers of cross attention add nothing.
TEST(PictureOptions, StagesServeTheTextPartWithoutCrossAttention) {
  const Model model{"mllama", 512};
  const auto whole = open(model, picture_config());
  ASSERT_NE(whole, nullptr);
  ExecutorConfig config = picture_config();
  config.pipeline_parallel = 2;
  const auto text = open(model, config);
  ASSERT_NE(text, nullptr);
  EXPECT_EQ(text->pictures().patch_width, 0);
  Request request;
  request.input_token_ids = {5, 6, 7, 8, 9};
  request.max_tokens = 8;
  Client client;
  const Outcome expected = client.run(*whole, request);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  EXPECT_EQ(difference(expected, client.run(*text, request)), "");
}

TEST(PictureOptions, TilesOfOtherModelsAreRefused) {
  const Model model{"llava", 512};
  const auto executor = open(model, picture_config());
  ASSERT_NE(executor, nullptr);
  Request request = golden_cases(model, executor->pictures())[0].request;
  request.pictures[0].tile_rows = 1;
  EXPECT_THAT(std::string(executor->enqueue(request).status().message()),
              HasSubstr("pictures[0]: tile_rows, tile_columns, cut_rows, cut_columns: 1, 0, 0, 0"));
}

TEST(PictureOptions, OtherModelsTakeNoPictures) {
  auto executor = Executor::create(kRepository / "tests/models/llama", picture_config());
  ASSERT_TRUE(executor.ok()) << executor.status();
  EXPECT_EQ((*executor)->pictures().patch_width, 0);
  Request request;
  request.input_token_ids = {5, 6};
  request.max_tokens = 2;
  request.pictures.emplace_back();
  EXPECT_THAT((*executor)->enqueue(request).status().message(), HasSubstr("takes none"));
}

TEST(PictureOptions, StagesServeTheTextPart) {
  ExecutorConfig config = picture_config();
  config.pipeline_parallel = 2;
  const auto executor = Executor::create(kRepository / "tests/picture_models/llava", config);
  ASSERT_TRUE(executor.ok()) << executor.status();
  EXPECT_EQ((*executor)->pictures().patch_width, 0);
}

TEST(PictureOptions, TokensThatAttendToOneAnotherNeedOneStep) {
  for (const char* name : {"gemma3", "paligemma"}) {
    const Model model{name, 500};
    ExecutorConfig config = picture_config();
    config.max_num_tokens = 12;
    const auto executor = open(model, config);
    ASSERT_NE(executor, nullptr);
    Client client;
    Request request = golden_cases(model, executor->pictures())[0].request;
    EXPECT_THAT(std::string(client.run(*executor, request).status.message()),
                HasSubstr("attend to one another and need one step, which has 12 tokens"));
    request.pictures.clear();
    request.input_token_ids = {5, 6, 7};
    EXPECT_TRUE(client.run(*executor, request).status.ok());
  }
}

TEST(PictureOptions, PromptsThatAttendToThemselvesNeedTheCpuAndOneStage) {
  ExecutorConfig config = picture_config();
  config.pipeline_parallel = 2;
  const auto executor = Executor::create(kRepository / "tests/picture_models/paligemma", config);
  EXPECT_THAT(std::string(executor.status().message()),
              HasSubstr("prompt attend to one another; this is for CPUs, one stage"));
}

TEST(PictureOptions, WhatSuchModelsLackIsRefusedByName) {
  const auto error = [](const std::function<void(ExecutorConfig&)>& edit) {
    ExecutorConfig config = picture_config();
    edit(config);
    const auto executor = Executor::create(kRepository / "tests/picture_models/llava", config);
    return executor.ok() ? "" : std::string(executor.status().message());
  };
  EXPECT_THAT(error([](ExecutorConfig& c) { c.max_encoder_input_len = 5; }),
              HasSubstr("max_encoder_input_len: 5"));
}

}  // namespace
}  // namespace nereid::runtime::exactness
