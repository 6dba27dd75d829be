// Backend "preprocessing": text to the input tensors of the tensorrt_llm model.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <thread>

#include "backend/common/backend_model.h"
#include "backend/common/check_parameters.h"
#include "backend/common/special_tokens.h"
#include "backend/preprocessing/padding.h"
#include "backend/preprocessing/picture_inputs.h"
#include "backend/preprocessing/word_list.h"
#include "base/clock.h"
#include "base/json_members.h"
#include "base/queue.h"
#include "text/decoder_prompt.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::backend {
namespace {

// Token ids of each prompt of a request.
struct Prompts {
  std::vector<std::vector<int32_t>> rows;
  std::vector<int32_t> lengths;
  size_t longest = 0, num_ids = 0;
  std::vector<vision::Patches> pictures;  // of the only prompt
  std::vector<vision::TokenSpan> spans;   // of `pictures`
};

class Preprocessing {
 public:
  static constexpr uint64_t kQuickBytes = 2048;  // nearly all of it text to tokenise

  static StatusOr<std::unique_ptr<Preprocessing>> create(TRITONBACKEND_Model* model) {
    auto p = std::make_unique<Preprocessing>();
    ASSIGN_OR_RETURN(p->settings_, ModelSettings::read(model));
    RETURN_IF_ERROR(check_parameters(p->settings_, "preprocessing"));
    warn_without_effect(p->settings_, "preprocessing");
    RETURN_IF_ERROR(p->check_types());
    const auto dir = p->settings_.parameter("tokenizer_dir");
    if (!dir) {
      return invalid_argument("model '{}': parameter 'tokenizer_dir' is mandatory",
                              p->settings_.name);
    }
    ASSIGN_OR_RETURN(p->tokenizer_, text::Tokenizer::load(*dir));
    RETURN_IF_ERROR(p->load_pictures(*dir));
    p->open_parameters_ =
        json::serialize(json::object{{"tokenizer_hash", text::Tokenizer::files_hash(*dir)}});
    ASSIGN_OR_RETURN(p->add_special_tokens_, p->settings_.boolean("add_special_tokens", true));
    ASSIGN_OR_RETURN(const json::value config, read_tokenizer_config(*dir));
    const auto id_of = [&](std::string_view key) {
      return p->tokenizer_->token_id(special_token(config, key));
    };
    p->end_id_ = id_of("eos_token").value_or(-1);
    p->pad_id_ = id_of("pad_token").value_or(p->end_id_);
    p->decoder_prompts_ = text::DecoderPrompts::load(*dir, p->tokenizer_);
    p->long_thread_ = std::thread([model = p.get()] { model->answer_long_requests(); });
    return p;
  }

  // See NEREID_OpenParameters: they show clients the loaded tokenizer.
  const std::string& open_parameters() const { return open_parameters_; }

  ~Preprocessing() {
    long_requests_.close();
    if (long_thread_.joinable()) long_thread_.join();
  }

  // Requests with large inputs or pictures run one at a time on a thread of their own; others do
  // not wait for them.
  void execute(std::unique_ptr<Request> request) {
    const bool has_pictures = request->has("IMAGE_URL") || request->has("IMAGE_BYTES");
    if (!has_pictures && has_small_inputs(request->raw(), kLongBytes))
      return answer(std::move(request));
    static_cast<void>(long_requests_.push(std::move(request)));
  }

 private:
  static constexpr uint64_t kLongBytes = 1 << 20;

  void answer_long_requests() {
    while (auto request = long_requests_.take()) {
      const Status status = guarded([&] {
        answer(*std::move(request));
        return ok();
      });
      if (!status.ok()) log_warning(message(status));
    }
  }

  void answer(std::unique_ptr<Request> request) {
    const uint64_t start = now_ns();
    Responder responder(*request);
    auto outputs = guarded_outputs(*request);
    request->set_times(start, now_ns());
    Status status = outputs.ok() ? responder.send(*outputs, true) : outputs.status();
    if (!status.ok()) responder.fail(status);
  }

  // `dir`: of the tokenizer.
  Status load_pictures(const std::filesystem::path& dir);

