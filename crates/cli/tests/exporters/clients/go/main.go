// The little trace by zipkin-go and by OpenTelemetry: client EXPORTER ENDPOINT; prints the ids it chose.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	zipkin "github.com/openzipkin/zipkin-go"
	"github.com/openzipkin/zipkin-go/model"
	"github.com/openzipkin/zipkin-go/proto/zipkin_proto3"
	"github.com/openzipkin/zipkin-go/reporter"
	zipkinhttp "github.com/openzipkin/zipkin-go/reporter/http"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// A sixty-fourth of a second, which every way of counting time can hold.
const tick = 15625 * time.Microsecond

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func tell(traceID, root, call, served string, start time.Time) {
	must(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"trace": traceID, "start": start.UnixMicro(), "root": root, "call": call, "served": served,
	}))
}

func byZipkin(name, endpoint string, start time.Time) {
	var serializer reporter.SpanSerializer = reporter.JSONSerializer{}
	if name == "zipkin-proto" {
		serializer = zipkin_proto3.SpanSerializer{}
	}
	// It answers with 202 and nothing else; whatever is not that is told here.
	report := zipkinhttp.NewReporter(endpoint+"/api/v2/spans", zipkinhttp.Serializer(serializer))
	tracer := func(service, address string) *zipkin.Tracer {
		local, err := zipkin.NewEndpoint(service, address)
		must(err)
		made, err := zipkin.NewTracer(report, zipkin.WithLocalEndpoint(local), zipkin.WithTraceID128Bit(true),
			zipkin.WithSharedSpans(false))
		must(err)
		return made
	}
	front, stock := tracer("front", "10.0.0.1:80"), tracer("stock", "10.0.0.2:80")
	other, err := zipkin.NewEndpoint("stock", "10.0.0.2:80")
	must(err)
	root := front.StartSpan("GET /pay", zipkin.Kind(model.Server), zipkin.StartTime(start))
	root.Tag("http.path", "/pay")
	call := front.StartSpan("PUT /stock", zipkin.Kind(model.Client), zipkin.Parent(root.Context()),
		zipkin.StartTime(start.Add(tick)), zipkin.RemoteEndpoint(other))
	served := stock.StartSpan("PUT /stock", zipkin.Kind(model.Server), zipkin.Parent(call.Context()),
		zipkin.StartTime(start.Add(2*tick)))
	served.Tag("item", "pear")
	served.Annotate(start.Add(3*tick), "cache miss")
	zipkin.TagError.Set(served, "out of stock")
	served.FinishedWithDuration(4 * tick)
	call.FinishedWithDuration(6 * tick)
	root.FinishedWithDuration(8 * tick)
	must(report.Close())
	id := func(span zipkin.Span) string { return span.Context().ID.String() }
	tell(root.Context().TraceID.String(), id(root), id(call), id(served), start)
}

func byOpenTelemetry(name, endpoint string, start time.Time) {
	ctx := context.Background()
	provider := func(service string) *sdk.TracerProvider {
		var exporter *otlptrace.Exporter
		var err error
		if name == "otlp-grpc" {
			exporter, err = otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure(), otlptracegrpc.WithCompressor("gzip"),
				otlptracegrpc.WithEndpoint(strings.TrimPrefix(endpoint, "http://")))
		} else {
			exporter, err = otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint+"/v1/traces"),
				otlptracehttp.WithCompression(otlptracehttp.GzipCompression))
		}
		must(err)
		about := resource.NewSchemaless(attribute.String("service.name", service))
		return sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	}
	front, stock := provider("front"), provider("stock")
	rooted, root := front.Tracer("shop").Start(ctx, "GET /pay", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithTimestamp(start), trace.WithAttributes(attribute.String("http.path", "/pay")))
	calling, call := front.Tracer("shop").Start(rooted, "PUT /stock", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(start.Add(tick)), trace.WithAttributes(attribute.String("peer.service", "stock")))
	_, served := stock.Tracer("shop").Start(calling, "PUT /stock", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithTimestamp(start.Add(2*tick)), trace.WithAttributes(attribute.String("item", "pear")))
	served.AddEvent("cache miss", trace.WithTimestamp(start.Add(3*tick)))
	served.SetStatus(codes.Error, "out of stock")
	served.End(trace.WithTimestamp(start.Add(6 * tick)))
	call.End(trace.WithTimestamp(start.Add(7 * tick)))
	root.End(trace.WithTimestamp(start.Add(8 * tick)))
	must(front.Shutdown(ctx))
	must(stock.Shutdown(ctx))
	id := func(span trace.Span) string { return span.SpanContext().SpanID().String() }
	tell(root.SpanContext().TraceID().String(), id(root), id(call), id(served), start)
}

func main() {
	name, endpoint := os.Args[1], os.Args[2]
	start := time.Now().Truncate(time.Second)
	if strings.HasPrefix(name, "zipkin") {
		byZipkin(name, endpoint, start)
	} else {
		byOpenTelemetry(name, endpoint, start)
	}
}
