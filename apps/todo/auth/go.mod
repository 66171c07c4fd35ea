module todo/auth

go 1.22.0

require (
	github.com/golang-jwt/jwt/v5 v5.2.2
	github.com/openzipkin/zipkin-go v0.4.3
)

require (
	golang.org/x/sys v0.19.0 // indirect
	google.golang.org/grpc v1.63.2 // indirect
)
