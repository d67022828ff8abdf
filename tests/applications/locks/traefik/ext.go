// Package ext is empty: Traefik's archive lacks the module that would have fields of another edition.
package ext

type HTTP struct{}

type Router struct{}
