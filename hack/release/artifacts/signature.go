// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	signatureFile = checksums + ".sig"
	publicKeyFile = checksums + ".pub"
	publicKeyType = "PUBLIC KEY"
)

// signWithTemporaryKey signs the checksums with a key that exists only in memory, and writes the signature and the
// public key in the formats of cosign: base64 of an ECDSA signature, and PEM.
func signWithTemporaryKey(folder string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("create a temporary key: %w", err)
	}
	text, readErr := os.ReadFile(filepath.Join(folder, checksums))
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err = errors.Join(readErr, err); err != nil {
		return fmt.Errorf("sign the checksums: %w", err)
	}
	sum := sha256.Sum256(text)
	signature, err := key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		return fmt.Errorf("sign the checksums: %w", err)
	}
	for name, content := range map[string][]byte{
		signatureFile: []byte(base64.StdEncoding.EncodeToString(signature)),
		publicKeyFile: pem.EncodeToMemory(&pem.Block{Type: publicKeyType, Bytes: public}),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			return fmt.Errorf("write the signature: %w", err)
		}
	}
	return nil
}

// verifySignature verifies the signature of the checksums with the public key next to it.
func verifySignature(folder string) error {
	text, textErr := os.ReadFile(filepath.Join(folder, checksums))
	encoded, signatureErr := os.ReadFile(filepath.Join(folder, signatureFile))
	publicText, publicErr := os.ReadFile(filepath.Join(folder, publicKeyFile))
	if err := errors.Join(textErr, signatureErr, publicErr); err != nil {
		return fmt.Errorf("verify the signature of the checksums: %w", err)
	}
	signature, err := base64.StdEncoding.DecodeString(string(encoded))
	if err != nil {
		return fmt.Errorf("verify the signature of the checksums: %w", err)
	}
	block, _ := pem.Decode(publicText)
	if block == nil || block.Type != publicKeyType {
		return errors.New("verify the signature of the checksums: expected a public key in PEM, found none")
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return fmt.Errorf("verify the signature of the checksums: %w", err)
	}
	sum := sha256.Sum256(text)
	if key, isKnown := public.(*ecdsa.PublicKey); !isKnown || !ecdsa.VerifyASN1(key, sum[:], signature) {
		return errors.New("expected a signature of the checksums that the ECDSA public key verifies, found an invalid signature")
	}
	return nil
}
