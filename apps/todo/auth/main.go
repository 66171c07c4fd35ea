// Auth logs people in: it checks a password, asks the users service who that is, and issues a JSON Web Token.
//
// It is traced by zipkin-go, which sends Zipkin v2 JSON.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	zipkin "github.com/openzipkin/zipkin-go"
	zipkinmiddleware "github.com/openzipkin/zipkin-go/middleware/http"
	"github.com/openzipkin/zipkin-go/reporter"
	zipkinreporter "github.com/openzipkin/zipkin-go/reporter/http"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	port := setting("PORT", "8081")
	lifetime, err := strconv.Atoi(setting("TOKEN_SECONDS", "3600"))
	if err != nil {
		return errors.New("TOKEN_SECONDS is not a number")
	}
	spans := newReporter(os.Getenv("ZIPKIN_ENDPOINT"))
	defer spans.Close()
	endpoint, err := zipkin.NewEndpoint("auth", "localhost:"+port)
	if err != nil {
		return err
	}
	tracer, err := zipkin.NewTracer(spans, zipkin.WithLocalEndpoint(endpoint), zipkin.WithTraceID128Bit(true))
	if err != nil {
		return err
	}
	client, err := zipkinmiddleware.NewClient(tracer, zipkinmiddleware.WithClient(&http.Client{Timeout: 5 * time.Second}))
	if err != nil {
		return err
	}
	tokens := tokenIssuer{secret: []byte(setting("JWT_SECRET", "todo-secret")), lifetime: time.Duration(lifetime) * time.Second}
	users := usersClient{url: setting("USERS_URL", "http://users:8083"), http: client, tokens: tokens}

	routes := http.NewServeMux()
	routes.Handle("/login", loginHandler{users: users, tokens: tokens})
	traced := zipkinmiddleware.NewServerMiddleware(tracer, zipkinmiddleware.TagResponseSize(true))(routes)
	// Probes are not worth a span.
	all := http.NewServeMux()
	all.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	all.Handle("/", traced)

	return serve(&http.Server{Addr: ":" + port, Handler: all, ReadHeaderTimeout: 5 * time.Second})
}

// serve answers requests until the process is asked to stop, and lets those in flight finish.
func serve(server *http.Server) error {
	stop, release := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer release()
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	log.Printf("auth listens on %s", server.Addr)
	select {
	case err := <-failed:
		return err
	case <-stop.Done():
		grace, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		return server.Shutdown(grace)
	}
}

func newReporter(url string) reporter.Reporter {
	if url == "" {
		return reporter.NewNoopReporter()
	}
	return zipkinreporter.NewReporter(url, zipkinreporter.BatchInterval(200*time.Millisecond))
}

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}
