// Signs in by openid-client with pushed requests and DPoP; prints where to send the browser, reads
// where it came back to, and prints what it got.
import { createInterface } from "node:readline/promises";
import { env, stdin } from "node:process";
import * as client from "openid-client";

const EC = { name: "ECDSA", namedCurve: "P-256" };
const jwk = env.PRIVATE_JWK && JSON.parse(env.PRIVATE_JWK);
const authentication = jwk
  ? client.PrivateKeyJwt({
      key: await crypto.subtle.importKey("jwk", jwk, EC, false, ["sign"]),
      kid: jwk.kid,
    })
  : client.ClientSecretBasic(env.CLIENT_SECRET);
const config = await client.discovery(
  new URL(env.ISSUER),
  env.CLIENT_ID,
  {
    id_token_signed_response_alg: env.SIGNED_BY ?? "RS256",
    authorization_signed_response_alg: env.SIGNED_BY,
  },
  authentication,
  { execute: [client.allowInsecureRequests] },
);
if (env.SIGNED_BY) client.useJwtResponseMode(config);
const DPoP = client.getDPoPHandle(config, await client.randomDPoPKeyPair(env.ALG));
const codeVerifier = client.randomPKCECodeVerifier();
const state = client.randomState();
const nonce = client.randomNonce();
const parameters = {
  redirect_uri: env.REDIRECT_URI,
  scope: "openid profile email",
  code_challenge: await client.calculatePKCECodeChallenge(codeVerifier),
  code_challenge_method: "S256",
  state,
  nonce,
};
console.log((await client.buildAuthorizationUrlWithPAR(config, parameters, { DPoP })).href);

const arrived = await createInterface({ input: stdin }).question("");
const checks = { pkceCodeVerifier: codeVerifier, expectedState: state, expectedNonce: nonce };
const first = await client.authorizationCodeGrant(config, new URL(arrived), checks, undefined, {
  DPoP,
});
const { sub } = first.claims();
const profile = await client.fetchUserInfo(config, first.access_token, sub, { DPoP });
const second = await client.refreshTokenGrant(config, first.refresh_token, undefined, { DPoP });
await client.fetchUserInfo(config, second.access_token, sub, { DPoP });
const described = await client.tokenIntrospection(config, second.access_token);
const asBearer = await client.fetchUserInfo(config, second.access_token, sub).then(
  () => null,
  (error) => error.cause?.[0]?.scheme ?? error.message,
);
console.log(JSON.stringify({ types: [first.token_type, second.token_type], profile, described, asBearer }));
process.exit(0);
