package api;

import java.io.FileInputStream;
import java.io.InputStream;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.interfaces.RSAPrivateKey;
import java.util.Map;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.http.MediaType;
import org.springframework.security.config.annotation.web.builders.HttpSecurity;
import org.springframework.security.config.annotation.web.configurers.AbstractHttpConfigurer;
import org.springframework.security.converter.RsaKeyConverters;
import org.springframework.security.core.annotation.AuthenticationPrincipal;
import org.springframework.security.saml2.core.Saml2X509Credential;
import org.springframework.security.saml2.provider.service.authentication.Saml2AuthenticatedPrincipal;
import org.springframework.security.saml2.provider.service.metadata.OpenSamlMetadataResolver;
import org.springframework.security.saml2.provider.service.registration.InMemoryRelyingPartyRegistrationRepository;
import org.springframework.security.saml2.provider.service.registration.RelyingPartyRegistrationRepository;
import org.springframework.security.saml2.provider.service.registration.RelyingPartyRegistrations;
import org.springframework.security.saml2.provider.service.registration.Saml2MessageBinding;
import org.springframework.security.saml2.provider.service.servlet.filter.Saml2WebSsoAuthenticationFilter;
import org.springframework.security.saml2.provider.service.web.DefaultRelyingPartyRegistrationResolver;
import org.springframework.security.saml2.provider.service.web.RelyingPartyRegistrationResolver;
import org.springframework.security.saml2.provider.service.web.Saml2MetadataFilter;
import org.springframework.security.web.SecurityFilterChain;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** A service provider with Spring Security. IDP: the file with the identity provider's metadata. */
@SpringBootApplication
@RestController
public class SamlSpring {
    private static final String HERE = "http://127.0.0.1:" + System.getenv("PORT");

    public static void main(String[] arguments) {
        SpringApplication.run(SamlSpring.class, "--server.address=127.0.0.1",
            "--server.port=" + System.getenv("PORT"),
            "--server.servlet.session.cookie.name=saml-spring");
    }

    @Bean
    RelyingPartyRegistrationRepository registrations() throws Exception {
        try (InputStream key = new FileInputStream("sp.key");
             InputStream certificate = new FileInputStream("sp.pem")) {
            RSAPrivateKey privateKey = RsaKeyConverters.pkcs8().convert(key);
            X509Certificate x509 = (X509Certificate)
                CertificateFactory.getInstance("X.509").generateCertificate(certificate);
            return new InMemoryRelyingPartyRegistrationRepository(
                RelyingPartyRegistrations.fromMetadataLocation("file:" + System.getenv("IDP"))
                    .registrationId("sso")
                    .assertingPartyDetails(party -> party.wantAuthnRequestsSigned(true))
                    .singleLogoutServiceLocation("{baseUrl}/logout/saml2/slo")
                    .singleLogoutServiceBinding(Saml2MessageBinding.REDIRECT)
                    .signingX509Credentials(
                        all -> all.add(Saml2X509Credential.signing(privateKey, x509)))
                    .build());
        }
    }

    @Bean
    SecurityFilterChain security(HttpSecurity http, RelyingPartyRegistrationRepository registrations)
        throws Exception {
        RelyingPartyRegistrationResolver resolver =
            new DefaultRelyingPartyRegistrationResolver(registrations);
        return http
            .authorizeRequests(all -> all.antMatchers("/out").permitAll()
                .anyRequest().authenticated())
            .csrf(AbstractHttpConfigurer::disable)
            .saml2Login(login -> login.failureHandler((request, response, failure) -> {
                response.setStatus(403);
                response.getWriter().write("refused: " + failure.getMessage());
            }))
            .saml2Logout(logout -> { })
            .logout(logout -> logout.logoutSuccessUrl("/out"))
            .addFilterBefore(new Saml2MetadataFilter(resolver, new OpenSamlMetadataResolver()),
                Saml2WebSsoAuthenticationFilter.class)
            .build();
    }

    @GetMapping("/")
    Map<String, Object> home(@AuthenticationPrincipal Saml2AuthenticatedPrincipal person) {
        return Map.of("name_id", person.getName(), "attributes", person.getAttributes());
    }

    /** Spring takes a sign-out by POST only. */
    @GetMapping(path = "/leave", produces = MediaType.TEXT_HTML_VALUE)
    String leave() {
        return "<form method=\"post\" action=\"" + HERE + "/logout\"></form>";
    }

    @GetMapping("/out")
    String out() {
        return "you are out";
    }
}
