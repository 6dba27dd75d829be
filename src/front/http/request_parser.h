// Boost.Beast's request parser, with the fields as Headers.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <functional>
#include <string>
#include <utility>

#include "front/http/message.h"

namespace nereid::front {

// Parses requests. Values of header names outside of HTTP keep their trailing blanks, as in the
// stock server: they may be forwarded to models.
class RequestParser : public boost::beast::http::request_parser<boost::beast::http::string_body> {
 public:
  RequestParser() { headers_.reserve(kUsualHeaders); }
  size_t take(boost::asio::const_buffer bytes, boost::system::error_code& ec) {
    begin_ = static_cast<const char*>(bytes.data());
    end_ = begin_ + bytes.size();
    return put(bytes, ec);
  }
  Headers release_headers() { return std::move(headers_); }

 private:
  using View = boost::beast::string_view;
  static constexpr size_t kUsualHeaders = 8;

  void on_field_impl(boost::beast::http::field field, View name, View value,
                     boost::system::error_code&) override {
    using Field = boost::beast::http::field;
    if (field == Field::host || field == Field::transfer_encoding || field == Field::expect) {
      get().insert(field, name, value);  // the fields that the connection reads itself
    }
    const char* end = value.data() + value.size();
    // The value of a folded line, which is refused later, is in another buffer.
    const std::less_equal<const char*> at_most;
    if (field == boost::beast::http::field::unknown && at_most(begin_, value.data()) &&
        at_most(end, end_)) {
      while (end < end_ && (*end == ' ' || *end == '\t')) ++end;
    }
    headers_.push_back({std::string(name), std::string(value.data(), end)});
  }

  const char *begin_ = nullptr, *end_ = nullptr;  // the bytes being parsed
  Headers headers_;
};

}  // namespace nereid::front
