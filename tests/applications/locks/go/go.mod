module clients

go 1.26

require (
	github.com/coreos/go-oidc/v3 v3.18.0
	github.com/golang-jwt/jwt/v4 v4.5.2
	github.com/markbates/goth v1.82.0
	golang.org/x/oauth2 v0.36.0
)

require github.com/go-jose/go-jose/v4 v4.1.4 // indirect