  // Tokenises until the request is cancelled.
  StatusOr<std::vector<int32_t>> encode(const Request& request, std::string_view text,
                                        bool add_special_tokens) const {
    return tokenizer_->encode(text, {.add_special_tokens = add_special_tokens,
                                     .is_unwanted = [&request] { return request.is_cancelled(); }});
  }

  Status check_types() const {
    for (const char* name :
         {"INPUT_ID", "REQUEST_INPUT_LEN", "DECODER_INPUT_ID", "REQUEST_DECODER_INPUT_LEN",
          "BAD_WORDS_IDS", "STOP_WORDS_IDS", "REQUEST_OUTPUT_LEN", "OUT_END_ID", "OUT_PAD_ID"}) {
      RETURN_IF_ERROR(settings_.check_type(name, TRITONSERVER_TYPE_INT32));
    }
    RETURN_IF_ERROR(settings_.check_type("EMBEDDING_BIAS", TRITONSERVER_TYPE_FP32));
    return settings_.check_type("STOP_STRINGS", TRITONSERVER_TYPE_BYTES);
  }
  StatusOr<std::vector<Output>> guarded_outputs(const Request& request) const {
    StatusOr<std::vector<Output>> out;
    const Status status = guarded([&]() -> Status {
      out = run(request);
      return out.status();
    });
    if (!status.ok()) return status;
    return out;
  }

  StatusOr<std::vector<Output>> run(const Request& request) const;
  StatusOr<Prompts> prompts(const Request& request) const;
  // None if the request has no inputs with pictures.
  StatusOr<std::vector<vision::Patches>> pictures(const Request& request, size_t batch) const;
  // Tensor [batch, longest].
  StatusOr<Output> input_ids(const Request& request, Prompts prompts) const;
  // The words of `input` by batch item, as text, without empty ones. nullopt when absent.
  StatusOr<std::optional<std::vector<std::vector<std::string>>>> words(const Request& request,
                                                                       const char* input,
                                                                       size_t batch) const;
  StatusOr<Output> word_ids(const Request& request, const char* name,
                            const std::optional<std::vector<std::vector<std::string>>>& lists,
                            size_t batch) const;

  StatusOr<Output> embedding_bias(const Request& request, size_t batch) const;

  // The texts of a language input, one for each QUERY; empty: absent.
  StatusOr<std::vector<std::string>> languages(const Request& request, const char* name,
                                               size_t batch) const;

  // The decoder's prompts of an encoder-decoder model, padded behind: DECODER_QUERY, else its first
  // tokens, of the language of TGT_LANG. Decoder-only models ignore the outputs.
  template <class Add>
  Status add_decoder_prompt(const Request& request, size_t batch, const Add& add) const;

