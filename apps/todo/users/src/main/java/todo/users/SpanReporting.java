package todo.users;

import brave.Tracing;
import brave.handler.SpanHandler;
import brave.http.HttpTracing;
import java.util.concurrent.TimeUnit;
import zipkin2.Span;
import zipkin2.codec.SpanBytesEncoder;
import zipkin2.reporter.AsyncReporter;
import zipkin2.reporter.brave.ZipkinSpanHandler;
import zipkin2.reporter.urlconnection.URLConnectionSender;

/** Brave as Sleuth 1.x set it up: Zipkin v1 JSON, and a server that shares the span id of its client. */
final class SpanReporting implements AutoCloseable {
  private final Tracing tracing;
  private final AsyncReporter<Span> reporter;
  private final URLConnectionSender sender;

  private SpanReporting(Tracing tracing, AsyncReporter<Span> reporter, URLConnectionSender sender) {
    this.tracing = tracing;
    this.reporter = reporter;
    this.sender = sender;
  }

  /** Reports to this address, or nowhere if there is none. */
  static SpanReporting to(String endpoint, int port) {
    Tracing.Builder builder = Tracing.newBuilder().localServiceName("users").localPort(port).supportsJoin(true);
    if (endpoint == null || endpoint.isEmpty()) {
      return new SpanReporting(builder.addSpanHandler(SpanHandler.NOOP).build(), null, null);
    }
    // The address that services are given is usually that of version 2.
    String v1 = endpoint.replace("/api/v2/spans", "/api/v1/spans");
    URLConnectionSender sender = URLConnectionSender.create(v1);
    AsyncReporter<Span> reporter =
        AsyncReporter.builder(sender).messageTimeout(200, TimeUnit.MILLISECONDS).build(SpanBytesEncoder.JSON_V1);
    return new SpanReporting(builder.addSpanHandler(ZipkinSpanHandler.create(reporter)).build(), reporter, sender);
  }

  HttpTracing http() {
    return HttpTracing.create(tracing);
  }

  @Override
  public void close() {
    tracing.close();
    if (reporter != null) {
      reporter.flush();
      reporter.close();
      sender.close();
    }
  }
}
