// A client with an official TypeScript SDK: `mcp_client.mjs 1|2 URL CALLBACK [DOCUMENT]`.
//
// It prints the URL for the person's browser, reads the URL at which the browser ended, and calls
// the tool `latest`.
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createInterface } from "node:readline";

const [version, url, callback, document] = process.argv.slice(2);
const modules = version === "1"
  ? ["@modelcontextprotocol/sdk/client/index.js", "@modelcontextprotocol/sdk/client/streamableHttp.js", "@modelcontextprotocol/sdk/client/auth.js"]
  : ["@modelcontextprotocol/client"];
const imported = await Promise.all(modules.map((name) => import(name)));
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = Object.assign({}, ...imported);

const kept = {};
const authProvider = {
  redirectUrl: callback,
  clientMetadataUrl: document,
  clientMetadata: {
    client_name: `TypeScript SDK ${version}`,
    redirect_uris: [callback],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
  },
  // Without this, which many applications leave out, the SDKs send no `state`.
  ...(version === "2" && { state: () => (kept.state = randomUUID()) }),
  clientInformation: () => kept.client,
  saveClientInformation: (client) => { kept.client = client; },
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; },
  codeVerifier: () => kept.verifier,
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  discoveryState: () => kept.discovery,
  saveDiscoveryState: (state) => { kept.discovery = state; },
  redirectToAuthorization: (address) => console.log(String(address)),
};

async function connected() {
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider });
  const client = new Client({ name: "test", version: "1.0.0" });
  await client.connect(transport).catch(async (error) => {
    if (!(error instanceof UnauthorizedError) || kept.tokens) throw error;
    const input = createInterface({ input: process.stdin });
    const [line] = await once(input, "line");
    input.close();
    const query = new URL(line).searchParams;
    if (query.get("state") !== (kept.state ?? null)) throw new Error("another state");
    await (version === "1" ? transport.finishAuth(query.get("code")) : transport.finishAuth(query));
    return undefined;
  });
  return client;
}

await connected();
const client = await connected();
const { content } = await client.callTool({ name: "latest", arguments: {} });
console.log(JSON.stringify({ text: content[0].text, client_id: kept.client.client_id, scope: kept.tokens.scope }));
await client.close();
process.exit(0);
