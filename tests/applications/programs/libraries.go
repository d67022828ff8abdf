// Signs in as an application in Go does: with its libraries, called as it calls them. Prints where
// to send the browser, reads where it came back to, and prints the claims of the identity token.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/url"
	"os"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/golang-jwt/jwt/v4"
	"github.com/markbates/goth/providers/openidConnect"
	"golang.org/x/oauth2"
)

type claims = map[string]any

var (
	background   = context.Background()
	application  = os.Getenv("APPLICATION")
	issuer       = os.Getenv("ISSUER")
	clientID     = os.Getenv("CLIENT_ID")
	clientSecret = os.Getenv("CLIENT_SECRET")
	redirectURI  = os.Getenv("REDIRECT_URI")
	scopes       = strings.Fields(os.Getenv("SCOPE"))
)

const state = "a state of more than 16 characters"

func main() {
	signIn := withOAuth2
	if application == "gitea" {
		signIn = withGoth
	}
	found, err := signIn()
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}

func browser(start string) (url.Values, error) {
	fmt.Println(start)
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return nil, err
	}
	back, err := url.Parse(strings.TrimSpace(line))
	if err != nil {
		return nil, err
	}
	return back.Query(), nil
}

func withGoth() (claims, error) {
	discovery := issuer + "/.well-known/openid-configuration"
	provider, err := openidConnect.New(clientID, clientSecret, redirectURI, discovery, scopes...)
	if err != nil {
		return nil, err
	}
	session, err := provider.BeginAuth(state)
	if err != nil {
		return nil, err
	}
	start, err := session.GetAuthURL()
	if err != nil {
		return nil, err
	}
	back, err := browser(start)
	if err != nil {
		return nil, err
	}
	if _, err := session.Authorize(provider, back); err != nil {
		return nil, err
	}
	user, err := provider.FetchUser(session)
	return user.RawData, err
}

func withOAuth2() (claims, error) {
	provider, err := oidc.NewProvider(background, issuer)
	if err != nil {
		return nil, err
	}
	config := oauth2.Config{
		ClientID:     clientID,
		ClientSecret: clientSecret,
		Endpoint:     provider.Endpoint(),
		RedirectURL:  redirectURI,
		Scopes:       scopes,
	}
	var before, after []oauth2.AuthCodeOption
	if application == "oauth2-proxy" {
		pkce := oauth2.GenerateVerifier()
		before = append(before, oauth2.S256ChallengeOption(pkce))
		after = append(after, oauth2.VerifierOption(pkce))
	}
	back, err := browser(config.AuthCodeURL(state, before...))
	if err != nil {
		return nil, err
	}
	tokens, err := config.Exchange(background, back.Get("code"), after...)
	if err != nil {
		return nil, err
	}
	idToken, _ := tokens.Extra("id_token").(string)
	switch application {
	case "argocd":
		return verified(provider.Verifier(&oidc.Config{ClientID: clientID}), idToken)
	case "oauth2-proxy":
		var metadata struct {
			Keys       string   `json:"jwks_uri"`
			Algorithms []string `json:"id_token_signing_alg_values_supported"`
		}
		if err := provider.Claims(&metadata); err != nil {
			return nil, err
		}
		keys := oidc.NewRemoteKeySet(background, metadata.Keys)
		return verified(oidc.NewVerifier(issuer, keys, &oidc.Config{
			ClientID:             clientID,
			SkipClientIDCheck:    true, // it compares other claims, too, if told so
			SupportedSigningAlgs: metadata.Algorithms,
		}), idToken)
	case "portainer":
		found := jwt.MapClaims{}
		parser := jwt.Parser{SkipClaimsValidation: true}
		_, _, err := parser.ParseUnverified(idToken, found)
		return found, err
	}
	return nil, fmt.Errorf("APPLICATION is unknown: %q", application)
}

func verified(verifier *oidc.IDTokenVerifier, idToken string) (claims, error) {
	token, err := verifier.Verify(background, idToken)
	if err != nil {
		return nil, err
	}
	found := claims{}
	return found, token.Claims(&found)
}
