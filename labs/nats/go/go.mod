module nats

go 1.24.0

require (
	github.com/nats-io/nats-server/v2 v2.10.22
	github.com/nats-io/nats.go v1.49.0
	golang.org/x/sys v0.39.0
)

require (
	github.com/klauspost/compress v1.18.2 // indirect
	github.com/minio/highwayhash v1.0.3 // indirect
	github.com/nats-io/jwt/v2 v2.5.8 // indirect
	github.com/nats-io/nkeys v0.4.12 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	golang.org/x/crypto v0.46.0 // indirect
	golang.org/x/time v0.7.0 // indirect
)
