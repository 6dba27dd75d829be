// Event loops and connections; see loop.h.
#include "front/grpc/loop.h"

#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <cerrno>

#include "base/contained.h"
#include "front/http/io_stall.h"
#include "front/http/listen.h"

namespace nereid::front {
namespace asio = boost::asio;
using asio::ip::tcp;
using error_code = boost::system::error_code;

namespace {

constexpr size_t kReadBytes = size_t{256} << 10;
constexpr size_t kFillBytes = size_t{256} << 10;
constexpr int kReadsInARow = 4;  // then other connections have a turn
constexpr std::chrono::milliseconds kTick{100};

Session::Time now() { return std::chrono::steady_clock::now(); }

}  // namespace

void LoopMailbox::post(Work work) {
  Work dropped;  // destroyed outside of the lock
  std::lock_guard lock(mutex_);
  if (loop_ == nullptr) {
    dropped = std::move(work);
    return;
  }
  work_.push_back(std::move(work));
  if (work_.size() > 1) return;
  try {
    asio::post(loop_->context_, [loop = loop_] { loop->run_mail(); });
  } catch (...) {
    dropped = std::move(work_.back());
    work_.pop_back();
    throw;
  }
}

void LoopMailbox::dispatch(Work work) {
  bool may_run = false;
  {
    std::lock_guard lock(mutex_);
    may_run = loop_ != nullptr && work_.empty() &&
              loop_->context_.get_executor().running_in_this_thread();
  }
  may_run ? work() : post(std::move(work));
}

void LoopMailbox::close() {
  std::vector<Work> dropped;
  std::lock_guard lock(mutex_);
  loop_ = nullptr;
  dropped.swap(work_);
}

GrpcConnection::GrpcConnection(tcp::socket socket, Loop& loop)
    : socket_(std::move(socket)),
      loop_(loop),
      created_(now()),
      last_progress_(created_),
      tls_(loop.shared_->tls ? std::make_unique<TlsStream>(*loop.shared_->tls) : nullptr),
      session_(loop.shared_, loop.mailbox_, last_progress_, [this] { mark_dirty(); }) {
  session_.set_peer(peer_of(socket_));
}

template <class Body>
void GrpcConnection::guarded(Body&& body) noexcept {
  if (!contained("a gRPC connection", body)) close();
}

void GrpcConnection::start() {
  guarded([this] {
    error_code ec;
    socket_.set_option(tcp::no_delay(true), ec);
    socket_.native_non_blocking(true, ec);
    if (ec) return close();
    wait_readable();
    flush();
  });
}

void GrpcConnection::mark_dirty() {
  if (closed_ || std::exchange(dirty_, true)) return;
  loop_.dirty_.push_back(shared_from_this());
}

void GrpcConnection::wait_readable() {
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code ec) {
    if (self->closed_) return;
    self->guarded([&] { ec ? self->close() : self->on_readable(); });
    self->loop_.flush_dirty();
  });
}

void GrpcConnection::on_readable() {
  const IoTurn turn;
  std::vector<char>& buffer = loop_.buffer_;
  for (int i = 0; i < kReadsInARow; ++i) {
    const ssize_t n = ::recv(socket_.native_handle(), buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n <= 0) return close();
    receive({buffer.data(), static_cast<size_t>(n)});
    if (closed_) return;
    if (static_cast<size_t>(n) < buffer.size()) break;
  }
  loop_.flush_dirty();  // before the wait, which is a system call
  if (!closed_) wait_readable();
}

void GrpcConnection::receive(std::string_view bytes) {
  if (tls_ == nullptr) return session_.receive(bytes, now());
  std::string& plain = loop_.plain_;
  plain.clear();
  const bool is_well = tls_->receive(bytes, plain);
  if (!plain.empty()) session_.receive(plain, now());
  if (is_well) return mark_dirty();  // the handshake may have output
  fill();
  send_some();  // an alert
  close();
}

void GrpcConnection::fill() {
  if (tls_ == nullptr) return session_.fill(out_, kFillBytes);
  if (tls_->is_ready()) {
    std::string plain;
    session_.fill(plain, kFillBytes);
    tls_->send(plain, out_);
    if (session_.is_over()) tls_->shut();
  }
  tls_->take(out_);
}

