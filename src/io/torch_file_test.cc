#include "io/torch_file.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstring>

#include "base/file.h"
#include "base/testing/source_dir.h"
#include "io/pickle.h"
#include "io/safetensors.h"
#include "io/test_torch_file.h"

namespace nereid::io {
namespace {

using namespace testing_only;
using testing::HasSubstr;

std::string torch_error(const std::string& file) {
  const auto tensors = parse_torch_file(std::as_bytes(std::span(file)));
  return tensors.ok() ? "" : std::string(message(tensors.status()));
}

// A file with this pickle and one storage of 24 bytes.
std::string file_of(const std::string& pickle) {
  return zip_of({{"a/data.pkl", pickle}, {"a/data/0", std::string(24, '\1')}});
}
std::string error_of_pickle(const std::string& pickle) { return torch_error(file_of(pickle)); }
std::string error_of_tensor(const std::string& type, int64_t offset,
                            const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                            const std::string& key = "0") {
  return error_of_pickle(torch_pickle(pickled_tensor("w", type, key, offset, shape, strides)));
}

// Written by torch.save of PyTorch 2.2.2: a dictionary with a bf16 [2, 3], an f32 [4] whose storage
// has 6 elements, and a parameter that is the first tensor again.
TEST(TorchFile, AFileOfPyTorch) {
  const std::string path = source_dir() + "/tests/fuzz/seeds/torch_file.bin";
  const auto file = TensorFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->tensors().size(), 3);
  const StoredTensor &first = file->tensors()[0], &second = file->tensors()[1];
  EXPECT_EQ(first.name, "first.weight");
  EXPECT_EQ(first.type, DType::kBF16);
  EXPECT_EQ(first.shape_text(), "[2, 3]");
  for (size_t i = 0; i < 6; ++i) {
    BF16 value;
    std::memcpy(&value, first.data.data() + 2 * i, 2);
    EXPECT_EQ(to_float(value), static_cast<float>(i));
  }
  EXPECT_EQ(second.shape_text(), "[4]");
  float value = 0;
  std::memcpy(&value, second.data.data(), 4);
  EXPECT_EQ(value, 2.5f);
  EXPECT_EQ(file->tensors()[2].data.data(), first.data.data()) << "one storage";
}

TEST(TorchFile, TensorsAreThoseThatWereWritten) {
  const std::string floats(24, '\2'), halves(4, '\3');
  std::vector<StoredTensor> tensors = {
      {"a.weight", "F32", DType::kF32, {3, 2}, std::as_bytes(std::span(floats))},
      {"b", "F16", DType::kF16, {2}, std::as_bytes(std::span(halves))}};
  const std::string file = serialize_torch_file(tensors);
  const auto read = parse_torch_file(std::as_bytes(std::span(file)));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((*read)[i].name, tensors[i].name);
    EXPECT_EQ((*read)[i].dtype, tensors[i].dtype);
    EXPECT_EQ((*read)[i].shape, tensors[i].shape);
    EXPECT_TRUE(std::ranges::equal((*read)[i].data, tensors[i].data));
  }
}

TEST(TorchFile, ATensorAloneHasNoName) {
  const std::string halves(12, '\3');
  const StoredTensor written{"",     "F16", DType::kF16, {3, 2}, std::as_bytes(std::span(halves)),
                             nullptr};
  const std::string file = serialize_torch_tensor(written);
  const auto read = parse_torch_file(std::as_bytes(std::span(file)));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 1);
  EXPECT_EQ((*read)[0].name, "");
  EXPECT_EQ((*read)[0].type, DType::kF16);
  EXPECT_EQ((*read)[0].shape, written.shape);
  EXPECT_TRUE(std::ranges::equal((*read)[0].data, written.data));
  EXPECT_THAT(error_of_pickle(tensor_value("FloatStorage", "0", 1, {2, 3}, {3, 1}) + "."),
              HasSubstr("tensor '': F32 of shape [2, 3] at element 1 is more than data/0 has"));
}

TEST(TorchFile, TensorsOfInnerDictionariesHaveItsName) {
  const std::string tensor = pickled_tensor("w", "FloatStorage", "0", 0, {2}, {1});
  const std::string pickle = std::string("\x80\x02}(", 4) + text("dims") + "}(" + text("n") +
                             integer(7) + "u" + text("state") + "}(" + tensor + "uu.";
  const std::string file = file_of(pickle);
  const auto read = parse_torch_file(std::as_bytes(std::span(file)));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 1);
  EXPECT_EQ((*read)[0].name, "state.w");
  const auto pickled = parse_pickled_file(std::as_bytes(std::span(pickle)));
  ASSERT_TRUE(pickled.ok()) << pickled.status();
  ASSERT_EQ(pickled->numbers.size(), 1);
  EXPECT_EQ(pickled->numbers[0].group, "dims");
  EXPECT_EQ(pickled->numbers[0].name, "n");
  EXPECT_EQ(pickled->numbers[0].value, 7);
  // Two dictionaries deep, and a number beside tensors.
  EXPECT_THAT(error_of_pickle(std::string("}") + text("a") + "}" + text("b") + "}ss."),
              HasSubstr("'b' is not a tensor"));
  EXPECT_THAT(error_of_pickle(std::string("}(") + text("state") + "}(" + tensor + "u" +
                              pickled_tensor("state.w", "FloatStorage", "0", 0, {2}, {1}) + "u."),
              HasSubstr("tensor 'state.w' is there twice"));
}

