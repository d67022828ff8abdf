//! Signs in as Vaultwarden does, by the library openidconnect. Prints where to send the browser,
//! reads where it came back to, and prints the claims of the identity token.
use std::env::var;
use std::error::Error;
use std::io::stdin;

use openidconnect::core::{
    CoreAuthenticationFlow, CoreClient, CoreProviderMetadata, CoreUserInfoClaims,
};
use openidconnect::{
    ureq, AuthorizationCode, ClientId, ClientSecret, CsrfToken, IssuerUrl, Nonce,
    OAuth2TokenResponse, PkceCodeChallenge, RedirectUrl, Scope, TokenResponse,
};
use url::Url;

fn main() -> Result<(), Box<dyn Error>> {
    let http = ureq::Agent::new();
    let metadata = CoreProviderMetadata::discover(&IssuerUrl::new(var("ISSUER")?)?, &http)?;
    let client_secret = Some(ClientSecret::new(var("CLIENT_SECRET")?));
    let client = CoreClient::from_provider_metadata(
        metadata,
        ClientId::new(var("CLIENT_ID")?),
        client_secret,
    )
    .set_redirect_uri(RedirectUrl::new(var("REDIRECT_URI")?)?);
    let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
    let scopes = var("SCOPE")?;
    let (start, state, nonce) = client
        .authorize_url(
            CoreAuthenticationFlow::AuthorizationCode,
            CsrfToken::new_random,
            Nonce::new_random,
        )
        .add_scopes(scopes.split(' ').map(|one| Scope::new(one.into())))
        .set_pkce_challenge(challenge)
        .url();
    println!("{start}");
    let mut line = String::new();
    stdin().read_line(&mut line)?;
    let back = Url::parse(line.trim())?;
    let parameter = |name: &str| {
        back.query_pairs()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.to_string())
    };
    assert_eq!(parameter("state").as_ref(), Some(state.secret()));
    let code = AuthorizationCode::new(parameter("code").ok_or("no code")?);
    let tokens = client
        .exchange_code(code)?
        .set_pkce_verifier(verifier)
        .request(&http)?;
    let id_token = tokens.id_token().ok_or("no identity token")?;
    let claims = id_token.claims(&client.id_token_verifier(), &nonce)?;
    let profile: CoreUserInfoClaims = client
        .user_info(tokens.access_token().clone(), None)?
        .request(&http)?;
    assert_eq!(profile.subject(), claims.subject());
    println!("{}", serde_json::to_string(claims)?);
    Ok(())
}
