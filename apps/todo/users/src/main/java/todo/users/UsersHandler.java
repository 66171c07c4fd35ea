package todo.users;

import com.auth0.jwt.interfaces.DecodedJWT;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpHandler;
import java.io.IOException;
import java.util.Map;
import java.util.Optional;

/** `GET /users` for administrators, `GET /users/{name}` for everybody about themselves. */
final class UsersHandler implements HttpHandler {
  private static final String ROOT = "/users";
  private final ObjectMapper json = new ObjectMapper();
  private final Directory directory;
  private final Tokens tokens;

  UsersHandler(Directory directory, Tokens tokens) {
    this.directory = directory;
    this.tokens = tokens;
  }

  @Override
  public void handle(HttpExchange exchange) throws IOException {
    try (exchange) {
      Optional<DecodedJWT> token = tokens.verify(exchange.getRequestHeaders().getFirst("Authorization"));
      if (!exchange.getRequestMethod().equals("GET")) {
        refuse(exchange, 405, "profiles can only be read");
      } else if (token.isEmpty()) {
        refuse(exchange, 401, "no valid token");
      } else {
        show(exchange, token.get(), exchange.getRequestURI().getPath().substring(ROOT.length()));
      }
    }
  }

  private void show(HttpExchange exchange, DecodedJWT token, String rest) throws IOException {
    boolean admin = "ADMIN".equals(token.getClaim("role").asString());
    if (rest.isEmpty() || rest.equals("/")) {
      if (admin) {
        answer(exchange, 200, directory.all());
      } else {
        refuse(exchange, 403, "only administrators may list users");
      }
      return;
    }
    String username = rest.substring(1);
    if (!admin && !username.equals(token.getClaim("username").asString())) {
      refuse(exchange, 403, "that is somebody else");
      return;
    }
    Optional<User> user = directory.find(username);
    if (user.isPresent()) {
      answer(exchange, 200, user.get());
    } else {
      refuse(exchange, 404, "there is no such user");
    }
  }

  private void refuse(HttpExchange exchange, int status, String reason) throws IOException {
    answer(exchange, status, Map.of("error", reason));
  }

  private void answer(HttpExchange exchange, int status, Object body) throws IOException {
    byte[] bytes = json.writeValueAsBytes(body);
    exchange.getResponseHeaders().set("Content-Type", "application/json");
    exchange.sendResponseHeaders(status, bytes.length);
    exchange.getResponseBody().write(bytes);
  }
}