TEST(TorchFile, OtherGlobalsAndOpcodesAreRefused) {
  EXPECT_THAT(error_of_pickle(std::string("\x80\x02") + "cos\nsystem\n(" + text("exit") + "tR."),
              HasSubstr("global 'os system' is not allowed"));
  EXPECT_THAT(error_of_pickle("\x80\x04\x8c\x08"
                              "builtins\x8c\x04"
                              "eval\x93."),
              HasSubstr("global 'builtins eval' is not allowed"));
  EXPECT_THAT(error_of_pickle("ctorch._utils\n_rebuild_tensor_v3\n."), HasSubstr("is not allowed"));
  EXPECT_THAT(error_of_pickle("(i__main__\nx\n."), HasSubstr("opcode 0x69 is not allowed"));
  EXPECT_THAT(error_of_pickle("\x82\x01."), HasSubstr("opcode 0x82"));
  EXPECT_THAT(error_of_pickle("}}R."), HasSubstr("a call of no function"));
  EXPECT_THAT(error_of_pickle("ctorch\nFloatStorage\n)R."), HasSubstr("a call of no function"));
}

TEST(TorchFile, DamagedPicklesAreRefused) {
  EXPECT_THAT(error_of_pickle(""), HasSubstr("ends within the opcode at byte 0"));
  EXPECT_THAT(error_of_pickle("X\xff\xff\xff\xff."), HasSubstr("ends within"));
  EXPECT_THAT(error_of_pickle("j\xff\xff\xff\x7f."), HasSubstr("an empty memo"));
  EXPECT_THAT(error_of_pickle("Nr\xff\xff\xff\x7f."), HasSubstr("too far"));
  EXPECT_THAT(error_of_pickle("N."), HasSubstr("not one dictionary"));
  EXPECT_THAT(error_of_pickle("}u."), HasSubstr("a mark is missing"));
  EXPECT_THAT(error_of_pickle("}(K\1u."), HasSubstr("items of no dictionary"));
  EXPECT_THAT(error_of_pickle("}(K\1K\1u."), HasSubstr("a key is not text"));
  EXPECT_THAT(error_of_pickle("}" + text("w") + "K\1s."), HasSubstr("'w' is not a tensor"));
  EXPECT_THAT(error_of_pickle(std::string(3'000'000, ')')), HasSubstr("more than 1000000 values"));
  EXPECT_THAT(error_of_pickle(std::string(3'000'000, '}')), HasSubstr("more than 1000000 values"));
}

TEST(TorchFile, TensorsOutsideOfTheirStorageAreRefused) {
  EXPECT_EQ(error_of_tensor("FloatStorage", 0, {2, 3}, {3, 1}), "");
  EXPECT_EQ(error_of_tensor("FloatStorage", 5, {1, 1}, {9, 1}), "");
  EXPECT_THAT(error_of_tensor("FloatStorage", 1, {2, 3}, {3, 1}),
              HasSubstr("F32 of shape [2, 3] at element 1 is more than data/0 has, 24 bytes"));
  EXPECT_THAT(error_of_tensor("FloatStorage", 0, {1 << 30, 1 << 30, 1 << 30}, {1, 1, 1}),
              HasSubstr("is more than data/0 has"));
  EXPECT_THAT(error_of_tensor("FloatStorage", 0, {-2, 3}, {3, 1}),
              HasSubstr("'w' is not a tensor"));
  EXPECT_THAT(error_of_tensor("FloatStorage", 0, {2, 3}, {1, 2}), HasSubstr("a view with strides"));
  EXPECT_THAT(error_of_tensor("QInt8Storage", 0, {2}, {1}),
              HasSubstr("'QInt8Storage' is not known"));
  EXPECT_THAT(error_of_tensor("FloatStorage", 0, {2}, {1}, "7"), HasSubstr("data/7 is missing"));
  const std::string twice = pickled_tensor("w", "FloatStorage", "0", 0, {1}, {1});
  EXPECT_THAT(error_of_pickle(torch_pickle(twice + twice)), HasSubstr("'w' is there twice"));
}

TEST(TorchFile, DamagedArchivesAreRefused) {
  const std::string good =
      file_of(torch_pickle(pickled_tensor("w", "FloatStorage", "0", 0, {2, 3}, {3, 1})));
  EXPECT_EQ(torch_error(good), "");
  EXPECT_THAT(torch_error(""), HasSubstr("not a zip archive"));
  EXPECT_THAT(torch_error(good.substr(0, good.size() - 1)),
              HasSubstr("files of PyTorch before 1.6"));
  EXPECT_THAT(torch_error(zip_of({{"a/data/0", "x"}})), HasSubstr("data.pkl is missing"));
  EXPECT_THAT(torch_error(zip_of({{"a/data.pkl", "N."}, {"a/byteorder", "big"}})),
              HasSubstr("byteorder: 'big' is not little"));
  const auto changed = [&](size_t from_end, const std::string& bytes) {
    std::string bad = good;
    bad.replace(bad.size() - from_end, bytes.size(), bytes);
    return torch_error(bad);
  };
  EXPECT_THAT(changed(12, number(0xffff, 2)), HasSubstr("does not fit")) << "number of files";
  EXPECT_THAT(changed(6, number(0xfffffff0, 4)), HasSubstr("does not fit")) << "directory";
  const size_t entry = 22 + 46 + std::strlen("a/data/0");  // of the second file, from the end
  EXPECT_THAT(changed(entry - 10, number(8, 2)), HasSubstr("is compressed"));
  EXPECT_THAT(changed(entry - 42, number(0, 4)), HasSubstr("overlaps"));
  EXPECT_THAT(changed(entry - 42, number(5, 4)), HasSubstr("is not where the directory says"));
  EXPECT_THAT(changed(entry - 20, number(1 << 20, 4) + number(1 << 20, 4)),
              HasSubstr("ends behind"));
}

}  // namespace
}  // namespace nereid::io
