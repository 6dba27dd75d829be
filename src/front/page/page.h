// The web page of the server: one HTML file, embedded in the program.
#pragma once

#include "front/http/message.h"

namespace nereid::front {

// Whether the client asks for HTML by name in Accept, as browsers do when they open an address.
bool wants_page(const Request& request);

// The page: 200, gzip where the client takes it, or 304 if the client's copy is the same. Its
// Content-Security-Policy allows its own script and style by their hashes, and requests to its own
// origin. Source: W3C, Content Security Policy Level 3; RFC 9110, sections 8.8.3 and 13.1.2.
Response page_response(const Request& request);

}  // namespace nereid::front