  ModelSettings settings_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  bool add_special_tokens_ = true;
  int32_t end_id_ = -1, pad_id_ = -1;
  // Unimplemented, NotFound or InvalidArgument: the model takes none.
  StatusOr<PictureInputs> pictures_ = unsupported("no pictures");
  text::DecoderPrompts decoder_prompts_;
  std::string open_parameters_;
  Queue<std::unique_ptr<Request>> long_requests_;
  std::thread long_thread_;
};

// The vocabulary's size in config.json of the generating model's folder, else of `dir`.
StatusOr<int32_t> read_vocab_size(const ModelSettings& settings, const std::string& dir) {
  const std::string from = settings.parameter("gpt_model_path").value_or(dir);
  ASSIGN_OR_RETURN(const json::value config,
                   read_json_file(std::filesystem::path(from) / "config.json"));
  const json::object& built = object_member(config, "pretrained_config");
  const json::object& model = built.empty() ? object_or_empty(config) : built;
  for (const json::object* part : {&object_member(model, "text_config"), &model})
    if (const int64_t size = integer_member(*part, "vocab_size"); size > 0 && size < (1 << 30))
      return static_cast<int32_t>(size);
  return invalid_argument("{}/config.json has no vocab_size", from);
}

Status Preprocessing::load_pictures(const std::filesystem::path& dir) {
  const char* key = "multimodal_model_path";
  auto encoder = settings_.parameter(key);
  if (!encoder) encoder = settings_.parameter(key = "visual_model_path");
  pictures_ = PictureInputs::load(encoder ? std::filesystem::path(*encoder) : dir, *tokenizer_);
  if (!encoder) {
    if (absl::IsInvalidArgument(pictures_.status()))
      log_warning(fmt::format("no pictures: {}", message(pictures_.status())));
    return ok();
  }
  const auto use = [&]() -> Status {
    RETURN_IF_ERROR(pictures_.status());
    ASSIGN_OR_RETURN(const int32_t vocab_size, read_vocab_size(settings_, *encoder));
    // As in the TensorRT-LLM backend, text that is no number means no bound.
    const std::string most = settings_.parameter("max_num_images").value_or("");
    int32_t max_pictures = 0;
    std::from_chars(most.data(), most.data() + most.size(), max_pictures);
    return pictures_->use_table(vocab_size, max_pictures > 0 ? max_pictures : kMostPictures);
  };
  const Status status = use();
  if (status.ok()) return status;
  return annotate(status,
                  fmt::format("model '{}': parameter '{}' is '{}'", settings_.name, key, *encoder));
}

StatusOr<std::optional<std::vector<std::vector<std::string>>>> Preprocessing::words(
    const Request& request, const char* input, size_t batch) const {
  ASSIGN_OR_RETURN(auto all, request.strings(input));
  if (!all) return std::nullopt;
  if (all->size() % batch != 0) {
    return invalid_argument("input '{}' has {} strings for a batch of {}", input, all->size(),
                            batch);
  }
  const size_t per_item = all->size() / batch;
  std::vector<std::vector<std::string>> out(batch);
  for (size_t i = 0; i < all->size(); ++i) {
    if (!(*all)[i].empty()) out[i / per_item].push_back(std::move((*all)[i]));
  }
  return std::optional(std::move(out));
}

StatusOr<Output> Preprocessing::word_ids(
    const Request& request, const char* name,
    const std::optional<std::vector<std::vector<std::string>>>& lists, size_t batch) const {
  const auto rows = static_cast<int64_t>(batch);
  if (!lists) return make_output(name, {rows, 2, 0}, std::vector<int32_t>());
  std::vector<Words> all(batch);
  size_t width = 1, total = 0;
  for (size_t b = 0; b < batch; ++b) {
    size_t num_ids = 0;
    for (const auto& word : (*lists)[b]) {
      ASSIGN_OR_RETURN(auto ids, encode(request, word, /*add_special_tokens=*/false));
      num_ids += ids.size();
      if (!ids.empty()) all[b].push_back(std::move(ids));
    }
    width = std::max(width, num_ids);
    total += num_ids;
  }
  RETURN_IF_ERROR(check_padding(name, batch, 2 * width, total));
  // Counted: the ids, and each tensor once as numbers and once as bytes.
  RETURN_IF_ERROR(request.hold((total + 2 * batch * 2 * width) * sizeof(int32_t)));
  std::vector<int32_t> flat;
  flat.reserve(batch * 2 * width);
  for (const auto& list : all) {
    const auto item = flatten_words(list, width);
    flat.insert(flat.end(), item.begin(), item.end());
  }
  return make_output(name, {rows, 2, static_cast<int64_t>(width)}, flat);
}

// Tensor [batch, vocabulary], or [batch, 0] without words: a word's weight is added
// to each of its ids.
StatusOr<Output> Preprocessing::embedding_bias(const Request& request, size_t batch) const {
  const char* name = "EMBEDDING_BIAS";
  const auto rows = static_cast<int64_t>(batch);
  ASSIGN_OR_RETURN(const auto words, request.strings("EMBEDDING_BIAS_WORDS"));
  ASSIGN_OR_RETURN(const auto weights, request.values<float>("EMBEDDING_BIAS_WEIGHTS"));
  const size_t count = words ? words->size() : 0;
  if (count != (weights ? weights->size() : 0)) {
    return invalid_argument(
        "Embedding bias words must have same dimension as embedding bias weights");
  }
  if (count == 0) return make_output(name, {rows, 0}, std::vector<float>());
  if (count % batch != 0) {
    return invalid_argument("input 'EMBEDDING_BIAS_WORDS' has {} strings for a batch of {}", count,
                            batch);
  }
  const auto vocab = static_cast<size_t>(tokenizer_->vocab_size());
  RETURN_IF_ERROR(check_padding(name, batch, vocab, 0));
  RETURN_IF_ERROR(request.hold(2 * batch * vocab * sizeof(float)));  // as numbers and as bytes
  std::vector<float> bias(batch * vocab, 0.0f);
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const auto ids, encode(request, (*words)[i], /*add_special_tokens=*/true));
    for (const int32_t id : ids) {
      bias[i / (count / batch) * vocab + static_cast<size_t>(id)] += (*weights)[i];
    }
  }
  return make_output(name, {rows, static_cast<int64_t>(vocab)}, bias);
}