bool GrpcConnection::send_some() {
  while (out_at_ < out_.size()) {
    const ssize_t n =
        ::send(socket_.native_handle(), out_.data() + out_at_, out_.size() - out_at_, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (n <= 0) {
      close();
      return false;
    }
    out_at_ += static_cast<size_t>(n);
    last_progress_ = now();
  }
  out_.clear();
  out_at_ = 0;
  // Thousands of connections may be idle: none keeps a large buffer.
  if (out_.capacity() > kFillBytes / 4) out_.shrink_to_fit();
  return true;
}

void GrpcConnection::flush() {
  dirty_ = false;
  guarded([this] { write_all(); });
}

void GrpcConnection::write_all() {
  if (closed_ || waiting_to_write_) return;
  for (;;) {
    fill();
    if (out_.empty()) break;
    if (!send_some()) {
      if (closed_) return;
      waiting_to_write_ = true;
      socket_.async_wait(tcp::socket::wait_write, [self = shared_from_this()](error_code ec) {
        self->waiting_to_write_ = false;
        if (self->closed_) return;
        if (ec) return self->close();
        self->flush();
        self->loop_.flush_dirty();
      });
      return;
    }
  }
  if (session_.is_over()) close();
}

void GrpcConnection::tick(Session::Time time) {
  guarded([&] { check_time(time); });
}

void GrpcConnection::check_time(Session::Time time) {
  session_.tick(time);
  const auto& options = loop_.shared_->options;
  if (tls_ && !tls_->is_ready() && time - created_ > options.handshake_timeout) return close();
  if (waiting_to_write_ && time - last_progress_ > options.write_timeout) close();
  if (session_.is_over() && !waiting_to_write_) write_all();  // it failed inside of a turn
}

void GrpcConnection::drain() {
  if (tls_ && !tls_->is_ready()) return close();
  guarded([this] { session_.drain(); });
}

void GrpcConnection::end_calls(const Status& status) {
  guarded([&] { session_.end_calls(status); });
}

void GrpcConnection::close() noexcept {
  if (std::exchange(closed_, true)) return;
  error_code ec;
  socket_.close(ec);
  // Session and calls are destroyed when no thread is inside of them.
  const auto self = shared_from_this();
  loop_.connections_.erase(self);
  --loop_.shared_->stats->connections_open;
  // Without memory for that, the caller's reference is the last.
  contained("a gRPC connection", [&] { asio::post(loop_.context_, [self] {}); });
}

Loop::Loop(std::shared_ptr<GrpcShared> shared)
    : shared_(std::move(shared)),
      guard_(asio::make_work_guard(context_)),
      ticker_(context_),
      mailbox_(std::make_shared<LoopMailbox>(this)),
      buffer_(kReadBytes),
      thread_([this] { run_contained("a gRPC event loop", [this] { run(); }); }) {}

Loop::~Loop() {
  abort();
  asio::post(context_, [this] {
    ticker_.cancel();
    guard_.reset();
  });
  // Closed sockets complete their waits, so run() returns by itself and no handler is left.
  thread_.join();
  mailbox_->close();
}

void Loop::run() {
  // After an exception pending output and ticks may have been skipped.
  if (!dirty_.empty() || !connections_.empty()) {
    asio::post(context_, [this] {
      flush_dirty();
      start_ticking();
    });
  }
  context_.run();
}

void Loop::adopt(tcp::socket socket) {
  ++shared_->stats->connections_open;
  auto shared_socket = std::make_shared<tcp::socket>(std::move(socket));
  asio::post(context_, [this, shared_socket] {
    std::shared_ptr<GrpcConnection> connection;
    const bool is_made = contained("a new gRPC connection", [&] {
      connection = std::make_shared<GrpcConnection>(std::move(*shared_socket), *this);
      connections_.insert(connection);
    });
    if (!is_made) {
      --shared_->stats->connections_open;
      return;
    }
    connection->start();
    if (draining_) connection->drain();
    start_ticking();
    flush_dirty();
  });
}

void Loop::drain() {
  asio::post(context_, [this] {
    draining_ = true;
    const auto all = connections_;
    for (const auto& c : all) c->drain();
    flush_dirty();
  });
}

void Loop::end_calls(const Status& status) {
  asio::post(context_, [this, status] {
    const auto all = connections_;
    for (const auto& c : all) c->end_calls(status);
    flush_dirty();
  });
}

void Loop::abort() {
  asio::post(context_, [this] {
    const auto all = connections_;
    for (const auto& c : all) c->close();
  });
}

void Loop::run_mail() {
  const IoTurn turn;
  std::vector<Work> work;
  {
    std::lock_guard lock(mailbox_->mutex_);
    work.swap(mailbox_->work_);
  }
  for (Work& w : work) {
    contained("an answer over gRPC", w);
    w = nullptr;
  }
  flush_dirty();
}

void Loop::flush_dirty() {
  while (!dirty_.empty()) {
    const auto now_dirty = std::exchange(dirty_, {});
    for (const auto& c : now_dirty) c->flush();
  }
}

void Loop::start_ticking() {
  if (ticking_ || connections_.empty()) return;
  ticking_ = true;
  ticker_.expires_after(kTick);
  ticker_.async_wait([this](error_code ec) {
    ticking_ = false;
    if (ec) return;
    const auto time = now();
    const std::vector<std::shared_ptr<GrpcConnection>> all(connections_.begin(),
                                                           connections_.end());
    for (const auto& c : all) c->tick(time);
    flush_dirty();
    start_ticking();
  });
}

}  // namespace nereid::front
