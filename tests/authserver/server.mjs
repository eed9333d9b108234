// The authorization server of the tests: `oidc-provider` with accounts that exist, and routes that only a test may have.
//
// Anybody may sign in, by name, with any password; some have groups. The same names are clients, whose tokens
// (client_credentials) have the same subjects. Every resource is known, and has every scope.
//
// For tests alone: the header `X-Token-TTL` of a token request is the token's lifetime in seconds, `X-Token-Alg` its
// algorithm; `POST /test/rotate` replaces all keys (`?keep` still publishes the old ones).

import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";

import { Provider } from "oidc-provider";

const GROUPS = { alice: [], bob: [], rita: ["release-managers"], olga: ["operators"], sam: ["release-managers"] };
const SCOPES = "tasks:call tasks:read tasks:answer tasks:operate deploy:production";
const KINDS = [
  ["rsa", { modulusLength: 2048 }],
  ["ec", { namedCurve: "P-256" }],
  ["ed25519", {}],
];

let generation = 0;

function freshKeys() {
  generation += 1;
  return KINDS.map(([kind, options]) => ({
    ...generateKeyPairSync(kind, options).privateKey.export({ format: "jwk" }),
    kid: `${kind}-${generation}`,
    use: "sig",
  }));
}

function client(name) {
  return {
    client_id: name,
    client_secret: `${name}-secret`,
    grant_types: ["client_credentials"],
    redirect_uris: [],
    response_types: [],
    token_endpoint_auth_method: "client_secret_post",
  };
}

function serve(issuer, keys) {
  const provider = new Provider(issuer, {
    jwks: { keys },
    cookies: { keys: ["of the tests"] },
    clients: [
      ...Object.keys(GROUPS).map(client),
      {
        client_id: "pages",
        client_secret: "pages-secret",
        redirect_uris: ["http://127.0.0.1/callback"],
        token_endpoint_auth_method: "client_secret_post",
      },
    ],
    claims: { openid: ["sub"], groups: ["groups"] },
    conformIdTokenClaims: false,
    scopes: ["openid", "groups", ...SCOPES.split(" ")],
    enabledJWA: { idTokenSigningAlgValues: ["RS256", "PS256", "ES256", "EdDSA"] },
    findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id, groups: GROUPS[id] ?? [] }) }),
    extraTokenClaims: (_ctx, token) => ({ groups: GROUPS[token.accountId ?? token.clientId] ?? [] }),
    async loadExistingGrant({ oidc }) {
      // Nobody is asked for consent
      const grant = new provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId });
      grant.addOIDCScope(`openid groups ${SCOPES}`);
      for (const resource of [oidc.params.resource ?? []].flat()) grant.addResourceScope(resource, SCOPES);
      await grant.save();
      return grant;
    },
    features: {
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        useGrantedResource: () => true,
        getResourceServerInfo: (ctx) => ({
          scope: SCOPES,
          accessTokenFormat: "jwt",
          accessTokenTTL: Number(ctx.get("x-token-ttl") || 600),
          jwt: { sign: { alg: ctx.get("x-token-alg") || "RS256" } },
        }),
      },
    },
  });
  // Tests have ports that nobody knows beforehand
  provider.Client.prototype.redirectUriAllowed = (uri) => URL.parse(uri)?.hostname === "127.0.0.1";
  return provider.callback();
}

let keys = freshKeys();
let answer;
const server = createServer((request, response) => {
  if (request.method === "POST" && request.url.startsWith("/test/rotate")) {
    keys = request.url.endsWith("?keep") ? [...freshKeys(), ...keys] : freshKeys();
    answer = serve(issuer, keys);
    response.writeHead(204).end();
  } else {
    answer(request, response);
  }
});
await new Promise((listening) => server.listen(Number(process.argv[2] ?? 0), "127.0.0.1", listening));
const issuer = `http://127.0.0.1:${server.address().port}`;
answer = serve(issuer, keys);
console.log(JSON.stringify({ issuer }));