StatusOr<std::vector<vision::Patches>> Preprocessing::pictures(const Request& request,
                                                               size_t batch) const {
  if (!request.has("IMAGE_URL") && !request.has("IMAGE_BYTES"))
    return std::vector<vision::Patches>();
  if (!pictures_.ok())
    return unsupported("inputs 'IMAGE_URL' and 'IMAGE_BYTES': the model takes no pictures: {}",
                       message(pictures_.status()));
  if (batch != 1)
    return invalid_argument(
        "inputs 'IMAGE_URL' and 'IMAGE_BYTES': only in requests of 1 item, not {}", batch);
  return pictures_->read(request);
}

StatusOr<Prompts> Preprocessing::prompts(const Request& request) const {
  ASSIGN_OR_RETURN(const auto query, request.strings("QUERY"));
  if (!query || query->empty()) return invalid_argument("QUERY is not present in the request");
  const size_t longest_text = std::ranges::max(*query, {}, &std::string::size).size();
  RETURN_IF_ERROR(request.hold(longest_text * text::Tokenizer::kScratchPerByte));
  Prompts out;
  ASSIGN_OR_RETURN(out.pictures, pictures(request, query->size()));
  const size_t num_pictures = out.pictures.size();
  ASSIGN_OR_RETURN(const auto sources, languages(request, "SRC_LANG", query->size()));
  for (const auto& text : *query) {
    // A text without marks has one in front where pictures may go past this model.
    const bool uses_table = pictures_.ok() && pictures_->uses_table();
    const size_t num_marks = uses_table ? std::max<size_t>(num_pictures, 1) : num_pictures;
    ASSIGN_OR_RETURN(auto ids,
                     encode(request, num_marks > 0 ? pictures_->with_marks(text, num_marks) : text,
                            add_special_tokens_));
    if (uses_table) {
      RETURN_IF_ERROR(pictures_->place_rows(num_pictures, ids));
    } else if (num_pictures > 0) {
      ASSIGN_OR_RETURN(out.spans, pictures_->place(out.pictures, ids));
    }
    if (!sources.empty() && !sources[out.rows.size()].empty())
      RETURN_IF_ERROR(
          annotate(decoder_prompts_.set_source(sources[out.rows.size()], ids), "input 'SRC_LANG'"));
    RETURN_IF_ERROR(request.hold(ids.size() * sizeof(int32_t)));
    out.longest = std::max(out.longest, ids.size());
    out.num_ids += ids.size();
    out.lengths.push_back(static_cast<int32_t>(ids.size()));
    out.rows.push_back(std::move(ids));
  }
  return out;
}

StatusOr<std::vector<std::string>> Preprocessing::languages(const Request& request,
                                                            const char* name, size_t batch) const {
  ASSIGN_OR_RETURN(auto texts, request.strings(name));
  if (!texts) return std::vector<std::string>();
  if (texts->size() != batch)
    return invalid_argument("input '{}' has {} texts, expected {}, one for each QUERY", name,
                            texts->size(), batch);
  return *std::move(texts);
}

