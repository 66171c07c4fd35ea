package todo.users;

import brave.Span;
import brave.Tracer;
import brave.http.HttpServerHandler;
import brave.http.HttpServerRequest;
import brave.http.HttpServerResponse;
import brave.http.HttpTracing;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpHandler;
import java.io.IOException;

/** Wraps a handler in a server span; Brave has no module for the JDK's own server. */
final class TracedHandler implements HttpHandler {
  private final Tracer tracer;
  private final HttpServerHandler<HttpServerRequest, HttpServerResponse> spans;
  private final HttpHandler inner;

  TracedHandler(HttpTracing tracing, HttpHandler inner) {
    this.tracer = tracing.tracing().tracer();
    this.spans = HttpServerHandler.create(tracing);
    this.inner = inner;
  }

  @Override
  public void handle(HttpExchange exchange) throws IOException {
    Request request = new Request(exchange);
    Span span = spans.handleReceive(request);
    Throwable error = null;
    try (Tracer.SpanInScope scope = tracer.withSpanInScope(span)) {
      inner.handle(exchange);
    } catch (IOException | RuntimeException thrown) {
      error = thrown;
      throw thrown;
    } finally {
      spans.handleSend(new Response(request, exchange, error), span);
    }
  }

  private static final class Request extends HttpServerRequest {
    private final HttpExchange exchange;

    Request(HttpExchange exchange) {
      this.exchange = exchange;
    }

    @Override
    public Object unwrap() {
      return exchange;
    }

    @Override
    public String method() {
      return exchange.getRequestMethod();
    }

    @Override
    public String path() {
      return exchange.getRequestURI().getPath();
    }

    @Override
    public String url() {
      return "http://" + header("Host") + exchange.getRequestURI();
    }

    @Override
    public String header(String name) {
      return exchange.getRequestHeaders().getFirst(name);
    }
  }

  private static final class Response extends HttpServerResponse {
    private final Request request;
    private final HttpExchange exchange;
    private final Throwable error;

    Response(Request request, HttpExchange exchange, Throwable error) {
      this.request = request;
      this.exchange = exchange;
      this.error = error;
    }

    @Override
    public Object unwrap() {
      return exchange;
    }

    @Override
    public HttpServerRequest request() {
      return request;
    }

    @Override
    public Throwable error() {
      return error;
    }

    @Override
    public int statusCode() {
      return Math.max(exchange.getResponseCode(), 0);
    }
  }
}
