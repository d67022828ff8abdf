// A service provider with passport-saml. IDP: the file with the identity provider's metadata.
import { readFileSync } from "node:fs";
import { Strategy } from "@node-saml/passport-saml";
import express from "express";
import session from "express-session";
import passport from "passport";

const { IDP, PORT } = process.env;
const here = `http://127.0.0.1:${PORT}`;
const idp = readFileSync(IDP, "utf8");
const location = (name) => new RegExp(`${name}[^>]*Redirect[^>]*Location="([^"]+)"`).exec(idp)[1];
const own = readFileSync("sp.pem", "utf8");
const user = (profile, done) =>
  done(null, { ...profile, getAssertionXml: undefined, getAssertion: undefined, getSamlResponseXml: undefined });
const strategy = new Strategy(
  {
    issuer: `${here}/metadata`,
    callbackUrl: `${here}/acs`,
    logoutCallbackUrl: `${here}/sls`,
    entryPoint: location("SingleSignOnService"),
    logoutUrl: location("SingleLogoutService"),
    idpCert: [...idp.matchAll(/X509Certificate>([^<]+)</g)].map((match) => match[1].trim()),
    idpIssuer: /entityID="([^"]+)"/.exec(idp)[1],
    privateKey: readFileSync("sp.key", "utf8"),
    publicCert: own,
    signatureAlgorithm: "sha256",
    identifierFormat: null,
    disableRequestedAuthnContext: true,
    wantAssertionsSigned: true,
    wantAuthnResponseSigned: true,
    validateInResponseTo: "always",
  },
  user,
  user,
);
passport.use(strategy);
passport.serializeUser(user);
passport.deserializeUser(user);

const app = express();
app.use(session({ name: "saml-passport", secret: "x", resave: false, saveUninitialized: false }));
app.use(express.urlencoded({ extended: false, limit: "1mb" }));
app.use(passport.initialize(), passport.session());
const saml = passport.authenticate("saml", { keepSessionInfo: true });
app.get("/", (request, response, next) => {
  if (!request.user) return saml(request, response, next);
  response.json({ name_id: request.user.nameID, attributes: request.user.attributes });
});
app.post("/acs", saml, (request, response) => response.redirect("/"));
app.get("/logout", (request, response, next) =>
  strategy.logout(request, (error, url) => {
    if (error) return next(error);
    request.logout(() => response.redirect(url));
  }),
);
app.get("/sls", saml, (request, response) => response.redirect("/out"));
app.get("/out", (request, response) => response.send("you are out"));
app.get("/metadata", (request, response) =>
  response.type("xml").send(strategy.generateServiceProviderMetadata(null, own)),
);
app.use((error, request, response, next) => response.status(403).send(`refused: ${error.message}`));
app.listen(PORT, "127.0.0.1");