StatusOr<Output> Preprocessing::input_ids(const Request& request, Prompts prompts) const {
  const char* name = "INPUT_ID";
  const size_t batch = prompts.rows.size();
  RETURN_IF_ERROR(check_padding(name, batch, prompts.longest, prompts.num_ids));
  const size_t row_bytes = prompts.longest * sizeof(int32_t);
  RETURN_IF_ERROR(request.hold(batch * row_bytes));
  Output out =
      make_output(name, {static_cast<int64_t>(batch), static_cast<int64_t>(prompts.longest)},
                  std::vector<int32_t>());
  out.bytes.reserve(batch * row_bytes);
  const int32_t pad = std::max(pad_id_, 0);
  for (std::vector<int32_t>& row : prompts.rows) {
    const size_t num_pads = prompts.longest - row.size();
    out.bytes.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(int32_t));
    for (size_t i = 0; i < num_pads; ++i)
      out.bytes.append(reinterpret_cast<const char*>(&pad), sizeof pad);
    std::vector<int32_t>().swap(row);
  }
  return out;
}

// Stop words as text: inside a sentence a word may be tokenised differently. Rows are padded with
// empty strings to equal length. nullopt without words.
std::optional<Output> stop_strings(const std::vector<std::vector<std::string>>& stop) {
  size_t width = 0;
  for (const auto& row : stop) width = std::max(width, row.size());
  if (width == 0) return std::nullopt;
  std::vector<std::string> texts;
  for (auto row : stop) {
    row.resize(width);
    texts.insert(texts.end(), row.begin(), row.end());
  }
  return make_output("STOP_STRINGS",
                     {static_cast<int64_t>(stop.size()), static_cast<int64_t>(width)}, texts);
}

// Refuses inputs that the model may declare but that have no effect here.
Status refuse_unsupported(const Request& request) {
  using std::string_view_literals::operator""sv;
  for (const auto name : {"VIDEO_BYTES"sv, "PROMPT_TABLE_EXTRA_ID"sv}) {
    if (request.lacks(name)) continue;
    ASSIGN_OR_RETURN(const auto view, request.input(name));
    if (view && !view->bytes.empty()) return unsupported("input '{}' is not supported", name);
  }
  return ok();
}

template <class Add>
Status Preprocessing::add_decoder_prompt(const Request& request, size_t batch,
                                         const Add& add) const {
  const bool wants_ids = settings_.output("DECODER_INPUT_ID") != nullptr;
  const bool wants_length = settings_.output("REQUEST_DECODER_INPUT_LEN") != nullptr;
  if (!wants_ids && !wants_length) return ok();
  ASSIGN_OR_RETURN(const auto queries, request.strings("DECODER_QUERY"));
  const bool has_queries =
      queries && std::ranges::any_of(*queries, [](const auto& q) { return !q.empty(); });
  std::vector<int32_t> usual = decoder_prompts_.usual();
  if (usual.empty()) usual = {pad_id_};
  std::vector<std::vector<int32_t>> prompts(batch, usual);
  ASSIGN_OR_RETURN(const auto targets, languages(request, "TGT_LANG", batch));
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i].empty()) continue;
    if (has_queries && !(*queries)[i].empty())
      return invalid_argument("input 'TGT_LANG' is not for a request with 'DECODER_QUERY'");
    StatusOr<std::vector<int32_t>> prompt = decoder_prompts_.into(targets[i]);
    if (!prompt.ok()) return annotate(prompt.status(), "input 'TGT_LANG'");
    prompts[i] = *std::move(prompt);
  }
  if (has_queries) {
    if (queries->size() != batch)
      return invalid_argument("input 'DECODER_QUERY' has {} texts, expected {}, one for each QUERY",
                              queries->size(), batch);
    for (size_t i = 0; i < batch; ++i) {
      if ((*queries)[i].empty()) continue;
      ASSIGN_OR_RETURN(prompts[i], encode(request, (*queries)[i], /*add_special_tokens=*/false));
    }
  }
  size_t longest = 1;
  std::vector<int32_t> ids, lengths;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  RETURN_IF_ERROR(check_padding("DECODER_INPUT_ID", batch, longest, batch * longest));
  for (const auto& prompt : prompts) {
    lengths.push_back(static_cast<int32_t>(prompt.size()));
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    ids.insert(ids.end(), longest - prompt.size(), pad_id_);
  }
  const auto rows = static_cast<int64_t>(batch);
  if (wants_ids) add(make_output("DECODER_INPUT_ID", {rows, static_cast<int64_t>(longest)}, ids));
  if (wants_length) add(make_output("REQUEST_DECODER_INPUT_LEN", {rows, 1}, lengths));
  return ok();
}

