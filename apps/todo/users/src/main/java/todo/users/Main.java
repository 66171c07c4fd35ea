package todo.users;

import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** Keeps the profiles of users and shows them to whoever has a token. */
public final class Main {
  /** Each request is short, and a handful are in flight at a time. */
  private static final int THREADS = 8;

  public static void main(String[] args) throws Exception {
    int port = Integer.parseInt(setting("PORT", "8083"));
    SpanReporting spans = SpanReporting.to(System.getenv("ZIPKIN_ENDPOINT"), port);

    HttpServer server = HttpServer.create(new InetSocketAddress(port), 0);
    ExecutorService workers = Executors.newFixedThreadPool(THREADS);
    server.setExecutor(workers);
    Tokens tokens = new Tokens(setting("JWT_SECRET", "todo-secret"));
    server.createContext("/users", new TracedHandler(spans.http(), new UsersHandler(Directory.load(), tokens)));
    // Probes are not worth a span.
    server.createContext("/health", exchange -> {
      exchange.sendResponseHeaders(204, -1);
      exchange.close();
    });

    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      server.stop(1);
      workers.shutdown();
      try {
        workers.awaitTermination(1, TimeUnit.SECONDS);
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
      }
      spans.close();
    }));
    server.start();
    System.out.println("users listens on " + port);
  }

  private static String setting(String name, String otherwise) {
    String value = System.getenv(name);
    return value == null || value.isEmpty() ? otherwise : value;
  }
}
