// Signs in as Outline does: passport-oauth2 exchanges the code, jsonwebtoken decodes the identity
// token. Prints where to send the browser, reads where it came back to, and prints the claims.
import { env, stdin } from "node:process";
import { createInterface } from "node:readline/promises";
import JWT from "jsonwebtoken";
import { Strategy } from "passport-oauth2";

const { ISSUER, CLIENT_ID, CLIENT_SECRET, REDIRECT_URI, SCOPE } = env;
const discovery = await fetch(`${ISSUER}/.well-known/openid-configuration`);
const metadata = await discovery.json();
const strategy = new Strategy(
  {
    authorizationURL: metadata.authorization_endpoint,
    tokenURL: metadata.token_endpoint,
    clientID: CLIENT_ID,
    clientSecret: CLIENT_SECRET,
    callbackURL: REDIRECT_URI,
    scope: SCOPE,
    state: true,
    pkce: metadata.code_challenge_methods_supported.includes("S256"),
  },
  (accessToken, refreshToken, params, profile, done) => done(null, JWT.decode(params.id_token)),
);
const session = {};
const authenticate = (query) =>
  new Promise((redirect, error) => {
    const answers = { redirect, error, fail: error, success: redirect };
    Object.assign(Object.create(strategy), answers).authenticate({ query, session }, {});
  });
console.log(await authenticate({}));
const arrived = await createInterface({ input: stdin }).question("");
const claims = await authenticate(Object.fromEntries(new URL(arrived).searchParams));
console.log(JSON.stringify(claims));
process.exit(0);