StatusOr<std::vector<Output>> Preprocessing::run(const Request& request) const {
  RETURN_IF_ERROR(refuse_unsupported(request));
  ASSIGN_OR_RETURN(Prompts given, prompts(request));
  const size_t batch = given.lengths.size();
  const auto rows = static_cast<int64_t>(batch);
  ASSIGN_OR_RETURN(const auto output_len, request.values<int32_t>("REQUEST_OUTPUT_LEN"));
  if (!output_len) return invalid_argument("REQUEST_OUTPUT_LEN is not present in the request");
  ASSIGN_OR_RETURN(const auto end_id, request.values<int32_t>("END_ID"));
  ASSIGN_OR_RETURN(const auto pad_id, request.values<int32_t>("PAD_ID"));
  ASSIGN_OR_RETURN(const auto bad, words(request, "BAD_WORDS_DICT", batch));
  ASSIGN_OR_RETURN(const auto stop, words(request, "STOP_WORDS_DICT", batch));
  ASSIGN_OR_RETURN(Output bad_ids, word_ids(request, "BAD_WORDS_IDS", bad, batch));
  ASSIGN_OR_RETURN(Output stop_ids, word_ids(request, "STOP_WORDS_IDS", stop, batch));

  ASSIGN_OR_RETURN(Output bias, embedding_bias(request, batch));

  std::vector<Output> outputs;
  outputs.reserve(14);
  const auto add = [&](Output output) {
    if (!request.wants_output(output.name)) return;
    outputs.push_back(settings_.as_declared(std::move(output)));
  };
  const std::vector<int32_t> lengths = given.lengths;
  if (!given.pictures.empty() && !pictures_->uses_table()) {
    for (Output& output : picture_outputs(given.pictures, given.spans)) add(std::move(output));
  } else if (!given.pictures.empty() && request.wants_output("PIXEL_VALUES")) {
    const auto* const declared = settings_.output("PIXEL_VALUES");
    ASSIGN_OR_RETURN(Output pixels,
                     pictures_->pixel_values(
                         given.pictures, declared ? declared->datatype : TRITONSERVER_TYPE_FP16));
    add(std::move(pixels));
  }
  if (request.wants_output("INPUT_ID")) {
    ASSIGN_OR_RETURN(Output ids, input_ids(request, std::move(given)));
    add(std::move(ids));
  }
  add(make_output("REQUEST_INPUT_LEN", {rows, 1}, lengths));
  RETURN_IF_ERROR(add_decoder_prompt(request, batch, add));
  add(std::move(bad_ids));
  add(std::move(stop_ids));
  add(std::move(bias));
  add(make_output("REQUEST_OUTPUT_LEN", {rows, static_cast<int64_t>(output_len->size() / batch)},
                  *output_len));
  add(make_output("OUT_END_ID", {rows, 1}, end_id.value_or(std::vector(batch, end_id_))));
  add(make_output("OUT_PAD_ID", {rows, 1}, pad_id.value_or(std::vector(batch, pad_id_))));
  if (stop) {
    if (auto texts = stop_strings(*stop)) add(*std::move(texts));
  }
  return outputs;
}

}  // namespace
}  // namespace nereid::backend

NEREID_DEFINE_BACKEND(nereid::backend::Preprocessing)

const char* NEREID_OpenParameters(TRITONBACKEND_Model* model) {
  void* state = nullptr;
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelState(model, &state));
  return static_cast<nereid::backend::Preprocessing*>(state)->open_parameters().c_str();
}
