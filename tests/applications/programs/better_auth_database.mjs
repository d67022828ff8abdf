// Fills a database as better-auth does: people with passwords, a second factor and a passkey, and
// clients of its OAuth provider. Prints what the people and the clients know.
import { oauthProvider } from "@better-auth/oauth-provider";
import { passkey } from "@better-auth/passkey";
import { createOTP } from "@better-auth/utils/otp";
import { betterAuth } from "better-auth";
import { symmetricDecrypt } from "better-auth/crypto";
import { getMigrations } from "better-auth/db/migration";
import { admin, jwt, twoFactor, username } from "better-auth/plugins";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";

const { where, secret, person, key, storeClientSecret, uri } = JSON.parse(process.argv[2]);
const isServer = where.startsWith("postgresql:");
const database = isServer
  ? new pg.Pool({ connectionString: where, max: 1 })
  : new DatabaseSync(where);
const isEncrypted = storeClientSecret === "encrypted";
const auth = betterAuth({
  baseURL: "http://localhost:5000",
  secret,
  database,
  emailAndPassword: { enabled: true },
  telemetry: { enabled: false },
  logger: { disabled: true },
  rateLimit: { enabled: false },
  plugins: [
    ...(isEncrypted ? [] : [jwt()]),
    admin(),
    username(),
    twoFactor(),
    passkey(),
    oauthProvider({
      loginPage: "/in",
      consentPage: "/consent",
      disableJwtPlugin: isEncrypted,
      silenceWarnings: { oauthAuthServerConfig: true, openidConfig: true },
    }),
  ],
});
await (await getMigrations(auth.options)).runMigrations();
const context = await auth.$context;

const signUp = async (name, more = {}) => {
  const { headers, response } = await auth.api.signUpEmail({
    body: { email: `${name}@example.com`, password: person.password, name, ...more },
    returnHeaders: true,
  });
  const cookie = headers.getSetCookie().map((one) => one.split(";")[0]).join("; ");
  return { id: response.user.id, headers: new Headers({ cookie }) };
};

const dana = await signUp("dana", { username: "dana.doe" });
await context.adapter.update({
  model: "user",
  where: [{ field: "id", value: dana.id }],
  update: { emailVerified: true, name: "Dana 李", role: "user,editor" },
});
const { totpURI, backupCodes } = await auth.api.enableTwoFactor({
  body: { password: person.password },
  headers: dana.headers,
});
const stored = await context.adapter.findOne({
  model: "twoFactor",
  where: [{ field: "userId", value: dana.id }],
});
const shared = await symmetricDecrypt({ key: secret, data: stored.secret });
await auth.api.verifyTOTP({
  body: { code: await createOTP(shared).totp() },
  headers: dana.headers,
});
const erin = await signUp("erin");
await context.adapter.create({
  model: "passkey",
  data: {
    name: "Laptop",
    userId: erin.id,
    credentialID: key.id,
    publicKey: key.publicKey,
    counter: 0,
    deviceType: "multiDevice",
    backedUp: true,
    transports: "internal,hybrid",
    createdAt: new Date(),
    aaguid: "00000000-0000-0000-0000-000000000000",
  },
});
const fay = await signUp("fay");
await context.adapter.update({
  model: "user",
  where: [{ field: "id", value: fay.id }],
  update: { banned: true },
});
const create = (body) => auth.api.adminCreateOAuthClient({ body, headers: erin.headers });
const wiki = await create({
  redirect_uris: [uri],
  client_name: "Wiki",
  skip_consent: true,
  require_pkce: false,
  post_logout_redirect_uris: ["https://wiki.example.com/bye"],
});
const spa = await create({
  redirect_uris: ["https://spa.example.com/cb"],
  token_endpoint_auth_method: "none",
  client_name: "Spa",
});
const machine = await create({
  client_name: "Machine",
  grant_types: ["client_credentials"],
  scope: "openid",
});
await context.adapter.create({
  model: "oauthConsent",
  data: {
    clientId: spa.client_id,
    userId: dana.id,
    scopes: ["openid", "email"],
    createdAt: new Date(),
    updatedAt: new Date(),
  },
});
console.log(
  JSON.stringify({
    people: { dana: dana.id, erin: erin.id, fay: fay.id },
    totpURI,
    backupCodes,
    clients: Object.fromEntries(
      Object.entries({ wiki, spa, machine }).map(([name, client]) => [
        name,
        { id: client.client_id, secret: client.client_secret ?? "" },
      ]),
    ),
  }),
);
await database[isServer ? "end" : "close"]();
