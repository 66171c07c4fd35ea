package todo.users;

import com.auth0.jwt.JWT;
import com.auth0.jwt.JWTVerifier;
import com.auth0.jwt.algorithms.Algorithm;
import com.auth0.jwt.exceptions.JWTVerificationException;
import com.auth0.jwt.interfaces.DecodedJWT;
import java.util.Optional;

/** Decides whether a request comes from somebody whom the auth service knows. */
final class Tokens {
  private static final String SCHEME = "Bearer ";
  private final JWTVerifier verifier;

  Tokens(String secret) {
    this.verifier = JWT.require(Algorithm.HMAC256(secret)).build();
  }

  /** The token behind an `Authorization` header, if it is valid. */
  Optional<DecodedJWT> verify(String header) {
    if (header == null || !header.startsWith(SCHEME)) {
      return Optional.empty();
    }
    try {
      return Optional.of(verifier.verify(header.substring(SCHEME.length())));
    } catch (JWTVerificationException refused) {
      return Optional.empty();
    }
  }
}
