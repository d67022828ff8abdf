// A provider of node-oidc-provider with its own pages, on which any name and password do.
import Provider from "oidc-provider";

const [issuer, port, redirectUri, signedOutUri] = process.argv.slice(2);
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "us",
      client_secret: "a secret for tests",
      redirect_uris: [redirectUri],
      post_logout_redirect_uris: [signedOutUri],
    },
  ],
  claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"] },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({
      sub: id,
      name: `${id} there`,
      email: `${id}@example.org`,
      email_verified: true,
    }),
  }),
});
provider.listen(Number(port), "127.0.0.1");
