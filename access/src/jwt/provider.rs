//! Verification of the signatures of JSON web tokens with `ring`, which the server also uses for TLS.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result, new_error};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(new_error(ErrorKind::UnsupportedAlgorithm)),
    verifier_factory: verifier,
    // The key utilities are for private keys and thumbprints, which are not used.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Installs this provider for the process.
pub(super) fn install() {
    // Ignore the error: it means that an earlier call has installed the provider. No other code installs one.
    let _ = PROVIDER.install_default();
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let wrong_key = || new_error(ErrorKind::InvalidKeyFormat);
    if algorithm.family() != key.family() || key.family() == AlgorithmFamily::Hmac {
        return Err(wrong_key());
    }
    let (algorithm, key) = (*algorithm, key.clone());
    match key.kind() {
        DecodingKeyKind::RsaModulusExponent { .. } => {
            let parameters = rsa(algorithm).ok_or_else(wrong_key)?;
            Ok(Box::new(RsaVerifier { algorithm, parameters, key }))
        }
        DecodingKeyKind::SecretOrDer(_) => {
            let parameters = curve(algorithm).ok_or_else(wrong_key)?;
            Ok(Box::new(CurveVerifier { algorithm, parameters, key }))
        }
    }
}

fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        Algorithm::RS256 => &RSA_PKCS1_2048_8192_SHA256,
        Algorithm::RS384 => &RSA_PKCS1_2048_8192_SHA384,
        Algorithm::RS512 => &RSA_PKCS1_2048_8192_SHA512,
        Algorithm::PS256 => &RSA_PSS_2048_8192_SHA256,
        Algorithm::PS384 => &RSA_PSS_2048_8192_SHA384,
        Algorithm::PS512 => &RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

fn curve(algorithm: Algorithm) -> Option<&'static dyn VerificationAlgorithm> {
    Some(match algorithm {
        Algorithm::ES256 => &ECDSA_P256_SHA256_FIXED,
        Algorithm::EdDSA => &ED25519,
        _ => return None,
    })
}

/// Verifies with an RSA key, given by its modulus and exponent.
struct RsaVerifier {
    algorithm: Algorithm,
    parameters: &'static RsaParameters,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for RsaVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let DecodingKeyKind::RsaModulusExponent { n, e } = self.key.kind() else { return Err(Error::new()) };
        RsaPublicKeyComponents { n, e }.verify(self.parameters, message, signature).map_err(|_| Error::new())
    }
}

impl JwtVerifier for RsaVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// Verifies with an elliptic-curve key.
struct CurveVerifier {
    algorithm: Algorithm,
    parameters: &'static dyn VerificationAlgorithm,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for CurveVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let key = self.key.try_get_as_bytes().map_err(Error::from_source)?;
        UnparsedPublicKey::new(self.parameters, key).verify(message, signature).map_err(|_| Error::new())
    }
}

impl JwtVerifier for CurveVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
