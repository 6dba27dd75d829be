// Prompt tables in the tensors of the tensorrt_llm model.
#include <bit>

#include "backend/testing/feature_fixture.h"
#include "tensor/dtype.h"

namespace nereid::backend {
namespace {

constexpr int64_t kRows = 3, kWidth = 256;  // rows of the table; width of the quick-start model
constexpr int32_t kVocab = 4096;

// Numbers that all types hold exactly, different for each row and seed.
std::vector<float> table_values(int seed) {
  std::vector<float> values;
  for (int i = 0; i < kRows * kWidth; ++i)
    values.push_back(static_cast<float>((i * 37 + i / 256 * 11 + seed * 5) % 64 - 32) / 128);
  return values;
}

// The half-precision bits of a number in (-1, 1) that is 0 or at least 2^-14, with up to
// eleven significant bits.
uint16_t half_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (value == 0) return 0;
  return static_cast<uint16_t>(bits >> 31 << 15 | (((bits & 0x7fffffffu) >> 13) - (112u << 10)));
}

template <class Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

Output table_input(const std::string& type, int seed = 0) {
  const std::vector<float> values = table_values(seed);
  const Shape shape = {1, kRows, kWidth};
  const char* const name = "prompt_embedding_table";
  if (type == "TYPE_FP32") return {name, TRITONSERVER_TYPE_FP32, shape, bytes_of(values)};
  const bool is_half = type == "TYPE_FP16";
  std::vector<uint16_t> rounded;
  for (const float value : values)
    rounded.push_back(is_half ? half_bits(value) : to_bf16(value).bits);
  return {name, is_half ? TRITONSERVER_TYPE_FP16 : TRITONSERVER_TYPE_BF16, shape,
          bytes_of(rounded)};
}

Output extra_ids(const std::vector<uint64_t>& ids) {
  return {"prompt_table_extra_ids",
          TRITONSERVER_TYPE_UINT64,
          {1, static_cast<int64_t>(ids.size())},
          bytes_of(ids)};
}

class PromptTableTest : public FeatureTest {
 protected:
  // The prompt, preceded by rows of the table.
  static Ids with_rows() {
    Ids ids = {kVocab, kVocab + 1, kVocab + 2, kVocab + 1};
    for (const int32_t id : prompt()) ids.push_back(id);
    while (ids.size() < 70) ids.push_back(200 + static_cast<int32_t>(ids.size()) * 5);
    return ids;
  }
  static std::string error(const Ids& ids, std::vector<Output> more) {
    return std::string(message(ask_ids(ids, 2, std::move(more)).status));
  }
};

TEST_F(PromptTableTest, RowsStandForIdsBehindTheVocabulary) {
  const Output table = table_input("TYPE_FP16");
  const Ids ids = with_rows();
  const Ids expected = tokens_of(ask_ids(ids, 12, {table}));
  EXPECT_EQ(tokens_of(ask_ids(ids, 12, {table, int_input("prompt_vocab_size", kRows)})), expected);
  EXPECT_NE(tokens_of(ask_ids(ids, 12, {table_input("TYPE_FP16", 1)})), expected);
  EXPECT_NE(tokens_of(ask_ids(ids, 12)), expected) << "the vocabulary's last id stands for them";
  // Batches are cut into items, and padded with any ids.
  Ids both = ids;
  both.insert(both.end(), ids.begin(), ids.begin() + 20);
  both.resize(2 * ids.size(), 0);
  Output twice = table;
  twice.shape[0] = 2;
  twice.bytes += table_input("TYPE_FP16", 1).bytes;
  const auto size = static_cast<int64_t>(ids.size());
  const auto batch =
      Talk(server_, "tensorrt_llm",
           {make_output("input_ids", {2, size}, both), twice,
            make_output("input_lengths", {2, 1}, Ids{static_cast<int32_t>(size), 20}),
            make_output("request_output_len", {2, 1}, Ids{12, 12}),
            make_output("end_id", {2, 1}, Ids{-1, -1})})
          .wait();
  ASSERT_TRUE(batch.status.ok()) << batch.status;
  const Ids short_ids(ids.begin(), ids.begin() + 20);
  Ids first = ids, second = short_ids;
  for (const int32_t id : expected) first.push_back(id);
  for (const int32_t id : tokens_of(ask_ids(short_ids, 12, {table_input("TYPE_FP16", 1)})))
    second.push_back(id);
  std::vector<Ids> rows;
  for (const auto& outputs : batch.outputs)
    for (const Ids& row : rows_of(outputs)) rows.push_back(row);
  EXPECT_THAT(rows, testing::UnorderedElementsAre(first, second));
}

TEST_F(PromptTableTest, PrefixesAreSharedWhereTablesAreEqual) {
  const auto reused = [&](int seed, std::vector<Output> more) {
    more.push_back(table_input("TYPE_FP16", seed));
    more.push_back(bool_input("return_perf_metrics", true));
    const auto got = ask_ids(with_rows(), 2, std::move(more));
    EXPECT_TRUE(got.status.ok()) << got.status;
    return elements<int32_t>(got.outputs.at(0), "kv_cache_reused_blocks").at(0);
  };
  EXPECT_EQ(reused(7, {}), 0);
  EXPECT_GT(reused(7, {}), 0);
  EXPECT_EQ(reused(8, {}), 0);
  std::vector<uint64_t> ids(with_rows().size());
  EXPECT_GT(reused(8, {extra_ids(ids)}), 0) << "zeros say nothing";
  ids[0] = 1;
  EXPECT_EQ(reused(8, {extra_ids(ids)}), 0);
  EXPECT_GT(reused(8, {extra_ids(ids)}), 0);
}

TEST_F(PromptTableTest, WrongOnesAreNamed) {
  const Ids ids = with_rows();
  const Output table = table_input("TYPE_FP16");
  Output narrow = table;
  narrow.shape = {1, 2 * kRows, kWidth / 2};
  EXPECT_THAT(error(ids, {narrow}), HasSubstr("prompt_table.width: 128 is not 256"));
  Ids behind = ids;
  behind[1] = kVocab + kRows;
  EXPECT_THAT(error(behind, {table}), HasSubstr("input_token_ids[1]: 4099 is not in [0, 4099)"));
  EXPECT_THAT(error(ids, {table, extra_ids({1, 2})}),
              HasSubstr("inputTokenExtraIds vector size (2) must be the same as input token vector "
                        "size (70)"));
  EXPECT_THAT(error(ids, {extra_ids({1, 2})}),
              HasSubstr("'prompt_table_extra_ids' comes without input 'prompt_embedding_table'"));
  EXPECT_THAT(error(ids, {int_input("prompt_vocab_size", 3)}),
              HasSubstr("'prompt_vocab_size' comes without input 'prompt_embedding_table'"));
  EXPECT_EQ(error(ids, {int_input("prompt_vocab_size", 0), extra_ids({0})}), "");
  Output wrong = table;
  wrong.bytes.clear();
  wrong.shape = {1, 0, kWidth};
  EXPECT_EQ(error(ids, {wrong}), "") << "an empty one is none";
}

Output embeds_of(std::vector<uint16_t> rows) {
  return {"prompt_embeds",
          TRITONSERVER_TYPE_BF16,
          {1, static_cast<int64_t>(rows.size()) / kWidth, kWidth},
          bytes_of(rows)};
}

TEST_F(PromptTableTest, EmbedsStandForAllIds) {
  std::vector<uint16_t> rows;
  for (const float value : table_values(0)) rows.push_back(to_bf16(value).bits);
  const Ids of_table = {kVocab, kVocab + 1, kVocab + 2};
  const Ids expected = tokens_of(ask_ids(of_table, 12, {table_input("TYPE_FP16")}));
  EXPECT_EQ(tokens_of(ask_ids({0, 0, 0}, 12, {embeds_of(rows)})), expected);
  EXPECT_EQ(tokens_of(ask_ids({5, 9000, 7}, 12, {embeds_of(rows)})), expected);

  EXPECT_THAT(error({0, 0}, {embeds_of(rows)}),
              HasSubstr("'prompt_embeds' has 3 rows, expected 2"));
  EXPECT_THAT(error({0, 0, 0}, {embeds_of(rows), table_input("TYPE_FP16")}),
              HasSubstr("'prompt_embeds' comes with input 'prompt_embedding_table'"));
  Output narrow = embeds_of(rows);
  narrow.shape = {1, 2 * kRows, kWidth / 2};
  EXPECT_THAT(error({0, 0, 0, 0, 0, 0}, {narrow}), HasSubstr("128 is not 256"));
  rows[5] = 0xff80;  // minus infinity
  EXPECT_THAT(error({0, 0, 0}, {embeds_of(rows)}),
              HasSubstr("'prompt_embeds': number 5 is not finite"));
}

TEST_F(PromptTableTest, EveryType) {
  const Ids expected = tokens_of(ask_ids(with_rows(), 12, {table_input("TYPE_FP16")}));
  for (const char* type : {"TYPE_FP32", "TYPE_BF16"}) {
    TRITONSERVER_Server* server = nullptr;
    fs::path dir;
    start(server, dir, {{"prompt_embedding_table_data_type", type}},
          [](const fs::path& repository) { fs::remove_all(repository / "ensemble"); });
    const Ids ids = with_rows();
    const auto got =
        Talk(server, "tensorrt_llm",
             {ids_input("input_ids", ids), int_input("input_lengths", 70), table_input(type),
              int_input("request_output_len", 12), bool_input("exclude_input_in_output", true)})
            .wait();
    EXPECT_EQ(tokens_of(got), expected) << type;
    stop(server, dir);
  }
}

}  // namespace
}  // namespace nereid::backend
